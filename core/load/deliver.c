/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deliver.c - bytes as stored to memory that is laid out, and typed, otherwise
 *
 * Places in memory are counted in bytes as if it held the stored dtype; of a
 * cast they are scaled.  Fresh memory is populated just before it is filled, by
 * who fills it: whether a huge page is there is asked of its first page alone.
 */
#include "core/load/load_priv.h"

#include "core/base/check.h"
#include "core/geom/cast.h"

#include <sys/mman.h>

#define HUGE_PAGE ((uintptr_t)2 << 20)
#define PAGE 4096
#define LONG_RUN 256 /* elements: is cast from where it is to where it goes */
#define TILE 32
#define SPREAD 16 /* no more than so many times the bytes are populated */

unsigned char *ck_load_place(const struct ck_load_wish *w, uint64_t dst)
{
	int64_t off = (int64_t)dst;

	if (w->from != w->to)
		off = off / w->elem * w->to_size;
	return (unsigned char *)w->in.mem + off;
}

/* Run by run; dst steps are those of memory, as in all that follows. */
static void cast_runs(const struct ck_load_wish *w, const struct ck_seg *seg,
		      const unsigned char *src, unsigned char *dst)
{
	struct ck_runs it;

	for (ck_runs_init(&it, seg); !it.done; ck_runs_step(&it))
		ck_cast_as_torch(w->from, src + (int64_t)it.src, w->to,
				 dst + (int64_t)it.dst, seg->run / w->elem);
}

/* All of two axes, which is not more than a line: packed, cast, and spread. */
static void cast_tile(struct ck_load_job *job, const struct ck_load_wish *w,
		      const struct ck_seg_axis ax[2], uint64_t run,
		      const unsigned char *src, unsigned char *dst)
{
	uint64_t per = run / w->elem, nr = ax[0].n * ax[1].n * per;
	int64_t row = (int64_t)(ax[1].n * per), one = (int64_t)per;
	const struct ck_seg_axis in[2] = {
		{ ax[0].n, ax[0].src, row * w->elem },
		{ ax[1].n, ax[1].src, one * w->elem },
	};
	const struct ck_seg_axis out[2] = {
		{ ax[0].n, row * w->to_size, ax[0].dst },
		{ ax[1].n, one * w->to_size, ax[1].dst },
	};

	ck_copy_axes(in, 2, run, job->line[0], src);
	ck_cast_as_torch(w->from, job->line[0], w->to, job->line[1], nr);
	ck_copy_axes(out, 2, per * w->to_size, dst, job->line[1]);
}

/* Two axes in tiles; of each so many that neighbours, there and here, are in it. */
static void cast_plane(struct ck_load_job *job, const struct ck_load_wish *w,
		       const struct ck_seg_axis ax[2], uint64_t run,
		       const unsigned char *src, unsigned char *dst)
{
	uint64_t room = CK_LOAD_LINE / (run / w->elem);
	uint64_t n0 = CK_MIN(ax[0].n, (uint64_t)TILE), n1;

	n1 = CK_MIN(ax[1].n, CK_MAX(room / n0, (uint64_t)1));
	n0 = CK_MIN(ax[0].n, CK_MAX(room / n1, (uint64_t)1));
	for (uint64_t i = 0; i < ax[0].n; i += n0)
		for (uint64_t j = 0; j < ax[1].n; j += n1) {
			struct ck_seg_axis tile[2] = { ax[0], ax[1] };

			tile[0].n = CK_MIN(n0, ax[0].n - i);
			tile[1].n = CK_MIN(n1, ax[1].n - j);
			cast_tile(job, w, tile, run,
				  src + (int64_t)i * ax[0].src +
					  (int64_t)j * ax[1].src,
				  dst + (int64_t)i * ax[0].dst +
					  (int64_t)j * ax[1].dst);
		}
}

/* Takes the axis with the shortest step out of @seg. */
static struct ck_seg_axis take_axis(struct ck_seg *seg, bool in_dst)
{
	struct ck_seg_axis found = { 1, 0, 0 };
	unsigned low = 0;

