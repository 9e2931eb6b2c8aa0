/* SPDX-License-Identifier: Apache-2.0 */
/*
 * segment.c - a box of elements of one chunk as one n-dimensional copy
 *
 * Two strides an axis, one in the source and one in the buffer; axes that
 * continue each other in both are one axis, and the innermost ones a run.
 * Arithmetic is modulo 2^64: source strides are signed.
 */
#include "core/geom/cursor_priv.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <string.h>

/* Where element 0 of a chunk's box is, and the strides from there. */
struct placed {
	uint64_t off;
	const int64_t *stride; /* elements; NULL: row-major */
};

static void set_error(struct ck_seg *seg, int err)
{
	seg->kind = CK_SEG_ERROR;
	seg->err = err;
}

static void place_deferred(const struct ck_cursor *cur, struct ck_seg *seg,
			   struct placed *at)
{
	struct ck_place known = { 0 };
	enum ck_resolved_state state = CK_RESOLVED_UNKNOWN;

	if (cur->resolved && cur->resolves)
		state = ck_resolved_find(cur->resolved, seg->chunk, &known,
					 cur->why);
	else if (cur->resolved)
		state = ck_resolved_get(cur->resolved, seg->chunk, &known);
	if (state == CK_RESOLVED_UNKNOWN)
		seg->kind = CK_SEG_UNRESOLVED;
	if (state == CK_RESOLVED_BAD)
		set_error(seg, known.err ? known.err : EIO);
	at->off = known.off;
	at->stride = known.stride;
	if (known.xform)
		seg->xform = known.xform;
}

/* Fills what does not depend on the box. */
static void place_chunk(const struct ck_cursor *cur, struct ck_seg *seg,
			struct placed *at)
{
	const struct ck_catalog *img = cur->img;
	const struct ck_chunk *c = &img->chunks[seg->chunk];
	const struct ck_layout *l = &img->layouts[c->layout];

	seg->kind = CK_SEG_COPY;
	seg->op = c->op;
	seg->xform = l->xform;
	seg->elem = cur->elem;
	seg->err = 0;
	at->off = c->off;
	at->stride = l->stride == CK_NONE ?
			     NULL :
			     (const int64_t *)(img->dims + l->stride);
	if (l->flags & CK_LAYOUT_DEFERRED)
		place_deferred(cur, seg, at);
	if (l->flags & CK_LAYOUT_FLAT) {
		at->stride = NULL;
		at->off -= img->dims[c->corner + cur->t->grid_rank] * cur->elem;
	}
	if (c->state == CK_MISSING || img->srcs[c->src].kind == CK_SRC_ABSENT)
		set_error(seg, EIO);
}

struct axes {
	uint64_t run;
	unsigned nr;
	struct ck_seg_axis *ax; /* innermost first */
};

static void add_axis(struct axes *a, uint64_t n, uint64_t src, uint64_t dst)
{
	struct ck_seg_axis *in = a->ax + a->nr - 1;

	if (a->nr == 0 && src == a->run && dst == a->run) {
		a->run *= n;
	} else if (a->nr > 0 && in->n * (uint64_t)in->src == src &&
		   in->n * (uint64_t)in->dst == dst) {
		in->n *= n;
	} else {
		a->ax[a->nr++] =
			(struct ck_seg_axis){ n, (int64_t)src, (int64_t)dst };
	}
}

static void add_axes(const struct ck_cursor *cur, const struct ck_box *sub,
		     const struct placed *at, struct ck_seg *seg,
		     struct axes *a)
{
	const struct ck_chunk *c = &cur->img->chunks[seg->chunk];
	const uint64_t *corner = cur->img->dims + c->corner;
	const uint64_t *len = cur->img->dims + cur->img->layouts[c->layout].len;
	uint64_t row = cur->elem; /* the stride if row-major */

	seg->src_off = at->off;
	seg->dst = cur->dst;
	for (unsigned d = sub->rank; d-- > 0;) {
		uint64_t dst = cur->step[d], src = row;

		if (at->stride)
			src = (uint64_t)at->stride[d] * cur->elem;
		row *= len[d];
		seg->src_off += (sub->start[d] - corner[d]) * src;
		seg->dst += (sub->start[d] - cur->walk.want.start[d]) * dst;
		if (sub->len[d] > 1)
			add_axis(a, sub->len[d],
				 seg->kind == CK_SEG_COPY ? src : dst, dst);
	}
}

