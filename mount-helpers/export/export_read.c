/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_read.c - the bytes of a view's files, in the order of their sources
 *
 * Pieces are taken by where the first tensor in them is stored, several
 * at once: their spans that are bytes of tensors are one load, which sorts them
 * by source and offset and reads each stored byte once.  What the view makes or
 * casts comes from ck_view_read(), and so does all of a load that failed: it
 * knows which byte of which file it was.
 */
#include "mount-helpers/export/export.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"
#include "core/geom/range.h"
#include "core/load/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the order ---- */

struct key {
	uint32_t src;
	uint64_t off, piece;
};

static int by_place(const void *pa, const void *pb)
{
	const struct key *a = pa, *b = pb;

	if (a->src != b->src)
		return a->src < b->src ? -1 : 1;
	return ck_order2(a->off, b->off, a->piece, b->piece);
}

/*
 * By the tensor's first part: ranks that save a tensor each in parts have written
 * these at about the same place of their files, which are read side by side.
 */
static void place_of(const struct ck_view *v, uint32_t tensor, struct key *key)
{
	const struct ck_tensor *t = &v->img->tensors[tensor];

	if (!t->nr)
		return;
	key->src = v->img->chunks[t->first].src;
	key->off = v->img->chunks[t->first].off;
}

static void find_place(const struct export *x, const struct export_file *f,
		       uint64_t off, struct key *key)
{
	uint64_t end = CK_MIN(f->size, off + EXPORT_PIECE);
	struct ck_span span;

	for (; off < end; off += CK_MAX(span.len, (uint64_t)1)) {
		x->view->ops->at(x->view, f->nr, off, &span);
		if (span.kind == CK_SPAN_MADE || span.kind == CK_SPAN_ZEROS)
			continue;
		place_of(x->view,
			 span.kind == CK_SPAN_TURNED ?
				 span.turned->turn.run->ref :
				 span.ref,
			 key);
		return;
	}
}

int export_order(struct export *x, struct ck_err *err)
{
	ck_auto_free struct key *key = calloc(x->pieces + 1, sizeof(*key));
	uint64_t nr = 0;

	x->order = calloc(x->pieces + 1, sizeof(*x->order));
	if (!key || !x->order)
		return ck_no_memory(err);
	for (size_t i = 0; i < x->file.nr; i++) {
		const struct export_file *f = &x->file.v[i];
		uint64_t off = 0;

		do {
			key[nr] = (struct key){ .piece = nr };
			find_place(x, f, off, &key[nr++]);
			off += EXPORT_PIECE;
		} while (off < f->size);
	}
	qsort(key, nr, sizeof(*key), by_place);
	for (uint64_t i = 0; i < nr; i++)
		x->order[i] = key[i].piece;
	return 0;
}

/* ---- the bytes ---- */

struct box_item {
	uint32_t tensor;
	unsigned char *to;
	size_t start; /* in dims; its lengths follow */
};

struct boxes {
	CK_VEC(struct box_item) v;
	CK_VEC(uint64_t) dims;
};

/* Elements [lo, hi) of the box of @span, or of all of its tensor. */
static bool add_boxes(struct boxes *all, const struct ck_view *v,
		      const struct ck_span *span, uint64_t lo, uint64_t hi,
		      unsigned char *to)
{
	const struct ck_tensor *t = &v->img->tensors[span->ref];
	uint8_t elem = ck_dtype_info(t->dtype)->size;
	bool part = span->kind == CK_SPAN_BOX;
	struct ck_range range;
	struct ck_box box;

	ck_range_init(&range, part ? span->box.len : v->img->dims + t->shape,
		      t->rank, lo, hi);
	while (ck_range_next(&range, &box)) {
		struct box_item *item = ck_vec_push(&all->v);
		uint64_t *dims;

		if (!item || !ck_vec_reserve(&all->dims, 2 * t->rank + 1u))
			return false;
		*item = (struct box_item){ span->ref, to, all->dims.nr };
		dims = all->dims.v + all->dims.nr;
		for (unsigned d = 0; d < t->rank; d++) {
			dims[d] =
				box.start[d] + (part ? span->box.start[d] : 0);
			dims[t->rank + d] = box.len[d];
		}
		all->dims.nr += 2 * t->rank;
		to += ck_box_volume(&box) * elem;
	}
	return true;
}