	for (unsigned i = 1; i < seg->nax; i++)
		if (in_dst ? ck_stride_size(seg->ax[i].dst) <
				     ck_stride_size(seg->ax[low].dst) :
			     ck_stride_size(seg->ax[i].src) <
				     ck_stride_size(seg->ax[low].src))
			low = i;
	if (seg->nax) {
		found = seg->ax[low];
		seg->ax[low] = seg->ax[--seg->nax];
	}
	return found;
}

static void cast_axes(struct ck_load_job *job, const struct ck_load_wish *w,
		      const struct ck_seg_axis *axes, unsigned nr, uint64_t run,
		      const unsigned char *src, unsigned char *dst)
{
	struct ck_seg rest = { .run = run };
	struct ck_seg_axis plane[2];
	struct ck_runs it;

	for (unsigned i = 0; i < nr; i++) {
		rest.ax[rest.nax] = axes[i];
		rest.ax[rest.nax++].dst = axes[i].dst / w->elem * w->to_size;
	}
	if (!nr || run / w->elem >= LONG_RUN) {
		cast_runs(w, &rest, src, dst);
		return;
	}
	plane[0] = take_axis(&rest, true);
	plane[1] = take_axis(&rest, false);
	for (ck_runs_init(&it, &rest); !it.done; ck_runs_step(&it))
		cast_plane(job, w, plane, run, src + (int64_t)it.src,
			   dst + (int64_t)it.dst);
}

void ck_load_deliver(struct ck_load_job *job, const struct ck_load_wish *w,
		     const struct ck_seg_axis *ax, unsigned nr, uint64_t run,
		     const unsigned char *src, uint64_t dst)
{
	if (job->ring_slot)
		ck_load_put(job, w, ax, nr, run, src, dst);
	else
		ck_load_deliver_to(job, w, ax, nr, run, src,
				   ck_load_place(w, dst));
}

void ck_load_deliver_to(struct ck_load_job *job, const struct ck_load_wish *w,
			const struct ck_seg_axis *ax, unsigned nr, uint64_t run,
			const unsigned char *src, unsigned char *to)
{
	uint64_t elems = run / w->elem;

	if (w->from == w->to) {
		ck_copy_axes(ax, nr, run, to, src);
		return;
	}
	cast_axes(job, w, ax, nr, run, src, to);
	for (unsigned i = 0; i < nr; i++)
		elems *= ax[i].n;
	ck_load_add(&job->load->cast, elems);
}

static void populate(struct ck_load *load, struct ck_load_wish *w, uintptr_t lo,
		     uintptr_t hi)
{
	for (; lo < hi; lo += HUGE_PAGE) {
		unsigned char there;

		if (mincore((void *)lo, PAGE, &there) || there & 1)
			continue;
		/* Whatever they answer: the read touches what is not there. */
		if (!atomic_exchange(&w->advised, true))
			madvise((void *)w->huge, w->huge_end - w->huge,
				MADV_HUGEPAGE);
		if (!madvise((void *)lo, HUGE_PAGE, MADV_POPULATE_WRITE))
			ck_load_add(&load->prefaulted, HUGE_PAGE);
	}
}

void ck_load_populate(struct ck_load *load, struct ck_load_wish *w,
		      const struct ck_seg *seg)
{
	int64_t low = (int64_t)seg->dst, high = low + (int64_t)seg->run;
	uintptr_t lo, hi;

	if (w->huge >= w->huge_end)
		return;
	for (unsigned i = 0; i < seg->nax; i++) {
		int64_t span = (int64_t)(seg->ax[i].n - 1) * seg->ax[i].dst;

		*(span < 0 ? &low : &high) += span;
	}
	if ((uint64_t)(high - low) > SPREAD * seg->nbytes)
		return;
	lo = (uintptr_t)ck_load_place(w, (uint64_t)low) & ~(HUGE_PAGE - 1);
	hi = (uintptr_t)ck_load_place(w, (uint64_t)high);
	populate(load, w, CK_MAX(lo, w->huge), CK_MIN(hi, w->huge_end));
}
