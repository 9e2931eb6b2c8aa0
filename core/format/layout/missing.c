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

#include <string.h>

struct wanted {
	struct ck_layout_load *ld;
	const struct ck_layout_mesh *mesh;
	struct ck_layout_tensor *t;
	const struct ck_layout_rule *r;
	const struct ck_part *like; /* names the tensor */
	struct ck_layout_dims grid;
	uint64_t at[CK_LAYOUT_AXES];
};

/*
 * Coordinates of part @part; of the axes that do not cut, those that all pieces
 * share, and with @copies none that the placement names.
 */
static void go_to(struct wanted *w, uint64_t part, bool copies)
{
	const struct ck_layout_piece *p = w->t->first;

	memcpy(w->at, p->at, w->mesh->nr * sizeof(*w->at));
	for (; p; p = p->next)
		for (unsigned a = 0; a < w->mesh->nr; a++)
			if (p->at[a] != w->at[a] ||
			    (copies && w->r->named & 1u << a))
				w->at[a] = CK_LAYOUT_FREE;
	ck_layout_part_at(w->r, -1, part, w->at);
}

static bool is_there(const struct wanted *w, const struct ck_layout_file *f)
{
	return f->entry != CK_NONE && !f->pattern &&
	       ck_layout_agree(w->mesh, f->at, w->at);
}

/* The file of that place: a missing one first, then one that is there. */
static const struct ck_layout_file *file_at(const struct wanted *w)
{
	const struct ck_layout_file *best = NULL;

	for (size_t i = 0; i < w->ld->files.nr; i++) {
		const struct ck_layout_file *f = &w->ld->files.v[i];

		if ((f->missing || !best) && is_there(w, f))
			best = f;
		if (best && best->missing)
			break;
	}
	return best;
}

/* ---- parts in files of which nothing can be had ---- */

static bool is_empty(const struct wanted *w, const struct ck_placed *place)
{
	for (unsigned d = 0; d < w->grid.rank; d++)
		if (!place->len[d])
			return true;
	return place->flat && place->lo == place->hi;
}

