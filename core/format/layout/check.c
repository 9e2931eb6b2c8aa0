/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - each piece against what the layout says of it
 *
 * Every mismatch is said; a tensor with one is left out, since a layout that
 * is wrong in one place tells nothing about the others.
 *
 * Where the layout does not say the shape: a dimension that nothing cuts is
 * what the first piece has; one that is cut is the sum over the mesh positions
 * that cut it.  Even cuts need one piece only.
 */
#include "core/format/layout/load.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/container/container.h"
#include "core/geom/dtype.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A tensor as the layout has it. */
struct whole {
	struct ck_layout_load *ld;
	struct ck_layout_tensor *t;
	const struct ck_layout_rule *r;
	uint64_t shape[CK_MAX_RANK];
	struct ck_layout_dims grid; /* "view", or the shape */
	unsigned rank;
	uint8_t dtype;
};

/* One piece as a part; points into itself. */
struct fit {
	struct ck_placed place;
	struct ck_part part;
	uint64_t flat[2];
	uint64_t elements; /* that the file has to hold */
};

int ck_layout_tree(const struct ck_layout_load *ld,
		   const struct ck_layout_rule *r, uint32_t *tree,
		   struct ck_err *err)
{
	*tree = 0;
	return r->tree ? ck_builder_tree(ld->b, r->tree, strlen(r->tree), tree,
					 err) :
			 0;
}

int ck_layout_refuse(struct ck_layout_load *ld, struct ck_layout_tensor *t,
		     const struct ck_layout_file *file, struct ck_err *err,
		     const char *fmt, ...)
{
	char text[CK_ERR_MAX / 2];
	uint32_t tree;
	va_list ap;
	int ret;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (t->refused)
		return ck_builder_report_tensor(
			ld->b, CK_ERROR, t->name.s, t->name.len,
			file ? file->path : NULL, err, "%s", text);
	t->refused = true;
	ret = ck_layout_tree(ld, t->rule, &tree, err);
	if (ret)
		return ret;
	return ck_builder_refuse(ld->b, tree, t->name.s, t->name.len, err,
				 "%s%s%s", file ? file->path : "",
				 file ? ": " : "", text);
}

/* ---- the shape of the whole ---- */

static const struct ck_layout_piece *next_shaped(
	const struct ck_layout_piece *p)
{
	while (p && !p->x.shape)
		p = p->next;
	return p;
}

static int lacks(const struct whole *w, int dim, uint64_t part,
		 struct ck_err *why)
{
	uint64_t at[CK_LAYOUT_AXES];
	char text[256];

	ck_layout_part_at(w->r, dim, part, at);
	ck_layout_part_text(w->r, dim, at, true, text);
	return ck_fail(why, EINVAL,
		       "its dimension %d is not known, for the part of %s is "
		       "not there: expected \"shape\"",
		       dim, text);
}

static int sum_up(const struct whole *w, int dim, uint64_t nr, uint64_t *out,
		  struct ck_err *why)
{
	ck_auto_free uint64_t *part = reallocarray(NULL, nr, sizeof(*part));
	const struct ck_layout_piece *p = next_shaped(w->t->first);

	if (!part)
		return ck_no_memory(why);
	memset(part, 0xff, nr * sizeof(*part));
	for (; p; p = next_shaped(p->next)) {
		uint64_t i = ck_layout_part(w->r, dim, p->at, &nr);

		if (i != CK_LAYOUT_FREE && dim < p->x.rank)
			part[i] = p->x.shape[dim];
	}
	*out = 0;
	for (uint64_t i = 0; i < nr; i++) {
		if (part[i] == CK_LAYOUT_FREE)
			return lacks(w, dim, i, why);
		if (!ck_add_ok(*out, part[i], out))
			return ck_fail(why, EINVAL, "its shape is too large");
	}
	return 0;
}

