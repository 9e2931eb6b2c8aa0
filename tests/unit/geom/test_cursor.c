/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cursor against a table of addresses that was filled element by element
 * (random_tensor.c).  By default about 12,000 requests; the nightly million:
 *
 *	UNSHARD_NIGHTLY=1 build/unit --filter 'cursor/random_*' --timeout 3000
 */
#include "core/base/check.h"
#include "core/geom/cursor.h"
#include "tests/unit/geom/random_tensor.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A request, and which byte of the tensor goes to which of the buffer. */
struct request {
	uint64_t len; /* bytes of the buffer */
	uint64_t pos; /* a range: the byte of the tensor at buffer byte 0 */
	uint64_t *elems; /* a box: the element at each place; else NULL */
	uint8_t *seen; /* of each byte of the buffer */
};

static uint64_t tensor_byte(const struct rt *r, const struct request *q,
			    uint64_t dst)
{
	dst += q->pos;
	if (!q->elems)
		return dst;
	return q->elems[dst / r->elem] * r->elem + dst % r->elem;
}

/* Calls @each with every byte of @seg: from @src to @dst. */
typedef void (*each_fn)(struct rt *r, struct request *q,
			const struct ck_seg *seg, uint64_t src, uint64_t dst);

static void each_byte(struct rt *r, struct request *q, const struct ck_seg *seg,
		      each_fn each)
{
	uint64_t runs = 1;

	for (unsigned i = 0; i < seg->nax; i++)
		runs *= seg->ax[i].n;
	cr_assert_eq(seg->nbytes, runs * seg->run);
	cr_assert_gt(seg->nbytes, 0);
	for (uint64_t n = 0; n < runs; n++) {
		uint64_t left = n, src = seg->src_off, dst = seg->dst;

		for (unsigned i = seg->nax; i-- > 0;) {
			uint64_t at = left % seg->ax[i].n;

			left /= seg->ax[i].n;
			src += at * (uint64_t)seg->ax[i].src;
			dst += at * (uint64_t)seg->ax[i].dst;
		}
		for (uint64_t b = 0; b < seg->run; b++)
			each(r, q, seg, src + b, dst + b);
	}
}

static uint64_t address(const struct rt *r, uint32_t chunk, uint64_t byte)
{
	uint64_t at = r->c[chunk].addr[byte / r->elem];

	return at == RT_NOWHERE ? at : at + byte % r->elem;
}

static void check_byte(struct rt *r, struct request *q,
		       const struct ck_seg *seg, uint64_t src, uint64_t dst)
{
	uint64_t byte;

	cr_assert_lt(dst, q->len);
	cr_assert_not(q->seen[dst], "byte %lu twice", dst);
	q->seen[dst] = 1;
	byte = tensor_byte(r, q, dst);
	cr_assert_neq(address(r, seg->chunk, byte), RT_NOWHERE);
	if (seg->kind != CK_SEG_COPY)
		return;
	cr_assert_eq(src, address(r, seg->chunk, byte));
	cr_assert_lt(src, r->img.srcs[r->img.chunks[seg->chunk].src].len);
}

static bool beyond; /* some byte of the segment is not in the chunk's file */
static uint32_t beyond_chunk;

static void check_beyond(struct rt *r, struct request *q,
			 const struct ck_seg *seg, uint64_t src, uint64_t dst)
{
	uint64_t at = address(r, beyond_chunk, tensor_byte(r, q, dst));

	(void)seg, (void)src;
	cr_assert_neq(at, RT_NOWHERE);
	beyond |= at >= r->img.srcs[r->img.chunks[beyond_chunk].src].len;
}

/* What @chunk gives for the elements of @seg, by the states alone. */
static enum ck_seg_kind expected(struct rt *r, struct request *q,
				 const struct ck_seg *seg, uint32_t chunk,
				 int *err)
{
	const struct rt_chunk *c = &r->c[chunk];
	struct ck_place known;
	enum ck_resolved_state resolved =
		ck_resolved_get(r->resolved, chunk, &known);

	*err = EIO;
	if (r->img.chunks[chunk].state == CK_MISSING)
		return CK_SEG_ERROR;
	if (c->deferred && resolved == CK_RESOLVED_UNKNOWN)
		return CK_SEG_UNRESOLVED;
	if (c->deferred && resolved == CK_RESOLVED_BAD) {
		*err = EBADMSG;
		return CK_SEG_ERROR;
	}
	beyond = false;
	beyond_chunk = chunk;
	if (r->img.chunks[chunk].state == CK_TORN)
		each_byte(r, q, seg, check_beyond);
	return beyond ? CK_SEG_ERROR : CK_SEG_COPY;
}

