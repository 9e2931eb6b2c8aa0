/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - items whose memory is a device's
 *
 * What a thread reads for them lies in a slot of the ring, each piece in the order
 * of the device's memory and of its dtype, without gaps: so any strides are copies
 * of at most two steps with runs as long as they can be, and what is cast or
 * turned was so on the way into the slot.  An item is settled when its slot has
 * landed, by the ring's thread.
 */
#include "core/load/load_priv.h"

#include "core/base/check.h"
#include "core/device/dstore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 16 /* of a piece in a slot */

/* What is settled when the slot has landed. */
struct landing {
	struct ck_load *load;
	unsigned nr;
	uint64_t room; /* of the device, for its reads; or 0 */
	struct {
		uint64_t bytes;
		uint32_t item;
		bool bad;
	} v[CK_LOAD_PARTS];
};

static void landed(void *note, const struct ck_err *why)
{
	struct landing *l = note;
	struct ck_load *load = l->load;

	if (l->room)
		ck_dstore_give_back(ck_ring_dstore(load->ring), l->room);
	/* Slots of a load land in their order, by one thread. */
	if (why && !load->broken.code)
		load->broken = *why;
	for (unsigned i = 0; i < l->nr; i++) {
		if (load->broken.code)
			ck_load_item_fail(load, l->v[i].item, &load->broken);
		ck_load_settle(load, l->v[i].item, l->v[i].bytes, l->v[i].bad);
	}
	ck_load_landed(load);
}

int ck_load_ring_new(struct ck_ring **out, struct ck_load_pool *pool,
		     struct ck_device *dev, unsigned slots, uint64_t chunk,
		     struct ck_err *err)
{
	const struct ck_ring_in in = { .dev = dev,
				       .slots = slots,
				       .chunk = chunk,
				       .note = sizeof(struct landing),
				       .landed = landed,
				       .freed = ck_load_pool_wake,
				       .arg = pool };

	if (chunk < CK_LOAD_CHUNK_MIN || chunk % 4096 || !slots)
		return ck_fail(
			err, EINVAL,
			"a ring of %u slots of %llu bytes: expected some "
			"of %llu and more, whole pages",
			slots, (unsigned long long)chunk,
			(unsigned long long)CK_LOAD_CHUNK_MIN);
	return ck_ring_new(out, &in, err);
}

/* ---- slots of a job ---- */

bool ck_load_slot_try(struct ck_load *load, struct ck_load_job *job)
{
	if (!load->ring)
		return true;
	job->ring_slot = ck_ring_try(load->ring);
	return job->ring_slot;
}

void ck_load_slot_leave(struct ck_load_job *job)
{
	if (job->ring_slot)
		ck_ring_give_back(job->ring_slot);
	job->ring_slot = NULL;
}

void ck_load_slot_begin(struct ck_load_job *job)
{
	struct landing *l;

	if (!job->ring_slot)
		return;
	l = job->ring_slot->note;
	l->load = job->load;
	l->nr = 0;
	l->room = 0;
	job->way = CK_DEVICE_IN;
	job->ring_used = 0;
	job->nr_copies = 0;
	ck_ring_prepare(job->ring_slot);
	if (*ck_ring_why(job->load->ring))
		ck_load_note(job->load, ck_ring_why(job->load->ring));
}

static void flush(struct ck_load_job *job)
{
	ck_ring_copy(job->ring_slot, job->way, job->copies, job->nr_copies);
	job->nr_copies = 0;
}

void ck_load_slot_end(struct ck_load_job *job)
{
	if (!job->ring_slot)
		return;
	flush(job);
	ck_load_in_flight(job->load);
	ck_ring_submit(job->ring_slot);
	job->ring_slot = NULL;
}

void ck_load_slot_inside(struct ck_load_job *job)
{
	flush(job);
	job->way = CK_DEVICE_INSIDE;
}

