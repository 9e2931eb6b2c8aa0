/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder_copies.c - whether the small replicas of a tensor agree
 *
 * A ring of replicas says that its members are the same elements; whether they
 * are the same bytes only the files can tell.  What cannot be read, is deferred
 * or is stored another way than the first of its ring is not compared here.
 */
#include "core/catalog/builder_priv.h"

#include <stdlib.h>

#define MAX_ONE (UINT64_C(1) << 20) /* elements of a replica, in bytes */
#define MAX_SPAN (UINT64_C(4) << 20) /* and what they are spread over */
#define MAX_ALL (UINT64_C(64) << 20) /* read for all tensors together */
#define SAMPLE UINT64_C(4096) /* three of what is larger: begin, middle, end */

/* Where the elements of a replica are, in its file. */
struct spread {
	uint32_t src;
	unsigned rank;
	uint8_t elem;
	bool dense;
	const uint64_t *len;
	const int64_t *stride;
	uint64_t volume, off, span;
	int64_t lo; /* of the span, relative to element 0 */
};

struct ring {
	const struct ck_cells *c;
	uint32_t first;
	bool unlabelled;
	bool some; /* of the bytes are compared */
};

static bool is_plain(const struct ck_cells *c, const struct ck_chunk *x)
{
	return x->state == CK_OK && x->op == CK_OP_SET &&
	       c->b->srcs.v[x->src].kind == CK_SRC_FILE &&
	       !(c->img.layouts[x->layout].flags & CK_LAYOUT_DEFERRED);
}

/* Over all that lies between the first and the last; false: too far apart. */
static bool stretch(struct spread *s)
{
	int64_t hi;

	if (!ck_stride_extent(s->len, s->stride, s->rank, s->elem, &s->lo, &hi))
		return false;
	s->off += (uint64_t)s->lo;
	s->span = (uint64_t)(hi - s->lo);
	return true;
}

/* False: too large, or nothing to compare. */
static bool find_spread(const struct ring *r, const struct ck_chunk *x,
			struct spread *s)
{
	const struct ck_cells *c = r->c;
	struct ck_chunk_at at;

	ck_chunk_at(&c->img, NULL, c->rank, x, &at);
	*s = (struct spread){ .src = x->src,
			      .rank = c->rank,
			      .elem = c->elem,
			      .len = at.len,
			      .stride = at.stride,
			      .volume = at.hi - at.lo,
			      .off = x->off,
			      .span = at.bytes,
			      .dense = true };
	if (!s->volume || (!r->some && s->volume > MAX_ONE / c->elem))
		return false;
	if (!at.stride)
		return true;
	s->dense = false;
	if (!stretch(s))
		return false;
	/* elements in another order, and nothing between them */
	s->dense = r->some && s->span == s->volume * c->elem;
	return r->some ? s->dense : s->span <= MAX_SPAN;
}

/* The elements at @from, strided, one after another to @to. */
static void gather(const struct spread *s, const unsigned char *from,
		   unsigned char *to)
{
	uint64_t at[CK_MAX_RANK] = { 0 };
	int64_t off = -s->lo;

	for (uint64_t i = 0; i < s->volume; i++) {
		unsigned d = s->rank;

		memcpy(to + i * s->elem, from + off, s->elem);
		while (d-- > 0) {
			off += s->stride[d] * s->elem;
			if (++at[d] < s->len[d])
				break;
			off -= (int64_t)s->len[d] * s->stride[d] * s->elem;
			at[d] = 0;
		}
	}
}

/* As many bytes as are read. */
static uint64_t nr_bytes(const struct ring *r, const struct spread *s)
{
	uint64_t all = s->volume * r->c->elem;

	return r->some ? CK_MIN(all, 3 * SAMPLE) : all;
}

/* Bytes of a source; -EIO: it has not so many, or they cannot be had. */
static int read_src(struct ck_builder *b, uint32_t src, unsigned char *to,
		    uint64_t len, uint64_t off, struct ck_err *err)
{
	const struct ck_src *from = &b->srcs.v[src];

	if (from->kind == CK_SRC_MEM && ck_range_ok(off, len, from->len)) {
		memcpy(to, b->blob.v + from->off + off, len);
		return 0;
	}
	return from->kind == CK_SRC_FILE && b->reads.read ?
		       b->reads.read(b->reads.ctx, ck_builder_src_name(b, src),
				     to, len, off, err) :
		       -EIO;
}

