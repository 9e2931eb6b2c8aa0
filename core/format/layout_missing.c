/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_missing.c - what the layout speaks of and no file holds
 *
 * A part whose file is missing becomes a part in that missing file.  One that
 * is not in a file that is there is a hole, and said with the file's name.
 */
#include "core/format/layout_load.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct wanted {
	struct ck_lay_load *ld;
	struct ck_lay_tensor *t;
	const struct ck_lay_step *step;
	size_t nr_steps;
	uint64_t positions;
	const struct ck_part *like; /* names the tensor */
	uint64_t at[CK_LAY_AXES];
};

static uint64_t position(const struct wanted *w, const uint64_t *at)
{
	uint64_t pos = 0;

	for (size_t i = 0; i < w->nr_steps; i++)
		pos = pos * w->step[i].split.nr + at[w->step[i].axis];
	return pos;
}

/* Coordinates of @pos on the axes that cut; the others all pieces share. */
static void coords(struct wanted *w, uint64_t pos)
{
	const struct ck_lay_load *ld = w->ld;
	unsigned nr = ld->doc.mesh.nr;

	memcpy(w->at, ld->dims.v + ld->pieces.v[w->t->first].at,
	       nr * sizeof(*w->at));
	for (uint32_t i = w->t->first; i != CK_NONE; i = ld->pieces.v[i].next)
		for (unsigned a = 0; a < nr; a++)
			if (ld->dims.v[ld->pieces.v[i].at + a] != w->at[a])
				w->at[a] = CK_LAY_FREE;
	for (size_t i = w->nr_steps; i-- > 0;) {
		w->at[w->step[i].axis] = pos % w->step[i].split.nr;
		pos /= w->step[i].split.nr;
	}
}

static bool is_there(const struct wanted *w, const struct ck_lay_inst *i)
{
	const uint64_t *at = w->ld->dims.v + i->at;

	if (i->entry == CK_NONE || i->pattern)
		return false;
	for (unsigned a = 0; a < w->ld->doc.mesh.nr; a++)
		if (at[a] != CK_LAY_FREE && w->at[a] != CK_LAY_FREE &&
		    at[a] != w->at[a])
			return false;
	return true;
}

/* The file of that place: a missing one first, then one that is there. */
static const struct ck_lay_inst *file_at(const struct wanted *w)
{
	const struct ck_lay_inst *best = NULL;

	for (size_t i = 0; i < w->ld->insts.nr; i++) {
		const struct ck_lay_inst *f = &w->ld->insts.v[i];

		if ((f->missing || !best) && is_there(w, f))
			best = f;
		if (best && best->missing)
			break;
	}
	return best;
}

static void where(const struct wanted *w, char *to, size_t size)
{
	size_t n = 0;

	*to = '\0';
	for (size_t i = 0; i < w->nr_steps && n < size; i++)
		n += (size_t)snprintf(to + n, size - n, "%s%s=%" PRIu64,
				      n ? ", " : "", w->step[i].axis_name,
				      w->at[w->step[i].axis]);
}

static int say_absent(struct wanted *w, const struct ck_lay_inst *f,
		      struct ck_err *err)
{
	const struct ck_problem_in at = { .severity = CK_ERROR,
					  .tensor = w->t->name.s,
					  .tensor_len = w->t->name.len,
					  .file = f ? f->path : NULL };
	char text[256];

	where(w, text, sizeof(text));
	return ck_builder_problem(w->ld->b, &at, err,
				  "expected its part of %s %s, not found", text,
				  f ? "in it" : "in some file");
}