/* What of @len bytes of @span are whole elements; the rest is read here. */
static int add_span(struct boxes *all, struct export *x,
		    const struct export_piece *p, const struct ck_span *span,
		    uint64_t at, uint64_t len, struct ck_err *err)
{
	bool is_plain =
		span->kind == CK_SPAN_TENSOR || span->kind == CK_SPAN_BOX;
	uint8_t dtype = is_plain ? x->view->img->tensors[span->ref].dtype : 0;
	uint64_t elem = is_plain ? ck_dtype_info(dtype)->size : 0;
	uint64_t lo = elem ? CK_DIV_UP(span->off, elem) : 0;
	uint64_t hi = elem ? (span->off + len) / elem : 0;
	uint64_t head = lo * elem - span->off, tail;
	unsigned char *to = p->buf + at;
	int ret;

	if (!elem || lo >= hi)
		return ck_view_read(x->view, p->file->nr, to, len, p->off + at,
				    err);
	tail = span->off + len - hi * elem;
	if (!add_boxes(all, x->view, span, lo, hi, to + head))
		return ck_no_memory(err);
	ret = ck_view_read(x->view, p->file->nr, to, head, p->off + at, err);
	return ret ? ret :
		     ck_view_read(x->view, p->file->nr, to + len - tail, tail,
				  p->off + at + len - tail, err);
}

static int add_piece(struct boxes *all, struct export *x,
		     const struct export_piece *p, struct ck_err *err)
{
	struct ck_span span;
	uint64_t n;
	int ret = 0;

	for (uint64_t at = 0; at < p->len && !ret; at += n) {
		x->view->ops->at(x->view, p->file->nr, p->off + at, &span);
		n = CK_MIN(p->len - at, span.len);
		ret = n ? add_span(all, x, p, &span, at, n, err) :
			  ck_view_read(x->view, p->file->nr, p->buf + at, 1,
				       p->off + at, err);
		n = CK_MAX(n, (uint64_t)1);
	}
	return ret;
}

static int load(struct export *x, const struct boxes *all, struct ck_err *err)
{
	ck_auto_free struct ck_load_item *item =
		calloc(all->v.nr + 1, sizeof(*item));
	const struct ck_load_in in = { .reader = ck_ckpt_reader(x->view->ck),
				       .item = item,
				       .nr = all->v.nr,
				       .no_prefault = true };
	struct ck_load *load;
	int ret;

	if (!item)
		return ck_no_memory(err);
	for (size_t i = 0; i < all->v.nr; i++) {
		const struct box_item *b = &all->v.v[i];
		uint8_t rank = x->view->img->tensors[b->tensor].rank;
		const uint64_t *start = all->dims.v + b->start;

		item[i] = (struct ck_load_item){ .tensor = b->tensor,
						 .start = start,
						 .len = start + rank,
						 .mem = b->to };
	}
	ret = ck_load_start(&load, x->pool, &in, NULL, err);
	if (ret)
		return ret;
	ret = ck_load_wait(load, -1, NULL, err);
	ck_load_free(load);
	return ret;
}

int export_read(struct export *x, const struct export_piece *p, size_t nr,
		struct ck_err *err)
{
	struct boxes all = { 0 };
	int ret = 0;

	for (size_t i = 0; i < nr && !ret; i++)
		ret = add_piece(&all, x, &p[i], err);
	if (!ret && all.v.nr && load(x, &all, err))
		for (size_t i = 0; i < nr && !ret; i++)
			ret = ck_view_read(x->view, p[i].file->nr, p[i].buf,
					   p[i].len, p[i].off, err);
	free(all.v.v);
	free(all.dims.v);
	return ret;
}
