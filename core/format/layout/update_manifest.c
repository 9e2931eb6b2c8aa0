/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update_manifest.c - each piece against what the layout says of it
 *
 * Every mismatch is said; a tensor with one is left out, since a layout that
 * is wrong in one place tells nothing about the others.
 */
#include "core/format/layout/load.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/dtype.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A tensor as the layout has it. */
struct whole {
	struct ck_lay_load *ld;
	struct ck_lay_tensor *t;
	const struct ck_lay_rule *r;
	uint64_t shape[CK_MAX_RANK];
	const uint64_t *grid; /* "view", or the shape */
	unsigned rank, grid_rank;
	uint8_t dtype;
};

/* One piece as a part; points into itself. */
struct fit {
	struct ck_placed place;
	struct ck_part part;
	uint64_t flat[2];
	uint64_t elements; /* that the file has to hold */
};

static void dims_text(struct ck_str *s, const uint64_t *v, unsigned nr)
{
	ck_str_json_u64(s, v, nr);
}

int ck_lay_wrong(struct ck_lay_load *ld, struct ck_lay_tensor *t, uint32_t inst,
		 struct ck_err *err, const char *fmt, ...)
{
	const struct ck_lay_rule *r = &ld->doc.rules.v[t->rule];
	struct ck_problem_in at = { .severity = CK_ERROR,
				    .tensor = t->name.s,
				    .tensor_len = t->name.len };
	char text[CK_ERR_MAX / 2];
	uint32_t tree = 0;
	va_list ap;
	int ret = 0;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (inst != CK_NONE)
		at.file = ld->insts.v[inst].path;
	if (t->refused)
		return ck_builder_problem(ld->b, &at, err, "%s", text);
	t->refused = true;
	if (r->tree)
		ret = ck_builder_tree(ld->b, r->tree, strlen(r->tree), &tree,
				      err);
	if (ret)
		return ret;
	return ck_builder_refuse(ld->b, tree, t->name.s, t->name.len, err,
				 "%s%s%s", at.file ? at.file : "",
				 at.file ? ": " : "", text);
}

static const char *key_of(const struct whole *w, const struct ck_lay_piece *p)
{
	return p->key == CK_NONE ? w->t->name.s : w->ld->kept.v[p->key];
}

/* ---- the whole ---- */

static int find_dtype(struct whole *w, struct ck_err *err)
{
	const struct ck_lay_load *ld = w->ld;

	w->dtype = w->r->dtype;
	for (uint32_t i = w->t->first; i != CK_NONE && !w->dtype;
	     i = ld->pieces.v[i].next)
		w->dtype = ld->pieces.v[i].dtype;
	if (w->dtype)
		return 0;
	return ck_lay_wrong(w->ld, w->t, ld->pieces.v[w->t->first].inst, err,
			    "raw files do not tell its element type: expected "
			    "\"dtype\"");
}