static void check_transform(const struct rt *r, const struct request *q,
			    const struct ck_seg *seg)
{
	const struct ck_chunk *c = &r->img.chunks[seg->chunk];
	const struct rt_chunk *known = &r->c[seg->chunk];
	uint8_t xform = r->img.layouts[c->layout].xform;

	if (known->deferred && known->place.xform)
		xform = known->place.xform;
	cr_assert_eq(seg->xform, xform);
	cr_assert_eq(seg->op, c->op);
	if (xform != CK_XF_NONE || c->op != CK_OP_SET)
		cr_assert_eq(seg->skip, tensor_byte(r, q, seg->dst) % r->elem);
}

static void check_kind(struct rt *r, struct request *q,
		       const struct ck_seg *seg)
{
	uint32_t cell = r->c[seg->chunk].cell, chunk = cell, left = r->nr_all;
	int err;

	for (; chunk != seg->chunk; chunk = r->img.chunks[chunk].next) {
		cr_assert_gt(left--, 0);
		cr_assert_eq(expected(r, q, seg, chunk, &err), CK_SEG_ERROR,
			     "an earlier one of the ring was good");
	}
	cr_assert_eq(seg->kind, expected(r, q, seg, chunk, &err));
	if (seg->kind == CK_SEG_COPY)
		check_transform(r, q, seg);
	if (seg->kind != CK_SEG_ERROR)
		return;
	cr_assert_eq(seg->err, err);
	cr_assert_eq(chunk, cell);
	while ((chunk = r->img.chunks[chunk].next) != cell && chunk != CK_NONE)
		cr_assert_eq(expected(r, q, seg, chunk, &err), CK_SEG_ERROR);
}

static bool joinable(const struct ck_seg *a, const struct ck_seg *b)
{
	return !a->nax && !b->nax && a->kind == b->kind &&
	       a->chunk == b->chunk && a->dst + a->run == b->dst &&
	       (a->kind != CK_SEG_COPY || a->src_off + a->run == b->src_off);
}

/* As few axes and as long runs as there can be, and transforms by elements. */
static void check_form(const struct rt *r, const struct ck_seg *seg,
		       const struct ck_seg *before)
{
	bool bytes = seg->xform == CK_XF_NONE && seg->op == CK_OP_SET;
	const struct ck_seg_axis *a = seg->ax, *in = &a[seg->nax - 1];

	cr_assert_leq(seg->nax, CK_SEG_AXES);
	cr_assert_eq(seg->elem, r->elem);
	for (unsigned i = 0; i < seg->nax; i++) {
		cr_assert_gt(a[i].n, 1);
		cr_assert_gt(a[i].dst, 0);
	}
	if (seg->kind == CK_SEG_COPY && seg->nax)
		cr_assert_not((uint64_t)in->src == seg->run &&
			      (uint64_t)in->dst == seg->run);
	for (unsigned i = 1; i < seg->nax && seg->kind == CK_SEG_COPY; i++)
		cr_assert_not(a[i].src * (int64_t)a[i].n == a[i - 1].src &&
			      a[i].dst * (int64_t)a[i].n == a[i - 1].dst);
	if (before && bytes)
		cr_assert_not(joinable(before, seg), "could have been one");
	if (bytes) {
		cr_assert_eq(seg->skip, 0);
	} else if (seg->run % r->elem || seg->skip) {
		cr_assert_eq(seg->nax, 0);
		cr_assert_leq(seg->skip + seg->run, r->elem);
	}
}

/* The same bytes of the buffer again, from @chunk (or the ring's best). */
static void check_alt(struct rt *r, struct request *q,
		      const struct ck_cursor *from, const struct ck_seg *seg,
		      uint32_t chunk)
{
	struct request again = *q;
	struct ck_cursor cur;
	struct ck_seg part;
	uint64_t sum = 0;
	int err;

	again.seen = calloc(q->len + 1, 1);
	ck_cursor_init_alt(&cur, from, seg, chunk);
	while (ck_cursor_next(&cur, &part)) {
		check_form(r, &part, NULL);
		each_byte(r, &again, &part, check_byte);
		sum += part.nbytes;
		if (chunk == CK_NONE)
			continue;
		cr_assert_eq(part.chunk, chunk);
		cr_assert_eq(part.kind,
			     expected(r, &again, &part, chunk, &err));
	}
	cr_assert_eq(sum, seg->nbytes);
	/* The very same bytes: taken away, nothing is left over. */
	for (uint64_t i = 0; i < q->len; i++)
		again.seen[i] = again.seen[i] && q->seen[i];
	for (uint64_t i = 0; i < q->len; i++)
		sum -= again.seen[i];
	cr_assert_eq(sum, 0);
	free(again.seen);
}

