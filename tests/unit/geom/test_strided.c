/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments to memory with strides, cut into stretches of their source, and
 * copied: each byte against random_tensor's table of addresses.
 */
#include "core/base/check.h"
#include "core/geom/cursor.h"
#include "tests/unit/geom/random_tensor.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(strided, .timeout = 60);

/* Memory of a box: at each of its elements' places, which of the tensor's. */
struct memory {
	struct ck_box box;
	int64_t stride[8];
	uint64_t elems; /* of all of it, gaps and all */
	uint64_t first; /* where the box's first element is */
	uint32_t *elem_at; /* 1 + element of the tensor; 0: none */
	uint8_t *seen; /* of each byte */
};

/* Axes in any order, any of them backwards, gaps between any. */
static void random_strides(struct rt *r, struct memory *m)
{
	unsigned order[8];
	uint64_t step = 1 + rt_rnd(r, 3);

	m->first = 0;
	for (unsigned d = 0; d < r->rank; d++) {
		unsigned at = (unsigned)rt_rnd(r, d + 1);

		order[d] = order[at];
		order[at] = d;
	}
	for (unsigned i = 0; i < r->rank; i++) {
		unsigned d = order[i];

		m->stride[d] = (int64_t)step;
		if (rt_rnd(r, 3) == 0 && m->box.len[d]) {
			m->first += step * (m->box.len[d] - 1);
			m->stride[d] = -m->stride[d];
		}
		step = step * CK_MAX(m->box.len[d], 1) + rt_rnd(r, 2);
	}
	m->elems = step + 1;
}

static void make_memory(struct rt *r, struct memory *m)
{
	uint64_t n = 1;

	m->box.rank = r->rank;
	for (unsigned d = 0; d < r->rank; d++) {
		m->box.start[d] = rt_rnd(r, r->shape[d]);
		m->box.len[d] = 1 + rt_rnd(r, r->shape[d] - m->box.start[d]);
		n *= m->box.len[d];
	}
	random_strides(r, m);
	m->elem_at = calloc(m->elems, sizeof(*m->elem_at));
	m->seen = calloc(m->elems, r->elem);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t at[8], mem = m->first;

		ck_dims_coords(m->box.len, r->rank, i, at);
		for (unsigned d = 0; d < r->rank; d++) {
			mem += at[d] * (uint64_t)m->stride[d];
			at[d] += m->box.start[d];
		}
		cr_assert_eq(m->elem_at[mem], 0);
		m->elem_at[mem] =
			1 + (uint32_t)ck_dims_index(r->shape, r->rank, at);
	}
}

static void free_memory(struct memory *m)
{
	free(m->elem_at);
	free(m->seen);
}

typedef void (*each_fn)(void *ctx, uint64_t src, uint64_t dst);

static void each_elem(const struct ck_seg *seg, each_fn each, void *ctx)
{
	uint64_t runs = seg->nbytes / seg->run;

	for (uint64_t n = 0; n < runs; n++) {
		uint64_t left = n, src = seg->src_off, dst = seg->dst;

		for (unsigned i = seg->nax; i-- > 0;) {
			uint64_t at = left % seg->ax[i].n;

			left /= seg->ax[i].n;
			src += at * (uint64_t)seg->ax[i].src;
			dst += at * (uint64_t)seg->ax[i].dst;
		}
		for (uint64_t b = 0; b < seg->run; b += seg->elem)
			each(ctx, src + b, dst + b);
	}
}

struct check {
	struct rt *r;
	struct memory *m;
	const struct ck_seg *seg;
	uint64_t lo, hi; /* where elements are to begin */
	uint64_t nr;
};

static void check_elem(void *ctx, uint64_t src, uint64_t dst)
{
	struct check *c = ctx;
	uint64_t at = dst + c->m->first * c->r->elem, e;

	cr_assert_eq(at % c->r->elem, 0);
	at /= c->r->elem;
	cr_assert_lt(at, c->m->elems);
	e = c->m->elem_at[at];
	cr_assert(e, "nothing goes there");
	cr_assert_not(c->m->seen[at], "twice");
	c->m->seen[at] = 1;
	c->nr++;
	if (c->seg->kind != CK_SEG_COPY)
		return;
	cr_assert_eq(src, c->r->c[c->seg->chunk].addr[e - 1]);
	cr_assert(src >= c->lo && src < c->hi);
}

