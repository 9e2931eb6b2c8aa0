/* SPDX-License-Identifier: Apache-2.0 */
/*
 * missing.c - what the layout speaks of and no file holds
 *
 * A part whose file is missing becomes a part in that missing file, also where
 * others hold copies of it: what is written must not leave one out, for it may
 * come back.  One that is not in a file that is there is a hole, and said with
 * the file's name.
 */
#include "core/format/layout/load.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct wanted {
	struct ck_lay_load *ld;
	struct ck_lay_tensor *t;
	const struct ck_mesh_step *step;
	size_t nr_steps;
	uint64_t positions;
	const struct ck_part *like; /* names the tensor */
	uint64_t at[CK_LAY_AXES];
};

static uint64_t position(const struct wanted *w, const uint64_t *at)
{
	uint64_t pos = 0;

	for (size_t i = 0; i < w->nr_steps; i++)
		pos = pos * w->step[i].split.nr + at[w->step[i].axis[0]];
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
		w->at[w->step[i].axis[0]] = pos % w->step[i].split.nr;
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
				      w->at[w->step[i].axis[0]]);
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

/* The part at w->at in a file of which nothing can be had. */
static int give(struct wanted *w, const struct ck_placed *place,
		const struct ck_lay_inst *f, struct ck_err *err)
{
	const uint64_t flat[2] = { place->lo, place->hi };
	struct ck_part part = *w->like;

	part.start = place->start;
	part.len = place->len;
	part.full_len = NULL;
	part.stride = NULL;
	part.flat = place->flat ? flat : NULL;
	part.src = f->src;
	part.off = f->missing ? 0 : f->size;
	part.xform = CK_XF_NONE;
	return ck_builder_add(w->ld->b, &part, err);
}

static unsigned grid_rank(const struct wanted *w)
{
	return w->like->grid ? w->like->grid_rank : w->like->rank;
}

static bool is_empty(const struct wanted *w, const struct ck_placed *place)
{
	for (unsigned d = 0; d < grid_rank(w); d++)
		if (!place->len[d])
			return true;
	return place->flat && place->lo == place->hi;
}

static bool fits(const struct wanted *w, struct ck_placed *place)
{
	const uint64_t *grid = w->like->grid ? w->like->grid : w->like->shape;
	struct ck_err why;

	if (ck_mesh_place(w->step, (unsigned)w->nr_steps, w->at, grid,
			  grid_rank(w), place, &why))
		return false; /* the same was said of those that are there */
	return !is_empty(w, place);
}

static int lacking(struct wanted *w, uint64_t pos, struct ck_err *err)
{
	const struct ck_lay_inst *f;
	struct ck_placed place;

	coords(w, pos);
	if (!fits(w, &place))
		return 0;
	f = file_at(w);
	if (!f || !f->missing)
		return f && f->bad ? 0 : say_absent(w, f, err);
	return give(w, &place, f, err);
}

/* ---- lost copies ---- */

static bool agree(const struct ck_lay_load *ld, size_t a, size_t b)
{
	const uint64_t *x = ld->dims.v + a, *y = ld->dims.v + b;

	for (unsigned i = 0; i < ld->doc.mesh.nr; i++)
		if (x[i] != CK_LAY_FREE && y[i] != CK_LAY_FREE && x[i] != y[i])
			return false;
	return true;
}

/* A raw file's pieces are in the layout, whether it is there or not. */
static bool is_lost(const struct ck_lay_inst *f)
{
	return (f->missing || f->bad) && f->kind != CK_LAY_RAW &&
	       f->entry != CK_NONE && !f->pattern;
}

int ck_lay_find_lost(struct ck_lay_load *ld, struct ck_err *err)
{
	for (uint32_t i = 0; i < ld->insts.nr; i++) {
		struct ck_lay_inst *f = &ld->insts.v[i];
		uint32_t *room;

		if (!is_lost(f))
			continue;
		for (size_t k = 0; k < ld->insts.nr && !f->twin; k++)
			f->twin = !is_lost(&ld->insts.v[k]) &&
				  agree(ld, f->at, ld->insts.v[k].at);
		room = ck_vec_push(&ld->lost);
		if (!room)
			return ck_lay_no_mem(ld, err);
		*room = i;
	}
	return 0;
}

/* A rank of several files has a tensor in one of them. */
static bool is_elsewhere(const struct wanted *w, const struct ck_lay_inst *f)
{
	const struct ck_lay_load *ld = w->ld;

	for (uint32_t i = w->t->first; f->twin && i != CK_NONE;
	     i = ld->pieces.v[i].next)
		if (agree(ld, f->at, ld->pieces.v[i].at))
			return true;
	return false;
}

/* Sets w->at to a place whose copies may be anywhere on the axes that copy. */
static void copy_coords(struct wanted *w, uint64_t pos)
{
	uint32_t copies = w->ld->doc.rules.v[w->t->rule].said;

	coords(w, pos);
	for (size_t i = 0; i < w->nr_steps; i++)
		copies &= ~(1u << w->step[i].axis[0]);
	for (unsigned a = 0; a < w->ld->doc.mesh.nr; a++)
		if (copies & 1u << a)
			w->at[a] = CK_LAY_FREE;
}

/* Copies in @f of what another file has. */
static int lost_copies(struct wanted *w, const struct ck_lay_inst *f,
		       const bool *have, struct ck_err *err)
{
	const uint64_t *at = w->ld->dims.v + f->at;
	uint64_t pos = 0, end = w->positions;
	struct ck_placed place;
	bool one = true;
	int ret = 0;

	for (size_t i = 0; i < w->nr_steps; i++)
		one &= at[w->step[i].axis[0]] != CK_LAY_FREE;
	if (one) {
		pos = position(w, at);
		end = pos + 1;
	}
	for (; pos < end && !ret; pos++) {
		copy_coords(w, pos);
		if (have[pos] && is_there(w, f) && fits(w, &place))
			ret = give(w, &place, f, err);
	}
	return ret;
}

static int lost_box(struct wanted *w, const struct ck_lay_inst *f,
		    struct ck_err *err)
{
	const struct ck_lay_load *ld = w->ld;
	const struct ck_lay_box *b = ck_lay_box_at(
		ld, &ld->doc.rules.v[w->t->rule], f->rank, ld->dims.v + f->at);
	struct ck_placed place = { 0 };

	if (!b || b->file || b->size.rank != grid_rank(w))
		return 0;
	ck_lay_place_box(ld, b, &place);
	return is_empty(w, &place) ? 0 : give(w, &place, f, err);
}

/* @have: NULL where boxes say which file has what. */
static int all_lost_copies(struct wanted *w, const bool *have,
			   struct ck_err *err)
{
	const struct ck_lay_load *ld = w->ld;
	int ret = 0;

	for (size_t i = 0; i < ld->lost.nr && !ret; i++) {
		const struct ck_lay_inst *f = &ld->insts.v[ld->lost.v[i]];

		if (is_elsewhere(w, f))
			continue;
		ret = have ? lost_copies(w, f, have, err) : lost_box(w, f, err);
	}
	return ret;
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

	if (r->boxed)
		return all_lost_copies(&w, NULL, err);
	if (!r->nr_steps && !ld->lost.nr)
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
	return ret ? ret : all_lost_copies(&w, have, err);
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