static void resolve(struct rt *r, uint32_t chunk)
{
	const struct ck_place *p = &r->c[chunk].place;

	cr_assert(r->c[chunk].deferred);
	if (p->err)
		ck_resolved_put_bad(r->resolved, chunk, p->err);
	else
		cr_assert_eq(
			ck_resolved_put(r->resolved, chunk, p, r->grid_rank),
			0);
}

static void run_request(struct rt *r, struct request *q, struct ck_cursor *cur)
{
	struct ck_seg seg, before;
	bool first = true;

	q->seen = calloc(q->len + 1, 1);
	for (; ck_cursor_next(cur, &seg); before = seg, first = false) {
		each_byte(r, q, &seg, check_byte);
		check_form(r, &seg, first ? NULL : &before);
		check_kind(r, q, &seg);
		if (seg.kind == CK_SEG_UNRESOLVED && rt_rnd(r, 2)) {
			/* What was looked at ahead may be known by now. */
			if (cur->holding && cur->held.chunk == seg.chunk)
				continue;
			resolve(r, seg.chunk);
			check_alt(r, q, cur, &seg, CK_NONE);
		} else if (rt_rnd(r, 3) == 0) {
			uint32_t next = r->img.chunks[seg.chunk].next;

			check_alt(r, q, cur, &seg,
				  next == CK_NONE ? seg.chunk : next);
		}
	}
	cr_assert_not(ck_cursor_next(cur, &seg));
	for (uint64_t i = 0; i < q->len; i++) {
		uint64_t e = tensor_byte(r, q, i) / r->elem;

		cr_assert_eq(q->seen[i], r->cell_of[e] >= 0);
	}
	free(q->seen);
}

static void random_range(struct rt *r)
{
	uint64_t size = r->img.tensors->size;
	struct request q = { .pos = rt_rnd(r, size + 1) };
	struct ck_cursor cur;

	q.len = rt_rnd(r, size - q.pos + 1);
	if (q.len > 40 && rt_rnd(r, 3) == 0)
		q.len = rt_rnd(r, 40);
	ck_cursor_init(&cur, &r->img, r->resolved, r->img.tensors, q.pos,
		       q.len);
	run_request(r, &q, &cur);
}

static void random_box(struct rt *r)
{
	struct ck_box box = { .rank = r->rank };
	struct request q = { 0 };
	uint64_t volume = 1, nr = 0;
	struct ck_cursor cur;

	for (unsigned d = 0; d < r->rank; d++) {
		box.start[d] = rt_rnd(r, r->shape[d] + 1);
		box.len[d] = rt_rnd(r, r->shape[d] - box.start[d] + 1);
		if (rt_rnd(r, 2) == 0 && r->shape[d]) {
			box.start[d] = 0;
			box.len[d] = r->shape[d];
		}
		volume *= box.len[d];
	}
	q.elems = malloc((volume + 1) * sizeof(*q.elems));
	for (uint64_t e = 0; e < r->volume; e++) {
		uint64_t left = e;
		bool inside = true;

		for (unsigned d = r->rank; d-- > 0; left /= r->shape[d]) {
			uint64_t at = left % r->shape[d];

			inside = inside && at >= box.start[d] &&
				 at < box.start[d] + box.len[d];
		}
		if (inside)
			q.elems[nr++] = e;
	}
	cr_assert_eq(nr, volume);
	q.len = volume * r->elem;
	ck_cursor_init_box(&cur, &r->img, r->resolved, r->img.tensors, &box);
	run_request(r, &q, &cur);
	/* bytes of the same, from inside an element to inside another */
	q.pos = rt_rnd(r, q.len + 1);
	q.len = rt_rnd(r, q.len - q.pos + 1);
	ck_cursor_init_box_bytes(&cur, &r->img, r->resolved, r->img.tensors,
				 &box, q.pos, q.len);
	run_request(r, &q, &cur);
	free(q.elems);
}

static void check_hole(const struct rt *r)
{
	uint64_t e = 0;

	while (e < r->volume && r->cell_of[e] >= 0)
		e++;
	cr_assert_eq(ck_tensor_first_hole(&r->img, r->img.tensors),
		     e * r->elem);
}

static void random_tensors(unsigned first_seed, unsigned tensors)
{
	struct rt *r = malloc(sizeof(*r));

	if (getenv("UNSHARD_NIGHTLY"))
		tensors *= 85;
	for (unsigned i = 0; i < tensors; i++) {
		rt_make(r, first_seed + i);
		check_hole(r);
		for (int n = 0; n < 15; n++) {
			random_range(r);
			random_box(r);
		}
		rt_free(r);
	}
	free(r);
}

Test(cursor, random_tensors_a, .timeout = 3000)
{
	random_tensors(1, 200);
}

Test(cursor, random_tensors_b, .timeout = 3000)
{
	random_tensors(1u << 24, 200);
}
