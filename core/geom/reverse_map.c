/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reverse_map.c - the segments of a whole tensor, each met with a range of a
 * file
 *
 * Of an axis only the steps that can reach the range are walked, so the work
 * is that of the runs that are found, not of those that there are.
 */
#include "core/geom/reverse_map.h"

#include "core/base/check.h"
#include "core/geom/chunk.h"

struct meet {
	const struct ck_reverse_map *sp;
	const struct ck_seg *seg;
	/* What the axes from i on inward reach, relative to their base. */
	int64_t low[CK_SEG_AXES + 1], high[CK_SEG_AXES + 1];
};

static void measure(struct meet *m)
{
	const struct ck_seg *seg = m->seg;

	m->low[seg->nax] = 0;
	m->high[seg->nax] = (int64_t)seg->run;
	for (unsigned i = seg->nax; i-- > 0;) {
		int64_t far = (int64_t)(seg->ax[i].n - 1) * seg->ax[i].src;

		m->low[i] = m->low[i + 1] + (far < 0 ? far : 0);
		m->high[i] = m->high[i + 1] + (far > 0 ? far : 0);
	}
}

/* The quotient rounded down; @b > 0. */
static int64_t div_down(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

/*
 * Steps [*first, *end) of axis @i that reach the range, when the axes outside
 * of it stand at @base.
 */
static void steps(const struct meet *m, unsigned i, int64_t base,
		  uint64_t *first, uint64_t *end)
{
	const struct ck_seg_axis *ax = &m->seg->ax[i];
	int64_t step = ax->src, n = (int64_t)ax->n, from, to;
	/* base + k * step must lie in (lo, hi), both exclusive. */
	int64_t lo = (int64_t)m->sp->lo - m->high[i + 1] - base;
	int64_t hi = (int64_t)m->sp->hi - m->low[i + 1] - base;

	*first = *end = 0;
	if (!step) {
		*end = lo < 0 && hi > 0 ? ax->n : 0;
		return;
	}
	if (step > 0) {
		from = div_down(lo, step) + 1;
		to = div_down(hi - 1, step) + 1;
	} else {
		from = div_down(-hi, -step) + 1;
		to = div_down(-lo - 1, -step) + 1;
	}
	from = CK_MAX(from, 0);
	to = CK_MIN(to, n);
	if (from < to) {
		*first = (uint64_t)from;
		*end = (uint64_t)to;
	}
}

static void one_run(const struct meet *m, int64_t src, int64_t dst)
{
	const struct ck_reverse_map *sp = m->sp;
	uint64_t at = (uint64_t)src, run = m->seg->run;
	uint64_t lo = CK_MAX(at, sp->lo), hi = CK_MIN(at + run, sp->hi);

	if (lo < hi)
		sp->each(sp->ctx, m->seg->chunk, (uint64_t)dst + (lo - at),
			 hi - lo);
}

/* An odometer over the steps of all axes that can reach the range. */
static void walk(const struct meet *m)
{
	const struct ck_seg *seg = m->seg;
	uint64_t at[CK_SEG_AXES], end[CK_SEG_AXES];
	int64_t src[CK_SEG_AXES + 1] = { (int64_t)seg->src_off };
	int64_t dst[CK_SEG_AXES + 1] = { (int64_t)seg->dst };
	unsigned i = 0;
	bool down = true; /* came from outside: the axis begins anew */

	for (;;) {
		if (i == seg->nax) {
			one_run(m, src[i], dst[i]);
			if (!i)
				return;
			i--;
			down = false;
		}
		if (down)
			steps(m, i, src[i], &at[i], &end[i]);
		else
			at[i]++;
		if (at[i] >= end[i]) {
			if (!i)
				return;
			i--;
			down = false;
			continue;
		}
		src[i + 1] = src[i] + (int64_t)at[i] * seg->ax[i].src;
		dst[i + 1] = dst[i] + (int64_t)at[i] * seg->ax[i].dst;
		i++;
		down = true;
	}
}

/* All bytes that @seg gives. */
static void whole(const struct ck_reverse_map *sp, const struct ck_seg *seg)
{
	struct ck_reverse_map all = *sp;
	struct ck_seg flat = *seg;
	struct meet m = { .sp = &all, .seg = &flat };

	for (unsigned i = 0; i < flat.nax; i++)
		flat.ax[i].src = 0;
	flat.src_off = 0;
	all.lo = 0;
	all.hi = flat.run;
	measure(&m);
	walk(&m);
}

static bool meets(const struct ck_reverse_map *sp, uint64_t lo, uint64_t hi)
{
	return CK_MAX(lo, sp->lo) < CK_MIN(hi, sp->hi);
}

/* Whether the range touches the item of @c, and not only its payload. */
static bool frame_hit(const struct ck_reverse_map *sp,
		      const struct ck_tensor *t, uint32_t c)
{
	const struct ck_catalog *img = sp->img;
	const struct ck_chunk *chunk = &img->chunks[c];
	struct ck_chunk_at at;
	uint64_t end, lo, hi;

	ck_chunk_at(img, sp->resolved, t->grid_rank, chunk, &at);
	if (!at.item)
		return false;
	end = chunk->off + at.item;
	if (!at.placed || !ck_chunk_extent(&at, &lo, &hi))
		return meets(sp, chunk->off, end);
	if (sp->elements)
		return false;
	return meets(sp, chunk->off, CK_MIN(lo, end)) ||
	       meets(sp, CK_MAX(hi, chunk->off), end);
}

static bool decoded_hit(const struct ck_reverse_map *sp, uint32_t src)
{
	const struct ck_src *s = &sp->img->srcs[src];

	return s->kind == CK_SRC_CODEC && s->parent == sp->src &&
	       meets(sp, s->off, s->off + s->len);
}

/* Whether anything of chunk @c lies in the file at all. */
static bool from_file(const struct ck_reverse_map *sp, uint32_t c)
{
	uint32_t src = sp->img->chunks[c].src;

	return src == sp->src || decoded_hit(sp, src);
}

static void take(const struct ck_reverse_map *sp, const struct ck_tensor *t,
		 const struct ck_seg *seg)
{
	struct meet m = { .sp = sp, .seg = seg };

	if (!from_file(sp, seg->chunk))
		return;
	if (decoded_hit(sp, sp->img->chunks[seg->chunk].src) ||
	    frame_hit(sp, t, seg->chunk)) {
		whole(sp, seg);
	} else if (seg->kind == CK_SEG_COPY) {
		measure(&m);
		walk(&m);
	}
}

/* The elements of @seg once more, from each other replica in the file. */
static void take_ring(const struct ck_reverse_map *sp,
		      const struct ck_tensor *t, const struct ck_cursor *cur,
		      const struct ck_seg *seg)
{
	uint32_t c = seg->chunk;
	struct ck_cursor alt;
	struct ck_seg part;

	while ((c = ck_ring_next(sp->img, seg->chunk, c)) != CK_NONE) {
		if (!from_file(sp, c))
			continue;
		ck_cursor_init_alt(&alt, cur, seg, c);
		while (ck_cursor_next(&alt, &part))
			take(sp, t, &part);
	}
}

void ck_reverse_map_tensor(const struct ck_reverse_map *sp, uint32_t tensor)
{
	const struct ck_tensor *t = &sp->img->tensors[tensor];
	struct ck_cursor cur;
	struct ck_seg seg;
	bool any = false;

	for (uint32_t c = t->first; c < t->first + t->nr_all && !any; c++)
		any = from_file(sp, c);
	if (!any)
		return;
	ck_cursor_init(&cur, sp->img, sp->resolved, t, 0, t->size);
	while (ck_cursor_next(&cur, &seg)) {
		take(sp, t, &seg);
		take_ring(sp, t, &cur, &seg);
	}
}