static int read_some(const struct ring *r, const struct spread *s,
		     unsigned char *to, struct ck_err *err)
{
	uint64_t at[3] = { 0, s->span / 2, s->span - SAMPLE };
	int ret = 0;

	if (s->span <= 3 * SAMPLE)
		return read_src(r->c->b, s->src, to, s->span, s->off, err);
	for (size_t i = 0; i < 3 && !ret; i++)
		ret = read_src(r->c->b, s->src, to + i * SAMPLE, SAMPLE,
			       s->off + at[i], err);
	return ret;
}

/* All of it into @to, of MAX_ONE; -EIO: not to be compared. */
static int read_all(struct ck_builder *b, const struct spread *s,
		    unsigned char *to, struct ck_err *err)
{
	ck_auto_free unsigned char *all = NULL;
	int ret;

	if (b->reads.spent + s->span > MAX_ALL)
		return -EIO;
	b->reads.spent += s->span;
	if (s->dense)
		return read_src(b, s->src, to, s->span, s->off, err);
	all = malloc(s->span);
	if (!all)
		return -ENOMEM;
	ret = read_src(b, s->src, all, s->span, s->off, err);
	if (!ret)
		gather(s, all, to);
	return ret;
}

static bool are_stored_alike(const struct ring *r, const struct ck_chunk *x,
			     const struct ck_chunk *y)
{
	const struct ck_layout *lx = &r->c->img.layouts[x->layout];
	const struct ck_layout *ly = &r->c->img.layouts[y->layout];

	return lx->dtype == ly->dtype && lx->xform == ly->xform &&
	       (!r->some || x->layout == y->layout);
}

static int differ(const struct ring *r, const struct ck_chunk *x,
		  const struct ck_chunk *y, struct ck_err *why)
{
	const char *a = ck_builder_src_name(r->c->b, x->src);
	const char *b = ck_builder_src_name(r->c->b, y->src);

	if (x->src == y->src)
		return ck_fail(why, EINVAL,
			       r->unlabelled ? "%s holds two that differ" :
					       "its copies in %s differ "
					       "(unshard heal)",
			       a);
	return ck_fail(why, EINVAL,
		       r->unlabelled ?
			       "%s and %s hold different ones, and nothing "
			       "says which part of it each has: "
			       "-o layout=FILE does" :
			       "its copies in %s and %s differ "
			       "(unshard heal)",
		       a, b);
}

/* All of one ring against its first that can be read. */
static int compare_ring(const struct ring *r, unsigned char *buf,
			struct ck_err *why)
{
	const struct ck_cells *c = r->c;
	const struct ck_chunk *held = NULL;
	struct ck_err local;

	for (uint32_t at = r->first; at != CK_NONE; at = c->part.v[at].next) {
		const struct ck_chunk *x = &c->part.v[at];
		unsigned char *to;
		struct spread s;
		int ret;

		if (!is_plain(c, x) || !find_spread(r, x, &s) ||
		    (held && !are_stored_alike(r, held, x)))
			continue;
		to = held ? buf + MAX_ONE : buf;
		ret = r->some ? read_some(r, &s, to, &local) :
				read_all(c->b, &s, to, &local);
		if (ret == -ENOMEM)
			return ck_no_memory(why);
		if (ret)
			continue;
		if (held && memcmp(buf, buf + MAX_ONE, nr_bytes(r, &s)) != 0)
			return differ(r, held, x, why);
		held = held ? held : x;
	}
	return 0;
}

/* False: it is not to be compared. */
static bool find_ring(const struct ck_cells *c, uint32_t cell, struct ring *r)
{
	uint64_t size, nr = 0;

	*r = (struct ring){ .c = c, .first = c->cell.v[cell] };
	for (uint32_t at = r->first; at != CK_NONE; at = c->part.v[at].next) {
		r->unlabelled |= c->part.v[at].pad[0] & CK_PART_UNLABELLED;
		nr++;
	}
	size = ck_chunk_volume(&c->img, &c->part.v[r->first], c->rank) *
	       c->elem;
	r->some = r->unlabelled &&
		  (size > MAX_ONE || c->b->reads.spent + nr * size > MAX_ALL);
	return nr > 1 && (r->unlabelled || c->b->reads.copies);
}

