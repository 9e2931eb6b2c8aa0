/* SPDX-License-Identifier: Apache-2.0 */
/*
 * by_device.c - stretches of a file that the device reads itself, or that go to it as
 * they lie in the file
 *
 * The whole blocks around what is wanted are read into a room of the device's
 * memory, and copied from there by its stream; the slot of the ring that the job
 * has is only where it lands.  That is for large stretches, of which most is wanted
 * as it is stored, and which are not in the page cache.  Such stretches with long runs
 * are read past the page cache straight into the slot, too, where that is asked for.
 * All else, and what fails here, is packed into the slot.
 */
#include "core/load/load_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/device/dstore.h"
#include "core/io/bytes.h"
#include "core/io/direct.h"

#include <sys/uio.h>

#define LEAST (UINT64_C(256) << 10)
#define LONG_RUN \
	(UINT64_C(64) << 10) /* is copied by the device as fast as more */

uint64_t ck_load_span_of(const struct ck_seg *seg, uint64_t *copies)
{
	uint64_t span = seg->run, nr = 1;

	for (unsigned i = 0; i < seg->nax; i++) {
		if (seg->ax[i].src <= 0 || seg->ax[i].dst <= 0)
			return 0;
		span += (seg->ax[i].n - 1) * (uint64_t)seg->ax[i].src;
		if (i + 1 < seg->nax)
			nr *= seg->ax[i].n;
	}
	*copies += nr;
	return span;
}

static bool measure(struct ck_load_job *job, struct ck_load_wish *w,
		    const struct ck_seg *seg, unsigned part)
{
	struct ck_load_span *s = &job->span;
	uint64_t len;

	(void)part;
	if (!ck_load_is_straight(w, seg))
		return false;
	len = ck_load_span_of(seg, &s->copies);
	if (!len)
		return false;
	s->lo = CK_MIN(s->lo, seg->src_off);
	s->hi = CK_MAX(s->hi, seg->src_off + len);
	s->wanted += seg->nbytes;
	s->shortest = CK_MIN(s->shortest, seg->run);
	return true;
}

static bool is_resident(int fd, uint64_t off)
{
	unsigned char byte;
	struct iovec one = { &byte, 1 };

	return preadv2(fd, &one, 1, (off_t)off, RWF_NOWAIT) >= 0;
}

static bool is_for_it(struct ck_load_job *job, const struct ck_bytes *b,
		      uint64_t room)
{
	const struct ck_reader_in *in = ck_reader_settings(job->load->reader);
	struct ck_load_span *s = &job->span;
	uint64_t len;

	if (b->fd < 0 || b->spooled || in->checked || in->over || in->made)
		return false;
	*s = (struct ck_load_span){ .lo = UINT64_MAX, .shortest = UINT64_MAX };
	if (!ck_load_each_piece(job, job->lo, job->hi, measure) ||
	    s->copies > CK_LOAD_INSIDE || s->hi > b->len)
		return false;
	len = s->hi - s->lo;
	if (len < CK_MIN(LEAST, room / 2) || s->wanted < len / 2)
		return false;
	s->lo = s->lo / CK_DSTORE_BLOCK * CK_DSTORE_BLOCK;
	return s->hi - s->lo <= room / CK_DSTORE_BLOCK * CK_DSTORE_BLOCK &&
	       (job->load->is_direct || !is_resident(b->fd, s->lo));
}

static bool send(struct ck_load_job *job, struct ck_load_wish *w,
		 const struct ck_seg *seg, unsigned part)
{
	(void)part;
	ck_load_send_from(job, w, seg,
			  job->span.room + seg->src_off - job->span.lo);
	return true;
}

/* Into the room; false: it was not. */
static bool read_it(struct ck_load_job *job, struct ck_dstore *ds,
		    const struct ck_bytes *b)
{
	const struct ck_load_span *s = &job->span;
	struct ck_dstore_file *file = ck_dstore_get(
		ds, &(struct ck_dstore_in){ .fd = b->fd,
					    .direct = ck_direct_open,
					    .room = s->room,
					    .host = job->ring_slot->mem });
	uint64_t len = s->hi - s->lo;
	bool good;

	if (!file)
		return false;
	len = (len + CK_DSTORE_BLOCK - 1) / CK_DSTORE_BLOCK * CK_DSTORE_BLOCK;
	good = ck_dstore_read(ds, file, s->room, s->lo, len, s->hi - s->lo);
	ck_dstore_put(ds, file);
	if (!good)
		ck_load_note(job->load, "the device's own reads failed: the "
					"rest went by way of the host");
	return good;
}

bool ck_load_by_device(struct ck_load_job *job, const struct ck_bytes *b)
{
	struct ck_load *load = job->load;
	struct ck_dstore *ds = load->ring ? ck_ring_dstore(load->ring) : NULL;
	uint64_t len;

	if (!ds || load->no_dstore ||
	    !is_for_it(job, b, ck_ring_chunk(load->ring)))
		return false;
	job->span.room = ck_dstore_room(ds);
	if (!job->span.room)
		return false;
	if (!read_it(job, ds, b)) {
		ck_dstore_give_back(ds, job->span.room);
		return false;
	}
	len = job->span.hi - job->span.lo;
	ck_load_add(&load->source_ops, 1);
	ck_load_add(&load->source_bytes, len);
	ck_load_add(&load->direct, len);
	ck_load_add(&load->by_device, len);
	ck_load_slot_room(job, job->span.room);
	ck_load_each_piece(job, job->lo, job->hi, send);
	return true;
}

bool ck_load_by_slot(struct ck_load_job *job, const struct ck_bytes *b)
{
	struct ck_load *load = job->load;
	ck_auto_fd int fd = -1;
	struct ck_load_span *s = &job->span;
	int64_t begun = ck_now_ns();
	uint64_t len;

	if (!load->ring || !load->is_direct || load->share ||
	    !is_for_it(job, b, ck_ring_chunk(load->ring)) ||
	    s->shortest < LONG_RUN)
		return false;
	fd = ck_load_direct_fd(load, b);
	len = s->hi - s->lo;
	/* What it fails with is said by the reads that come then. */
	if (fd < 0 || ck_direct_blocks(fd, job->ring_slot->mem, s->lo, len))
		return false;
	ck_load_add(&load->source_ops, 1);
	ck_load_add(&load->source_bytes, len);
	ck_load_add(&load->direct, len);
	ck_load_add(&load->ns_read, (uint64_t)(ck_now_ns() - begun));
	job->ring_used = ck_ring_chunk(load->ring);
	s->room = (uintptr_t)job->ring_slot->mem;
	ck_load_each_piece(job, job->lo, job->hi, send);
	return true;
}