void ck_load_slot_wait(struct ck_load_job *job)
{
	flush(job);
	ck_ring_wait(job->ring_slot);
}

void ck_load_slot_room(struct ck_load_job *job, uint64_t room)
{
	struct landing *l = job->ring_slot->note;

	l->room = room;
	job->way = CK_DEVICE_INSIDE;
}

bool ck_load_slot_next(struct ck_load_job *job)
{
	if (!job->ring_slot || !job->ring_used)
		return false;
	ck_load_slot_end(job);
	job->ring_slot = ck_ring_take(job->load->ring);
	ck_load_slot_begin(job);
	return true;
}

void ck_load_settle_late(struct ck_load_job *job, uint32_t item, uint64_t n,
			 bool bad)
{
	struct landing *l;
	unsigned i;

	if (!job->ring_slot) {
		ck_load_settle(job->load, item, n, bad);
		return;
	}
	l = job->ring_slot->note;
	i = l->nr;
	/* The pieces of a part come one after the other: there is room for each. */
	if (i && l->v[i - 1].item == item && l->v[i - 1].bad == bad) {
		l->v[i - 1].bytes += n;
		return;
	}
	l->v[i].item = item;
	l->v[i].bytes = n;
	l->v[i].bad = bad;
	l->nr = i + 1;
}

/* ---- a piece in a slot ---- */

/* The axes in the order of memory, the shortest step first. */
static unsigned sort_axes(const struct ck_seg_axis *ax, unsigned nr,
			  unsigned *order)
{
	unsigned used = 0;

	for (unsigned i = 0; i < nr; i++) {
		unsigned k;

		if (ax[i].n <= 1)
			continue;
		for (k = used; k && ck_stride_size(ax[order[k - 1]].dst) >
					    ck_stride_size(ax[i].dst);
		     k--)
			order[k] = order[k - 1];
		order[k] = i;
		used++;
	}
	return used;
}

bool ck_load_pack(struct ck_load_job *job, const struct ck_load_wish *w,
		  const struct ck_seg_axis *ax, unsigned nr, uint64_t run,
		  struct ck_load_packed *out)
{
	unsigned order[CK_COPY_AXES], used = sort_axes(ax, nr, order);
	uint64_t step = run, first = 0, all;

	memcpy(out->ax, ax, nr * sizeof(ax[0]));
	for (unsigned i = 0; i < used; i++) {
		struct ck_seg_axis *a = &out->ax[order[i]];

		if (a->dst < 0)
			first += (a->n - 1) * step;
		a->dst = a->dst < 0 ? -(int64_t)step : (int64_t)step;
		step *= a->n;
	}
	all = step / w->elem * w->to_size;
	if (all > ck_ring_chunk(job->load->ring) - job->ring_used)
		return false;
	out->mem = job->ring_slot->mem + job->ring_used;
	out->first = first;
	out->to = out->mem + first / w->elem * w->to_size;
	job->ring_used +=
		CK_MIN((all + ALIGN - 1) & ~(uint64_t)(ALIGN - 1),
		       ck_ring_chunk(job->load->ring) - job->ring_used);
	return true;
}

static void add_copy(struct ck_load_job *job, const struct ck_device_copy *copy)
{
	if (job->nr_copies == CK_LOAD_COPIES)
		flush(job);
	job->copies[job->nr_copies++] = *copy;
}

/* Axes from those of the copy on, one by one. */
static void add_copies(struct ck_load_job *job, struct ck_device_copy *copy,
		       const struct ck_seg_axis *ax, unsigned nr)
{
	uint64_t at[CK_COPY_AXES] = { 0 };
	unsigned i;

	do {
		add_copy(job, copy);
		for (i = copy->nax; i < nr; i++) {
			copy->dst += (uint64_t)ax[i].dst;
			copy->src += (uint64_t)ax[i].src;
			if (++at[i] < ax[i].n)
				break;
			copy->dst -= ax[i].n * (uint64_t)ax[i].dst;
			copy->src -= ax[i].n * (uint64_t)ax[i].src;
			at[i] = 0;
		}
	} while (i < nr);
}