static int one_dim(const struct whole *w, const struct ck_layout_piece *p,
		   int dim, uint64_t *out, struct ck_err *why)
{
	const struct ck_mesh_step *cut = NULL;
	bool even = true, one = true, ok = true;
	uint64_t nr;

	for (unsigned i = 0; i < w->r->nr_steps; i++) {
		const struct ck_mesh_step *s = &w->r->step[i];

		if (!s->flat && s->dim != dim)
			continue;
		one = !cut;
		cut = s;
		even &= s->split.how == CK_SIZES_EVEN;
	}
	ck_layout_part(w->r, dim, NULL, &nr);
	*out = p->x.shape[dim];
	if (even) {
		ok = !cut || ck_mul_ok(*out, nr, out);
	} else if (one && cut->split.how == CK_SIZES_GIVEN) {
		*out = 0;
		for (uint64_t i = 0; i < nr && ok; i++)
			ok = ck_add_ok(*out, cut->split.given[i], out);
	} else {
		return sum_up(w, dim, nr, out, why);
	}
	return ok ? 0 : ck_fail(why, EINVAL, "its shape is too large");
}

/* Boxes reach as far as the tensor does. */
static int from_boxes(struct whole *w, struct ck_err *why)
{
	const struct ck_layout_rule *r = w->r;

	w->rank = r->box[0].size.rank;
	for (size_t i = 0; i < r->nr_boxes; i++) {
		const struct ck_layout_box *b = &r->box[i];

		if (b->size.rank != w->rank)
			return ck_fail(why, EINVAL, "its boxes differ in rank");
		for (unsigned d = 0; d < w->rank; d++) {
			uint64_t end;

			if (!ck_add_ok(b->start.v[d], b->size.v[d], &end))
				return ck_fail(why, EINVAL,
					       "its shape is too large");
			w->shape[d] = CK_MAX(w->shape[d], end);
		}
	}
	return 0;
}

/* From pieces; -EINVAL with the reason where they do not tell it. */
static int from_pieces(struct whole *w, struct ck_err *why)
{
	const struct ck_layout_piece *p = next_shaped(w->t->first);
	const struct ck_layout_rule *r = w->r;
	int ret = 0;

	if (!p)
		return ck_fail(why, EINVAL,
			       "raw files do not tell its shape: expected "
			       "\"shape\"");
	/* the order that flat cuts comes last */
	if (r->nr_steps && r->step[r->nr_steps - 1].flat && p->x.rank != 1)
		return ck_fail(why, EINVAL,
			       "flat pieces do not tell its shape: expected "
			       "\"shape\"");
	w->rank = p->x.rank;
	for (unsigned d = 0; d < w->rank && !ret; d++)
		ret = one_dim(w, p, (int)d, &w->shape[d], why);
	return ret;
}