int ck_cells_copies(const struct ck_cells *c, struct ck_err *why)
{
	ck_auto_free unsigned char *buf = NULL;
	int ret = 0;

	if (!c->b->reads.read || c->part.nr == c->cell.nr)
		return 0;
	buf = malloc(2 * MAX_ONE);
	if (!buf)
		return ck_no_memory(why);
	for (uint32_t i = 0; i < c->cell.nr && !ret; i++) {
		struct ring r;

		if (find_ring(c, i, &r))
			ret = compare_ring(&r, buf, why);
	}
	return ret;
}

/* ---- copies that a reader asks about ---- */

/* False: too large, or nothing to compare. */
static bool spread_of(const struct ck_part *p, int64_t *dense, struct spread *s)
{
	*s = (struct spread){ .src = p->src,
			      .rank = p->rank,
			      .elem = ck_dtype_info(p->dtype)->size,
			      .len = p->shape,
			      .stride = dense,
			      .off = p->off };
	if (!ck_dims_volume(p->shape, p->rank, &s->volume) || !s->volume ||
	    !s->elem || s->volume > MAX_ONE / s->elem ||
	    !ck_dims_strides(p->shape, p->rank, dense))
		return false;
	if (p->stride)
		s->stride = p->stride;
	if (!stretch(s))
		return false;
	s->dense = s->span == s->volume * s->elem;
	return s->span <= MAX_SPAN;
}

static bool same_form(const struct ck_part *x, const struct ck_part *y)
{
	size_t n = x->rank * sizeof(*x->shape);

	return x->dtype == y->dtype && x->xform == y->xform &&
	       x->rank == y->rank && !x->stride == !y->stride &&
	       (!n || (!memcmp(x->shape, y->shape, n) &&
		       (!x->stride || !memcmp(x->stride, y->stride, n))));
}

/* Most have copies of one piece only, whose bytes are kept. */
static int hold(struct ck_builder *b, const struct spread *s,
		struct ck_err *err)
{
	struct ck_last_copy *h = &b->last_copy;
	int ret;

	if (h->len && h->src == s->src && h->off == s->off &&
	    h->len == s->volume * s->elem)
		return 0;
	h->len = 0;
	ret = read_all(b, s, h->bytes, err);
	if (ret)
		return ret;
	h->src = s->src;
	h->off = s->off;
	h->len = s->dense ? s->volume * s->elem : 0;
	return 0;
}

int ck_builder_same(struct ck_builder *b, const struct ck_part *x,
		    const struct ck_part *y, uint64_t *differ,
		    struct ck_err *err)
{
	int64_t dense[CK_MAX_RANK];
	struct spread sx, sy;
	struct ck_err local;
	uint64_t len, i = 0;
	int ret;

	*differ = UINT64_MAX;
	if (!same_form(x, y) || !spread_of(x, dense, &sx) ||
	    !spread_of(y, dense, &sy))
		return 0;
	if (!b->last_copy.bytes)
		b->last_copy.bytes = malloc(2 * MAX_ONE);
	if (!b->last_copy.bytes)
		return ck_no_memory(err);
	ret = hold(b, &sx, &local);
	if (!ret)
		ret = read_all(b, &sy, b->last_copy.bytes + MAX_ONE, &local);
	if (ret)
		return ret == -ENOMEM ? ck_no_memory(err) : 0;
	len = sx.volume * sx.elem;
	while (i < len &&
	       b->last_copy.bytes[i] == b->last_copy.bytes[MAX_ONE + i])
		i++;
	if (i < len)
		*differ = i;
	return 1;
}

void ck_builder_compared(struct ck_builder *b)
{
	b->reads.copies = false;
}

void ck_builder_compare(struct ck_builder *b,
			const struct ck_builder_reads *reads)
{
	b->reads = *reads;
}