static int find_shape(struct whole *w, struct ck_err *err)
{
	struct ck_err why = { 0 };
	int ret = ck_lay_shape(w->ld, w->t, w->shape, &w->rank, &why);

	if (ret == -EINVAL)
		return ck_lay_wrong(w->ld, w->t, CK_NONE, err, "%s", why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	w->grid = w->shape;
	w->grid_rank = w->rank;
	if (w->r->view.given) {
		w->grid = w->ld->doc.dims.v + w->r->view.first;
		w->grid_rank = w->r->view.rank;
	}
	return 0;
}

/* ---- where a piece belongs ---- */

const struct ck_lay_box *ck_lay_box_at(const struct ck_lay_load *ld,
				       const struct ck_lay_rule *r,
				       uint64_t rank, const uint64_t *at)
{
	for (size_t i = 0; i < r->nr_boxes; i++) {
		const struct ck_lay_box *b = &ld->doc.boxes.v[r->first_box + i];
		bool same = b->rank == CK_LAY_FREE || b->rank == rank;

		for (unsigned a = 0; a < ld->doc.mesh.nr && same; a++)
			same = b->at[a] == CK_LAY_FREE || b->at[a] == at[a];
		if (same)
			return b;
	}
	return NULL;
}

static const struct ck_lay_box *box_of(const struct whole *w,
				       const struct ck_lay_piece *p)
{
	if (p->box != CK_NONE)
		return &w->ld->doc.boxes.v[p->box];
	return ck_lay_box_at(w->ld, w->r, w->ld->insts.v[p->inst].rank,
			     w->ld->dims.v + p->at);
}

void ck_lay_place_box(const struct ck_lay_load *ld, const struct ck_lay_box *b,
		      struct ck_placed *out)
{
	const uint64_t *dims = ld->doc.dims.v;
	const uint64_t *full =
		dims + (b->stored.given ? b->stored : b->size).first;

	for (unsigned d = 0; d < b->size.rank; d++) {
		out->start[d] = dims[b->start.first + d];
		out->len[d] = dims[b->size.first + d];
		out->full[d] = full[d];
	}
	out->flat = b->flat.given;
	out->lo = b->flat.given ? dims[b->flat.first] : 0;
	out->hi = b->flat.given ? dims[b->flat.first + 1] : 0;
	out->stored = out->hi - CK_MIN(out->lo, out->hi);
}

static int place_by_box(struct whole *w, const struct ck_lay_piece *p,
			struct ck_placed *out, struct ck_err *why)
{
	const struct ck_lay_box *b = box_of(w, p);

	if (!b)
		return ck_fail(why, EINVAL,
			       "%s is in it, and none of its boxes is of this "
			       "file's place in the mesh",
			       key_of(w, p));
	if (b->size.rank != w->grid_rank)
		return ck_fail(why, EINVAL,
			       "expected boxes of %u dimensions, found %u",
			       w->grid_rank, b->size.rank);
	ck_lay_place_box(w->ld, b, out);
	return 0;
}

static int place_by_steps(struct whole *w, const struct ck_lay_piece *p,
			  struct ck_placed *out, struct ck_err *why)
{
	const struct ck_mesh_step *steps =
		w->ld->doc.steps.v + w->r->first_step;
	const uint64_t *at = w->ld->dims.v + p->at;

	for (size_t i = 0; i < w->r->nr_steps; i++)
		if (at[steps[i].axis[0]] == CK_LAY_FREE)
			return ck_fail(why, EINVAL,
				       "%s is cut by %s, and nothing says "
				       "which %s this is",
				       key_of(w, p), steps[i].axis_name,
				       steps[i].axis_name);
	return ck_mesh_place(steps, (unsigned)w->r->nr_steps, at, w->grid,
			     w->grid_rank, out, why);
}

/* ---- what is stored there ---- */

static bool is_dense(const struct whole *w, const struct ck_lay_piece *p)
{
	const uint64_t *shape = w->ld->dims.v + p->shape;
	const int64_t *stride;
	uint64_t dense = 1;

	if (p->stride == SIZE_MAX)
		return true;
	stride = (const int64_t *)(w->ld->dims.v + p->stride);
	for (unsigned d = p->rank; d-- > 0 && dense; dense *= shape[d])
		if (shape[d] > 1 && stride[d] != (int64_t)dense)
			return false;
	return true;
}

static int bad_shape(const struct whole *w, const struct ck_lay_piece *p,
		     const uint64_t *want, unsigned rank, struct ck_err *why)
{
	ck_auto_str struct ck_str a = { 0 }, b = { 0 };

	dims_text(&a, want, rank);
	dims_text(&b, w->ld->dims.v + p->shape, p->rank);
	if (a.failed || b.failed)
		return ck_fail(why, ENOMEM, "no memory");
	return ck_fail(why, EINVAL, "%s: expected shape %s, found %s",
		       key_of(w, p), a.v, b.v);
}

/*
 * The file's own shape is the one expected; or it is another one of as many
 * elements in a row, where the layout looks at them in its own way.
 */
static int check_shape(const struct whole *w, const struct ck_lay_piece *p,
		       struct fit *f, struct ck_err *why)
{
	const uint64_t *shape = w->ld->dims.v + p->shape;
	uint64_t volume, skip = 0;
	bool same = !f->place.flat && p->rank == w->grid_rank;
	bool stretch = false;

	for (unsigned d = 0; d < w->grid_rank && same; d++)
		same = shape[d] == f->place.full[d];
	if (p->box != CK_NONE) {
		skip = w->ld->doc.boxes.v[p->box].skip;
		stretch = w->ld->doc.boxes.v[p->box].of_key;
	}
	if (same && !skip) {
		if (p->stride != SIZE_MAX)
			f->part.stride =
				(const int64_t *)(w->ld->dims.v + p->stride);
		return 0;
	}
	if (!f->place.flat && !w->r->view.given && !stretch)
		return bad_shape(w, p, f->place.full, w->grid_rank, why);
	if (!is_dense(w, p))
		return ck_fail(why, EINVAL,
			       "%s: expected elements one after another, found "
			       "strides",
			       key_of(w, p));
	if (!ck_dims_volume(shape, p->rank, &volume) ||
	    !ck_range_ok(skip, f->elements, volume) ||
	    (p->box == CK_NONE && f->elements != volume))
		return ck_fail(why, EINVAL,
			       "%s: expected %" PRIu64
			       " elements, found %" PRIu64,
			       key_of(w, p), skip + f->elements, volume);
	return 0;
}

static int check_size(const struct whole *w, const struct ck_lay_piece *p,
		      const struct fit *f, struct ck_err *why)
{
	const struct ck_lay_inst *i = &w->ld->insts.v[p->inst];
	ck_auto_source struct ck_source *s = NULL;
	uint64_t bytes;
	int ret;

	if (!p->whole || i->missing)
		return 0;
	ret = ck_dir_open(w->ld->dir, i->path, &s, why);
	if (ret)
		return ret;
	if (!ck_mul_ok(f->elements, ck_dtype_info(w->dtype)->size, &bytes) ||
	    !ck_add_ok(bytes, p->off, &bytes) ||
	    (uint64_t)s->st.st_size == bytes)
		return 0;
	return ck_fail(why, EINVAL,
		       "expected %" PRIu64 " bytes, found %" PRIu64, bytes,
		       (uint64_t)s->st.st_size);
}

static int check_dtype(const struct whole *w, const struct ck_lay_piece *p,
		       struct ck_err *why)
{
	if (!p->dtype || p->dtype == w->dtype)
		return 0;
	return ck_fail(why, EINVAL, "%s: expected %s, found %s", key_of(w, p),
		       ck_dtype_info(w->dtype)->name,
		       ck_dtype_info(p->dtype)->name);
}

static int count_elements(const struct whole *w, struct fit *f,
			  struct ck_err *why)
{
	f->elements = f->place.stored;
	if (f->place.flat ||
	    ck_dims_volume(f->place.full, w->grid_rank, &f->elements))
		return 0;
	return ck_fail(why, EINVAL, "it is too large");
}

static void fill_part(const struct whole *w, const struct ck_lay_piece *p,
		      struct fit *f)
{
	f->flat[0] = f->place.lo;
	f->flat[1] = f->place.hi;
	f->part = (struct ck_part){
		.name = w->t->name.s,
		.name_len = w->t->name.len,
		.src = w->ld->insts.v[p->inst].src,
		.dtype = w->dtype,
		.xform = p->xform,
		.rank = w->rank,
		.shape = w->shape,
		.grid_rank = w->grid_rank,
		.grid = w->r->view.given ? w->grid : NULL,
		.start = f->place.start,
		.len = f->place.len,
		.full_len = f->place.flat ? NULL : f->place.full,
		.flat = f->place.flat ? f->flat : NULL,
		.off = p->off,
	};
}

/* What only boxes can say. */
static int apply_box(const struct whole *w, const struct ck_lay_piece *p,
		     struct fit *f, struct ck_err *err)
{
	const struct ck_lay_box *b;
	uint64_t skip = 0;
	const uint64_t *frame;

	if (p->box == CK_NONE)
		return 0;
	b = &w->ld->doc.boxes.v[p->box];
	if (b->strided)
		f->part.stride = w->ld->doc.strides.v + b->stride;
	f->part.stored = b->stored_dtype;
	if (!ck_mul_ok(b->skip, ck_dtype_info(w->dtype)->size, &skip) ||
	    !ck_add_ok(f->part.off, skip, &f->part.off))
		f->part.off = UINT64_MAX; /* the builder refuses it */
	if (!b->zstd.given)
		return 0;
	frame = w->ld->doc.dims.v + b->zstd.first;
	return ck_builder_codec(w->ld->b, f->part.src, CK_CODEC_ZSTD, frame[0],
				frame[1], &f->part.src, err);
}

/* -EINVAL: it does not fit, for the reason in @why. */
static int fit_piece(struct whole *w, const struct ck_lay_piece *p,
		     struct fit *f, struct ck_err *why)
{
	int ret = w->r->nr_boxes ? place_by_box(w, p, &f->place, why) :
				   place_by_steps(w, p, &f->place, why);

	if (!ret)
		ret = check_dtype(w, p, why);
	if (!ret)
		ret = count_elements(w, f, why);
	if (ret)
		return ret;
	fill_part(w, p, f);
	if (p->shape != SIZE_MAX)
		return check_shape(w, p, f, why);
	return check_size(w, p, f, why);
}

/* ---- all pieces ---- */

/* An axis on which pieces differ, and of which the layout says nothing. */
static int check_silent(struct whole *w, struct ck_err *err)
{
	const struct ck_lay_load *ld = w->ld;
	const struct ck_lay_piece *first = &ld->pieces.v[w->t->first];
	uint32_t told = w->r->said;
	int ret = 0;

	if (w->r->nr_boxes)
		return 0;
	for (uint32_t i = first->next; i != CK_NONE && !ret;
	     i = ld->pieces.v[i].next) {
		const uint64_t *a = ld->dims.v + first->at;
		const uint64_t *b = ld->dims.v + ld->pieces.v[i].at;

		for (unsigned x = 0; x < ld->doc.mesh.nr && !ret; x++) {
			const char *name = ld->doc.mesh.axis[x].name;

			if (told & 1u << x || a[x] == b[x])
				continue;
			told |= 1u << x;
			ret = ck_lay_wrong(
				w->ld, w->t, ld->pieces.v[i].inst, err,
				"it is in %s too, and \"placement\" does not "
				"say what %s does to it (shard, flat or "
				"replicate)",
				ld->insts.v[first->inst].path, name);
		}
	}
	return ret;
}

/* Two files that give the same place without being copies by the layout. */
static int check_all(struct whole *w, struct ck_err *err)
{
	struct ck_lay_load *ld = w->ld;
	int ret = check_silent(w, err);

	for (uint32_t i = w->t->first; i != CK_NONE && !ret;
	     i = ld->pieces.v[i].next) {
		struct ck_err why = { 0 };
		struct fit f;

		ret = fit_piece(w, &ld->pieces.v[i], &f, &why);
		if (ret == -EINVAL)
			ret = ck_lay_wrong(ld, w->t, ld->pieces.v[i].inst, err,
					   "%s", why.msg);
		else if (ret)
			ret = ck_fail(err, -ret, "%s", why.msg);
	}
	return ret;
}

static int give_all(struct whole *w, struct ck_err *err)
{
	struct ck_lay_load *ld = w->ld;
	uint32_t tree = 0;
	struct fit f = { 0 };
	int ret = 0;

	if (w->r->tree)
		ret = ck_builder_tree(ld->b, w->r->tree, strlen(w->r->tree),
				      &tree, err);
	for (uint32_t i = w->t->first; i != CK_NONE && !ret;
	     i = ld->pieces.v[i].next) {
		struct ck_err why;

		ret = fit_piece(w, &ld->pieces.v[i], &f, &why);
		if (ret)
			return ck_fail(err, -ret, "%s", why.msg);
		f.part.tree = tree;
		ret = apply_box(w, &ld->pieces.v[i], &f, err);
		if (!ret)
			ret = ck_builder_add(ld->b, &f.part, err);
	}
	return ret ? ret : ck_lay_settle_missing(ld, w->t, &f.part, err);
}

int ck_lay_settle(struct ck_lay_load *ld, struct ck_lay_tensor *t,
		  struct ck_err *err)
{
	struct whole w = { .ld = ld, .t = t, .r = &ld->doc.rules.v[t->rule] };
	int ret;

	if (!t->nr)
		return 0; /* it was refused before it had any */
	ret = find_dtype(&w, err);
	if (!ret && !t->refused)
		ret = find_shape(&w, err);
	if (!ret && w.dtype && w.grid)
		ret = check_all(&w, err);
	if (ret || t->refused)
		return ret;
	return give_all(&w, err);
}