static int find_shape(struct whole *w, struct ck_err *err)
{
	const struct ck_layout_rule *r = w->r;
	struct ck_err why = { 0 };
	int ret = 0;

	if (r->shape.v) {
		w->rank = r->shape.rank;
		memcpy(w->shape, r->shape.v, w->rank * sizeof(*w->shape));
	} else {
		ret = r->nr_boxes ? from_boxes(w, &why) : from_pieces(w, &why);
	}
	if (ret == -EINVAL)
		return ck_layout_refuse(w->ld, w->t, NULL, err, "%s", why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	w->grid =
		ck_layout_grid(r, (struct ck_layout_dims){ w->shape, w->rank });
	return 0;
}

static int find_dtype(struct whole *w, struct ck_err *err)
{
	const struct ck_layout_piece *p = w->t->first;

	w->dtype = w->r->dtype;
	for (; p && !w->dtype; p = p->next)
		w->dtype = p->x.dtype;
	if (w->dtype)
		return 0;
	return ck_layout_refuse(w->ld, w->t, w->t->first->file, err,
				"raw files do not tell its element type: "
				"expected \"dtype\"");
}

/* ---- where a piece belongs ---- */

static int place_by_box(const struct whole *w, const struct ck_layout_piece *p,
			struct ck_placed *out, struct ck_err *why)
{
	const struct ck_layout_box *b = p->box;

	if (!b)
		b = ck_layout_box_at(&w->ld->doc, w->r, p->file->rank, p->at);
	if (!b)
		return ck_fail(why, EINVAL,
			       "%s is in it, and none of its boxes is of this "
			       "file's place in the mesh",
			       p->key);
	if (b->size.rank != w->grid.rank)
		return ck_fail(why, EINVAL,
			       "expected boxes of %u dimensions, found %u",
			       w->grid.rank, b->size.rank);
	ck_layout_box_place(b, out);
	return 0;
}

static int place_by_steps(const struct whole *w,
			  const struct ck_layout_piece *p,
			  struct ck_placed *out, struct ck_err *why)
{
	const struct ck_layout_rule *r = w->r;

	for (size_t i = 0; i < r->nr_steps; i++)
		if (p->at[r->step[i].axis[0]] == CK_LAYOUT_FREE)
			return ck_fail(why, EINVAL,
				       "%s is cut by %s, and nothing says "
				       "which %s this is",
				       p->key, r->step[i].axis_name,
				       r->step[i].axis_name);
	return ck_mesh_place(r->step, r->nr_steps, p->at, w->grid.v,
			     w->grid.rank, out, why);
}

/* ---- what is stored there ---- */

static int bad_shape(const struct whole *w, const struct ck_layout_piece *p,
		     const uint64_t *want, struct ck_err *why)
{
	ck_auto_str struct ck_str a = { 0 }, b = { 0 };

	ck_str_json_u64(&a, want, w->grid.rank);
	ck_str_json_u64(&b, p->x.shape, p->x.rank);
	if (a.failed || b.failed)
		return ck_no_memory(why);
	return ck_fail(why, EINVAL, "%s: expected shape %s, found %s", p->key,
		       a.v, b.v);
}

/*
 * The file's own shape is the one expected; or it is another one of as many
 * elements in a row, where the layout looks at them in its own way.
 */
static int check_shape(const struct whole *w, const struct ck_layout_piece *p,
		       struct fit *f, struct ck_err *why)
{
	uint64_t volume, skip = p->box ? p->box->skip : 0;
	bool stretch = p->box && p->box->of_key;
	bool same = !f->place.flat && p->x.rank == w->grid.rank &&
		    !memcmp(p->x.shape, f->place.full,
			    p->x.rank * sizeof(*p->x.shape));

	if (same && !skip) {
		f->part.stride = p->x.stride;
		return 0;
	}
	if (!f->place.flat && !w->r->view.v && !stretch)
		return bad_shape(w, p, f->place.full, why);
	if (!ck_extent_is_dense(&p->x))
		return ck_fail(why, EINVAL,
			       "%s: expected elements one after another, found "
			       "strides",
			       p->key);
	if (!ck_dims_volume(p->x.shape, p->x.rank, &volume) ||
	    !ck_range_ok(skip, f->elements, volume) ||
	    (!p->box && f->elements != volume))
		return ck_fail(why, EINVAL,
			       "%s: expected %" PRIu64
			       " elements, found %" PRIu64,
			       p->key, skip + f->elements, volume);
	return 0;
}

static int check_size(const struct whole *w, const struct ck_layout_piece *p,
		      const struct fit *f, struct ck_err *why)
{
	uint64_t bytes;

	if (!p->whole || p->file->missing ||
	    !ck_mul_ok(f->elements, ck_dtype_info(w->dtype)->size, &bytes) ||
	    !ck_add_ok(bytes, p->x.off, &bytes) || p->file->size == bytes)
		return 0;
	return ck_fail(why, EINVAL,
		       "expected %" PRIu64 " bytes, found %" PRIu64, bytes,
		       p->file->size);
}

static void fill_part(const struct whole *w, const struct ck_layout_piece *p,
		      struct fit *f)
{
	f->flat[0] = f->place.lo;
	f->flat[1] = f->place.hi;
	f->part = (struct ck_part){
		.name = w->t->name.s,
		.name_len = w->t->name.len,
		.src = p->file->src,
		.dtype = w->dtype,
		.xform = p->x.xform,
		.rank = w->rank,
		.shape = w->shape,
		.grid_rank = w->grid.rank,
		.grid = w->r->view.v,
		.start = f->place.start,
		.len = f->place.len,
		.full_len = f->place.flat ? NULL : f->place.full,
		.flat = f->place.flat ? f->flat : NULL,
		.off = p->x.off,
	};
}

/* -EINVAL: it does not fit, for the reason in @why. */
static int fit_piece(const struct whole *w, const struct ck_layout_piece *p,
		     struct fit *f, struct ck_err *why)
{
	int ret = w->r->nr_boxes ? place_by_box(w, p, &f->place, why) :
				   place_by_steps(w, p, &f->place, why);

	if (ret)
		return ret;
	if (p->x.dtype && p->x.dtype != w->dtype)
		return ck_fail(why, EINVAL, "%s: expected %s, found %s", p->key,
			       ck_dtype_info(w->dtype)->name,
			       ck_dtype_info(p->x.dtype)->name);
	f->elements = f->place.stored;
	if (!f->place.flat &&
	    !ck_dims_volume(f->place.full, w->grid.rank, &f->elements))
		return ck_fail(why, EINVAL, "it is too large");
	fill_part(w, p, f);
	return p->x.shape ? check_shape(w, p, f, why) :
			    check_size(w, p, f, why);
}

/* ---- all pieces ---- */

/* An axis on which pieces differ, and of which the layout says nothing. */
static int check_unnamed(const struct whole *w, struct ck_err *err)
{
	const struct ck_layout_mesh *mesh = &w->ld->doc.mesh;
	const struct ck_layout_piece *a = w->t->first, *b = a;
	uint32_t named = w->r->named;
	int ret = 0;

	while (!w->r->nr_boxes && (b = b->next) && !ret) {
		for (unsigned x = 0; x < mesh->nr && !ret; x++) {
			if (named & 1u << x || a->at[x] == b->at[x])
				continue;
			named |= 1u << x;
			ret = ck_layout_refuse(
				w->ld, w->t, b->file, err,
				"it is in %s too, and \"placement\" does not "
				"say what %s does to it (shard, flat or "
				"replicate)",
				a->file->path, mesh->axis[x].name);
		}
	}
	return ret;
}

/* What only boxes can say. */
static int apply_box(const struct whole *w, const struct ck_layout_box *b,
		     struct fit *f, struct ck_err *err)
{
	uint64_t skip;

	if (!b)
		return 0;
	if (b->stride)
		f->part.stride = b->stride;
	f->part.stored = b->stored_dtype;
	if (!ck_mul_ok(b->skip, ck_dtype_info(w->dtype)->size, &skip) ||
	    !ck_add_ok(f->part.off, skip, &f->part.off))
		f->part.off = UINT64_MAX; /* the builder refuses it */
	if (!b->zstd.v)
		return 0;
	return ck_builder_codec(w->ld->b, f->part.src, CK_CODEC_ZSTD,
				b->zstd.v[0], b->zstd.v[1], &f->part.src, err);
}

/* Checks all of them, or adds them away as well; *f is the last. */
static int each_piece(const struct whole *w, bool adds, struct fit *f,
		      struct ck_err *err)
{
	const struct ck_layout_piece *p = w->t->first;
	uint32_t tree = 0;
	int ret = adds ? ck_layout_tree(w->ld, w->r, &tree, err) : 0;

	for (; p && !ret; p = p->next) {
		struct ck_err why = { 0 };

		ret = fit_piece(w, p, f, &why);
		if (ret == -EINVAL)
			ret = ck_layout_refuse(w->ld, w->t, p->file, err, "%s",
					       why.msg);
		else if (ret)
			ret = ck_fail(err, -ret, "%s", why.msg);
		if (ret || !adds)
			continue;
		f->part.tree = tree;
		ret = apply_box(w, p->box, f, err);
		if (!ret)
			ret = ck_builder_add(w->ld->b, &f->part, err);
	}
	return ret;
}

int ck_layout_check(struct ck_layout_load *ld, struct ck_layout_tensor *t,
		    struct ck_err *err)
{
	struct whole w = { .ld = ld, .t = t, .r = t->rule };
	struct fit f = { 0 };
	int ret;

	if (!t->first)
		return 0; /* it was refused before it had any */
	ret = find_dtype(&w, err);
	if (!ret && !t->refused)
		ret = find_shape(&w, err);
	if (!ret && w.dtype && w.grid.v)
		ret = check_unnamed(&w, err);
	if (!ret && w.dtype && w.grid.v)
		ret = each_piece(&w, false, &f, err);
	if (!ret && !t->refused)
		ret = each_piece(&w, true, &f, err);
	return ret || t->refused ? ret : ck_layout_missing(ld, t, &f.part, err);
}