/* All of @seg by stretches of its source. */
static void check_cuts(struct check *c)
{
	struct ck_seg seg = *c->seg, part;
	uint64_t lo = 0, end, nr = c->nr;

	if (seg.kind != CK_SEG_COPY || !ck_seg_in_order(&seg, &end)) {
		c->lo = 0;
		c->hi = UINT64_MAX;
		each_elem(&seg, check_elem, c);
		return;
	}
	cr_assert_leq(end, c->r->img.srcs[c->r->img.chunks[seg.chunk].src].len);
	for (uint64_t hi; lo < end; lo = hi) {
		struct ck_seg_cut cut;
		uint64_t was;

		hi = lo + 1 + rt_rnd(c->r, rt_rnd(c->r, 2) ? 20 : end);
		c->lo = was = lo;
		c->hi = hi;
		ck_seg_cut_init(&cut, &seg, lo, hi);
		while (ck_seg_cut_next(&cut, &part)) {
			cr_assert_geq(part.src_off, was);
			was = part.src_off;
			each_elem(&part, check_elem, c);
		}
	}
	cr_assert_eq(c->nr - nr, seg.nbytes / seg.elem);
}

static void check_memory(struct rt *r)
{
	struct memory m = { .elems = 0 };
	struct check c = { .r = r, .m = &m };
	struct ck_cursor cur;
	struct ck_seg seg;
	uint64_t want = 0;

	make_memory(r, &m);
	ck_cursor_init_box_strided(&cur, &r->img, r->resolved, r->img.tensors,
				   &m.box, m.stride);
	while (ck_cursor_next(&cur, &seg)) {
		c.seg = &seg;
		check_cuts(&c);
	}
	for (uint64_t i = 0; i < m.elems; i++)
		if (m.elem_at[i])
			want += r->cell_of[m.elem_at[i] - 1] >= 0;
	cr_assert_eq(c.nr, want);
	free_memory(&m);
}

Test(strided, random_memory)
{
	unsigned nr = getenv("UNSHARD_NIGHTLY") ? 20000 : 600;

	for (unsigned seed = 1; seed <= nr; seed++) {
		struct rt r;

		rt_make(&r, seed);
		for (unsigned i = 0; r.volume && i < 4; i++)
			check_memory(&r);
		rt_free(&r);
	}
}

/* Rows backwards, in the source: they come in its order. */
Test(strided, backwards_in_the_source)
{
	struct ck_seg seg = { .elem = 4,
			      .nax = 2,
			      .src_off = 1000,
			      .run = 8,
			      .nbytes = 8 * 3 * 5,
			      .ax = { { 3, 8, 24 }, { 5, -100, 8 } } };
	uint64_t end;

	cr_assert(ck_seg_in_order(&seg, &end));
	cr_expect_eq(end, 1024);
	cr_expect_eq(seg.src_off, 600);
	cr_expect_eq(seg.dst, 32);
	cr_expect_eq(seg.ax[0].src, 100);
	cr_expect_eq(seg.ax[0].dst, -8);
	cr_expect_eq(seg.ax[1].src, 8);
}

Test(strided, lie_across_each_other)
{
	struct ck_seg seg = { .elem = 4,
			      .nax = 2,
			      .run = 4,
			      .nbytes = 4 * 4 * 4,
			      .ax = { { 4, 8, 16 }, { 4, 12, 4 } } };
	struct ck_seg was = seg;
	uint64_t end;

	cr_expect_not(ck_seg_in_order(&seg, &end));
	cr_expect_eq(memcmp(&seg, &was, sizeof(seg)), 0);
}

/* A number more than one square in each of two axes, in any direction. */
Test(strided, copies)
{
	static unsigned char from[90000], to[90000], want[90000];
	struct ck_seg_axis ax[3] = { { 3, 20000, -16 },
				     { 40, 16, 1000 },
				     { 2, 8, 400 } };

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (unsigned char)(i * 7 + i / 256);
	for (unsigned run = 1; run <= 8; run++) {
		memset(to, 0, sizeof(to));
		memset(want, 0, sizeof(want));
		ck_copy_axes(ax, 3, run, to + 32, from);
		for (int64_t i = 0; i < 3; i++)
			for (int64_t j = 0; j < 40; j++)
				for (int64_t k = 0; k < 2; k++)
					memcpy(want + 32 - 16 * i + 1000 * j +
						       400 * k,
					       from + 20000 * i + 16 * j +
						       8 * k,
					       run);
		cr_expect_eq(memcmp(to, want, sizeof(to)), 0, "run %u", run);
	}
}