void ck_load_send(struct ck_load_job *job, const struct ck_load_wish *w,
		  const struct ck_seg_axis *ax, unsigned nr, uint64_t run,
		  uint64_t dst, const struct ck_load_packed *packed)
{
	unsigned order[CK_COPY_AXES], used = sort_axes(ax, nr, order), to = 0;
	struct ck_seg_axis out[CK_COPY_AXES];
	struct ck_device_copy copy = { .src = (uintptr_t)packed->mem };
	uint64_t low = (uintptr_t)ck_load_place(w, dst);
	uint64_t len = run / w->elem * w->to_size;

	copy.run = len;
	for (unsigned i = 0; i < used; i++) {
		const struct ck_seg_axis *a = &ax[order[i]];
		uint64_t step = ck_stride_size(a->dst) / w->elem * w->to_size;

		if (a->dst < 0)
			low -= (a->n - 1) * step;
		if (!to && step == copy.run)
			copy.run *= a->n;
		else if (to &&
			 step == out[to - 1].n * (uint64_t)out[to - 1].dst)
			out[to - 1].n *= a->n;
		else
			out[to++] = (struct ck_seg_axis){ a->n, (int64_t)len,
							  (int64_t)step };
		len *= a->n;
	}
	copy.dst = low;
	copy.nax = CK_MIN(to, 2u);
	for (unsigned i = 0; i < copy.nax; i++) { /* outermost first */
		copy.ax[copy.nax - 1 - i].n = out[i].n;
		copy.ax[copy.nax - 1 - i].dst = (uint64_t)out[i].dst;
		copy.ax[copy.nax - 1 - i].src = (uint64_t)out[i].src;
	}
	add_copies(job, &copy, out, to);
}

void ck_load_send_from(struct ck_load_job *job, const struct ck_load_wish *w,
		       const struct ck_seg *seg, uint64_t src)
{
	struct ck_device_copy copy = { .dst = (uintptr_t)ck_load_place(
					       w, seg->dst),
				       .src = src,
				       .run = seg->run };
	struct ck_seg_axis ax[CK_SEG_AXES];
	uint64_t from = seg->run, to = seg->run;

	for (unsigned i = 0; i < seg->nax; i++)
		ax[i] = seg->ax[seg->nax - 1 - i];
	/* Two steps at most, where each is over all that is inside of it. */
	for (unsigned i = 0; i < CK_MIN(seg->nax, 2u); i++) {
		if ((uint64_t)ax[i].src < from || (uint64_t)ax[i].dst < to)
			break;
		from += (ax[i].n - 1) * (uint64_t)ax[i].src;
		to += (ax[i].n - 1) * (uint64_t)ax[i].dst;
		copy.nax++;
	}
	for (unsigned i = 0; i < copy.nax; i++) {
		copy.ax[copy.nax - 1 - i].n = ax[i].n;
		copy.ax[copy.nax - 1 - i].src = (uint64_t)ax[i].src;
		copy.ax[copy.nax - 1 - i].dst = (uint64_t)ax[i].dst;
	}
	add_copies(job, &copy, ax, seg->nax);
}

void ck_load_put(struct ck_load_job *job, const struct ck_load_wish *w,
		 const struct ck_seg_axis *ax, unsigned nr, uint64_t run,
		 const unsigned char *src, uint64_t dst)
{
	struct ck_load_packed packed;

	if (!ck_load_pack(job, w, ax, nr, run, &packed)) {
		ck_load_slot_next(job);
		ck_load_pack(job, w, ax, nr, run, &packed);
	}
	ck_load_deliver_to(job, w, packed.ax, nr, run, src, packed.to);
	ck_load_send(job, w, ax, nr, run, dst, &packed);
}