static int lacking(struct wanted *w, uint64_t pos, struct ck_err *err)
{
	unsigned rank = w->like->grid ? w->like->grid_rank : w->like->rank;
	const uint64_t *grid = w->like->grid ? w->like->grid : w->like->shape;
	struct ck_part part = *w->like;
	const struct ck_lay_inst *f;
	struct ck_lay_place place;
	struct ck_err why;
	uint64_t flat[2];

	coords(w, pos);
	if (ck_lay_place(w->step, (unsigned)w->nr_steps, grid, rank, w->at,
			 &place, &why))
		return 0; /* the same was said of those that are there */
	for (unsigned d = 0; d < rank; d++)
		if (!place.len[d])
			return 0;
	if (place.flat && place.lo == place.hi)
		return 0;
	f = file_at(w);
	if (!f || !f->missing)
		return f && f->bad ? 0 : say_absent(w, f, err);
	flat[0] = place.lo;
	flat[1] = place.hi;
	part.start = place.start;
	part.len = place.len;
	part.full_len = NULL;
	part.stride = NULL;
	part.flat = place.flat ? flat : NULL;
	part.src = f->src;
	part.off = 0;
	part.xform = CK_XF_NONE;
	return ck_builder_add(w->ld->b, &part, err);
}

int ck_lay_settle_missing(struct ck_lay_load *ld, struct ck_lay_tensor *t,
			  const struct ck_part *like, struct ck_err *err)
{
	const struct ck_lay_rule *r = &ld->doc.rules.v[t->rule];
	struct wanted w = { .ld = ld,
			    .t = t,
			    .step = ld->doc.steps.v + r->first_step,
			    .nr_steps = r->nr_steps,
			    .positions = 1,
			    .like = like };
	ck_auto_free bool *have = NULL;
	int ret = 0;

	if (!r->nr_steps)
		return 0;
	for (size_t i = 0; i < r->nr_steps; i++)
		w.positions *= w.step[i].split.nr; /* at most 2^20 */
	have = calloc(w.positions, sizeof(*have));
	if (!have)
		return ck_lay_no_mem(ld, err);
	for (uint32_t i = t->first; i != CK_NONE; i = ld->pieces.v[i].next)
		have[position(&w, ld->dims.v + ld->pieces.v[i].at)] = true;
	for (uint64_t i = 0; i < w.positions && !ret; i++)
		if (!have[i])
			ret = lacking(&w, i, err);
	return ret;
}

/* ---- members of "tensors" that nothing matched ---- */

static int declare(struct ck_lay_load *ld, const struct ck_lay_rule *r,
		   struct ck_err *err)
{
	struct ck_part decl = { .name = r->pattern,
				.name_len = strlen(r->pattern),
				.dtype = r->dtype,
				.rank = r->shape.rank };
	int ret = 0;

	decl.shape = ld->doc.dims.v + r->shape.first;
	if (r->tree)
		ret = ck_builder_tree(ld->b, r->tree, strlen(r->tree),
				      &decl.tree, err);
	return ret ? ret : ck_builder_declare(ld->b, &decl, err);
}

static int unused(struct ck_lay_load *ld, uint32_t rule, struct ck_err *err)
{
	const struct ck_lay_rule *r = &ld->doc.rules.v[rule];
	struct ck_problem_in at = { .severity = CK_WARNING };

	if (r->ignore)
		return 0; /* what is not there is left out, too */
	if (r->match != CK_LAY_EXACT)
		return ck_builder_problem(ld->b, &at, err,
					  "tensors[%u]: \"%s\" matches nothing",
					  rule, r->pattern);
	if (r->boxed && (!r->nr_boxes || ld->doc.boxes.v[r->first_box].file))
		return 0; /* it has no elements; or said of each box */
	at.severity = CK_ERROR;
	at.tensor = r->pattern;
	at.tensor_len = strlen(r->pattern);
	return ck_builder_problem(ld->b, &at, err,
				  "tensors[%u]: expected in a file%s%s, found "
				  "in none",
				  rule, r->key ? " as " : "",
				  r->key ? r->key : "");
}

int ck_lay_unused_rules(struct ck_lay_load *ld, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < ld->doc.rules.nr && !ret; i++) {
		const struct ck_lay_rule *r = &ld->doc.rules.v[i];

		if (r->hits)
			continue;
		ret = unused(ld, i, err);
		if (!ret && r->match == CK_LAY_EXACT && r->shape.given &&
		    r->dtype)
			ret = declare(ld, r, err);
	}
	return ret;
}
