/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seg_cut.c - the part of a segment that lies in a stretch of its source
 *
 * In the order of the source, the elements of a segment are those of a
 * row-major array: of its axes, and of a run's elements.  So those that begin
 * in a stretch are a range of that order, and a few boxes (ck_range).  An axis
 * that does not move gives each element to several places; it goes with them.
 */
#include "core/geom/cursor.h"

#include "core/base/check.h"

#include <string.h>

static void swap_axes(struct ck_seg_axis *a, struct ck_seg_axis *b)
{
	struct ck_seg_axis was = *a;

	*a = *b;
	*b = was;
}

bool ck_seg_in_order(struct ck_seg *seg, uint64_t *end)
{
	struct ck_seg s = *seg;
	uint64_t extent = s.run, more;

	for (unsigned i = 0; i < s.nax; i++) {
		struct ck_seg_axis *ax = &s.ax[i];

		if (ax->src < 0) {
			s.src_off += (ax->n - 1) * (uint64_t)ax->src;
			s.dst += (ax->n - 1) * (uint64_t)ax->dst;
			ax->src = -ax->src;
			ax->dst = (int64_t)(0 - (uint64_t)ax->dst);
		}
		for (unsigned k = i; k && s.ax[k - 1].src < s.ax[k].src; k--)
			swap_axes(&s.ax[k - 1], &s.ax[k]);
	}
	for (unsigned i = s.nax; i-- > 0;) {
		uint64_t step = (uint64_t)s.ax[i].src;

		if (!step)
			continue;
		if (step < extent || !ck_mul_ok(step, s.ax[i].n - 1, &more) ||
		    !ck_add_ok(extent, more, &extent))
			return false;
	}
	if (!ck_add_ok(s.src_off, extent, end))
		return false;
	*seg = s;
	return true;
}

/* How many elements of the order begin before byte @at of the source. */
static uint64_t before(const struct ck_seg_cut *cut, uint64_t at)
{
	const struct ck_seg *seg = cut->seg;
	uint64_t volume = cut->dims[cut->nr], nr = 0, left;

	if (at <= seg->src_off)
		return 0;
	left = at - seg->src_off;
	for (unsigned i = 0; i < cut->nr; i++)
		volume *= cut->dims[i];
	for (unsigned i = 0; i < cut->nr; i++) {
		uint64_t step = (uint64_t)seg->ax[i].src, n = left / step;

		if (n >= cut->dims[i])
			return nr + volume;
		volume /= cut->dims[i];
		nr += n * volume;
		left -= n * step;
	}
	return nr + CK_MIN(CK_DIV_UP(left, seg->elem), cut->dims[cut->nr]);
}

void ck_seg_cut_init(struct ck_seg_cut *cut, const struct ck_seg *seg,
		     uint64_t lo, uint64_t hi)
{
	cut->seg = seg;
	for (cut->nr = 0; cut->nr < seg->nax && seg->ax[cut->nr].src; cut->nr++)
		cut->dims[cut->nr] = seg->ax[cut->nr].n;
	cut->dims[cut->nr] = seg->run / seg->elem;
	ck_range_init(&cut->range, cut->dims, cut->nr + 1, before(cut, lo),
		      before(cut, hi));
}

bool ck_seg_cut_next(struct ck_seg_cut *cut, struct ck_seg *part)
{
	const struct ck_seg *seg = cut->seg;
	struct ck_box box;
	uint64_t at;
	unsigned nr = 0;

	if (!ck_range_next(&cut->range, &box))
		return false;
	*part = *seg;
	at = box.start[cut->nr] * seg->elem;
	part->src_off += at;
	part->dst += at;
	part->run = part->nbytes = box.len[cut->nr] * seg->elem;
	for (unsigned i = 0; i < seg->nax; i++) {
		struct ck_seg_axis ax = seg->ax[i];

		if (i < cut->nr) {
			part->src_off += box.start[i] * (uint64_t)ax.src;
			part->dst += box.start[i] * (uint64_t)ax.dst;
			ax.n = box.len[i];
		}
		if (ax.n == 1)
			continue;
		part->ax[nr++] = ax;
		part->nbytes *= ax.n;
	}
	part->nax = (uint8_t)nr;
	return true;
}