/* Whether all of @seg lies in what is there of its source. */
static bool in_source(const struct ck_cursor *cur, const struct ck_seg *seg,
		      const struct axes *a)
{
	const struct ck_chunk *c = &cur->img->chunks[seg->chunk];
	const struct ck_src *src = &cur->img->srcs[c->src];
	uint64_t first = seg->src_off, end = seg->src_off + a->run;

	if (src->kind == CK_SRC_CODEC) /* its length is the encoded one */
		return false;
	for (unsigned i = 0; i < a->nr; i++) {
		uint64_t span = (a->ax[i].n - 1) * (uint64_t)a->ax[i].src;

		if (a->ax[i].src < 0)
			first += span;
		else
			end += span;
	}
	return first <= end && end <= src->len;
}

static void set_axes(struct ck_cursor *cur, struct ck_seg *seg,
		     const struct axes *a)
{
	unsigned nr = CK_MIN(a->nr, CK_SEG_AXES);

	seg->run = a->run;
	seg->nbytes = a->run;
	seg->nax = (uint8_t)nr;
	for (unsigned i = 0; i < nr; i++) {
		seg->ax[nr - 1 - i] = a->ax[i];
		seg->nbytes *= a->ax[i].n;
	}
	cur->unroll = (uint8_t)(a->nr - nr);
	if (!cur->unroll)
		return;
	memset(cur->at, 0, cur->unroll * sizeof(cur->at[0]));
	cur->first = *seg;
}

static void set_edge(const struct ck_cursor *cur, struct ck_seg *seg,
		     struct axes *a)
{
	if (a->nr || a->run != cur->elem) /* a part of one element only */
		set_error(seg, EINVAL);
	a->run = cur->cut;
	seg->src_off += cur->skip;
	seg->dst += cur->skip;
	if (seg->xform != CK_XF_NONE || seg->op != CK_OP_SET)
		seg->skip = cur->skip;
}

static void make_from(struct ck_cursor *cur, uint32_t chunk,
		      const struct ck_box *sub, struct ck_seg *seg)
{
	struct axes a = { .run = cur->elem, .ax = cur->ax };
	struct placed at;

	seg->chunk = chunk;
	seg->skip = 0;
	place_chunk(cur, seg, &at);
	add_axes(cur, sub, &at, seg, &a);
	if (cur->cut)
		set_edge(cur, seg, &a);
	if (seg->kind == CK_SEG_COPY &&
	    cur->img->chunks[chunk].state == CK_TORN &&
	    !in_source(cur, seg, &a))
		set_error(seg, EIO);
	set_axes(cur, seg, &a);
}

void ck_segment_make(struct ck_cursor *cur, const struct ck_box *sub,
		     struct ck_seg *seg)
{
	uint32_t chunk = cur->cell;

	if (cur->only != CK_NONE) {
		make_from(cur, cur->only, sub, seg);
		return;
	}
	for (; chunk != CK_NONE;
	     chunk = ck_ring_next(cur->img, cur->cell, chunk)) {
		make_from(cur, chunk, sub, seg);
		if (seg->kind != CK_SEG_ERROR)
			return;
	}
	if (seg->chunk != cur->cell)
		make_from(cur, cur->cell, sub, seg);
}

bool ck_segment_more(struct ck_cursor *cur, struct ck_seg *seg)
{
	const struct ck_seg_axis *outer = cur->ax + CK_SEG_AXES;
	unsigned i = 0;

	while (i < cur->unroll && ++cur->at[i] == outer[i].n)
		cur->at[i++] = 0;
	if (i == cur->unroll) {
		cur->unroll = 0;
		return false;
	}
	*seg = cur->first;
	for (i = 0; i < cur->unroll; i++) {
		seg->src_off += cur->at[i] * (uint64_t)outer[i].src;
		seg->dst += cur->at[i] * (uint64_t)outer[i].dst;
	}
	return true;
}

/* Whole elements, or bytes to which elements mean nothing. */
static bool divisible(const struct ck_seg *seg)
{
	return (seg->xform == CK_XF_NONE && seg->op == CK_OP_SET) ||
	       (seg->skip == 0 && seg->run % seg->elem == 0);
}

bool ck_segment_join(struct ck_seg *seg, const struct ck_seg *next)
{
	if (seg->nax || next->nax || seg->chunk != next->chunk ||
	    seg->kind != next->kind || seg->err != next->err ||
	    seg->dst + seg->run != next->dst)
		return false;
	if (seg->kind == CK_SEG_COPY &&
	    seg->src_off + seg->run != next->src_off)
		return false;
	if (!divisible(seg) || !divisible(next))
		return false;
	seg->run += next->run;
	seg->nbytes += next->nbytes;
	return true;
}