static int add_lost(const struct wanted *w, const struct ck_placed *place,
		    const struct ck_layout_file *f, struct ck_err *err)
{
	const uint64_t flat[2] = { place->lo, place->hi };
	struct ck_part part = *w->like;

	if (is_empty(w, place))
		return 0;
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

/* Where w->at is; false: what is wrong was said of those that are there. */
static bool find_place(const struct wanted *w, struct ck_placed *place)
{
	struct ck_err why;

	return !ck_mesh_place(w->r->step, w->r->nr_steps, w->at, w->grid.v,
			      w->grid.rank, place, &why);
}

/* A part that no piece is. */
static int add_lacking(struct wanted *w, uint64_t part, struct ck_err *err)
{
	const struct ck_layout_file *f;
	struct ck_placed place;
	char text[256];

	go_to(w, part, false);
	if (!find_place(w, &place) || is_empty(w, &place))
		return 0;
	f = file_at(w);
	if (f && f->missing)
		return add_lost(w, &place, f, err);
	if (f && f->bad)
		return 0;
	ck_layout_part_text(w->r, -1, w->at, false, text);
	return ck_builder_report_tensor(w->ld->b, CK_ERROR, w->t->name.s,
					w->t->name.len, f ? f->path : NULL, err,
					"expected its part of %s %s, not found",
					text, f ? "in it" : "in some file");
}

/* ---- lost copies ---- */

/* A raw file's pieces are in the layout, whether it is there or not. */
static bool is_lost(const struct ck_layout_file *f)
{
	return (f->missing || f->bad) && f->kind != CK_LAYOUT_RAW &&
	       f->entry != CK_NONE && !f->pattern;
}

int ck_layout_find_lost(struct ck_layout_load *ld, struct ck_err *err)
{
	for (size_t i = 0; i < ld->files.nr; i++) {
		struct ck_layout_file *f = &ld->files.v[i];
		const struct ck_layout_file **room;

		if (!is_lost(f))
			continue;
		for (size_t k = 0; k < ld->files.nr && !f->shared; k++)
			f->shared = !is_lost(&ld->files.v[k]) &&
				    ck_layout_agree(&ld->doc.mesh, f->at,
						    ld->files.v[k].at);
		room = ck_vec_push(&ld->lost);
		if (!room)
			return ck_no_memory(err);
		*room = f;
	}
	return 0;
}

/* A rank of several files has a tensor in one of them. */
static bool is_elsewhere(const struct wanted *w, const struct ck_layout_file *f)
{
	const struct ck_layout_piece *p = f->shared ? w->t->first : NULL;

	while (p && !ck_layout_agree(w->mesh, f->at, p->at))
		p = p->next;
	return p;
}

/* Copies in @f of what another file has. */
static int lost_copies(struct wanted *w, const struct ck_layout_file *f,
		       const bool *have, struct ck_err *err)
{
	struct ck_placed place;
	uint64_t end, part = ck_layout_part(w->r, -1, f->at, &end);
	int ret = 0;

	if (part == CK_LAYOUT_FREE)
		part = 0; /* any of them */
	else
		end = part + 1;
	for (; part < end && !ret; part++) {
		go_to(w, part, true);
		if (have[part] && is_there(w, f) && find_place(w, &place))
			ret = add_lost(w, &place, f, err);
	}
	return ret;
}

static int lost_box(const struct wanted *w, const struct ck_layout_file *f,
		    struct ck_err *err)
{
	const struct ck_layout_box *b =
		ck_layout_box_at(&w->ld->doc, w->r, f->rank, f->at);
	struct ck_placed place;

	if (!b || b->file || b->size.rank != w->grid.rank)
		return 0;
	ck_layout_box_place(b, &place);
	return add_lost(w, &place, f, err);
}

int ck_layout_missing(struct ck_layout_load *ld, struct ck_layout_tensor *t,
		      const struct ck_part *like, struct ck_err *err)
{
	struct wanted w = { .ld = ld,
			    .mesh = &ld->doc.mesh,
			    .t = t,
			    .r = t->rule,
			    .like = like,
			    .grid = { like->grid, like->grid_rank } };
	ck_auto_free bool *have = NULL;
	uint64_t nr;
	int ret = 0;

	if (!like->grid)
		w.grid = (struct ck_layout_dims){ like->shape, like->rank };
	ck_layout_part(w.r, -1, NULL, &nr);
	have = calloc(nr, sizeof(*have));
	if (!have)
		return ck_no_memory(err);
	for (const struct ck_layout_piece *p = t->first; p && !w.r->boxed;
	     p = p->next) {
		uint64_t all, i = ck_layout_part(w.r, -1, p->at, &all);

		have[i] = true;
	}
	for (uint64_t i = 0; i < nr && !w.r->boxed && !ret; i++)
		if (!have[i])
			ret = add_lacking(&w, i, err);
	for (size_t i = 0; i < ld->lost.nr && !ret; i++) {
		const struct ck_layout_file *f = ld->lost.v[i];

		if (!is_elsewhere(&w, f))
			ret = w.r->boxed ? lost_box(&w, f, err) :
					   lost_copies(&w, f, have, err);
	}
	return ret;
}

/* ---- members of "tensors" that nothing matched ---- */

static int declare(struct ck_layout_load *ld, const struct ck_layout_rule *r,
		   struct ck_err *err)
{
	struct ck_part decl = { .name = r->pattern,
				.name_len = strlen(r->pattern),
				.dtype = r->dtype,
				.rank = r->shape.rank,
				.shape = r->shape.v };
	int ret = ck_layout_tree(ld, r, &decl.tree, err);

	return ret ? ret : ck_builder_declare(ld->b, &decl, err);
}

static int report_unused(struct ck_layout_load *ld, uint32_t rule,
			 struct ck_err *err)
{
	const struct ck_layout_rule *r = &ld->doc.rules[rule];

	if (r->ignore)
		return 0; /* what is not there is left out, too */
	if (r->match != CK_LAYOUT_EXACT)
		return ck_builder_report_file(
			ld->b, CK_WARNING, NULL, err,
			"tensors[%u]: \"%s\" matches nothing", rule,
			r->pattern);
	if (r->boxed && (!r->nr_boxes || r->box[0].file))
		return 0; /* it has no elements; or said of each box */
	return ck_builder_report_tensor(
		ld->b, CK_ERROR, r->pattern, strlen(r->pattern), NULL, err,
		"tensors[%u]: expected in a file%s%s, found "
		"in none",
		rule, r->key ? " as " : "", r->key ? r->key : "");
}

int ck_layout_unused_rules(struct ck_layout_load *ld, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < ld->doc.nr_rules && !ret; i++) {
		const struct ck_layout_rule *r = &ld->doc.rules[i];

		if (r->hits)
			continue;
		ret = report_unused(ld, i, err);
		if (!ret && r->match == CK_LAYOUT_EXACT && r->shape.v &&
		    r->dtype)
			ret = declare(ld, r, err);
	}
	return ret;
}
