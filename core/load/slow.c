/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slow.c - what is read by the reader, which knows replicas, sums and holes
 *
 * Bytes of the box in its own order, by way of the slot where memory is not
 * the same.
 */
#include "core/load/load_priv.h"

#include "core/base/check.h"

#include <string.h>

/* One box of them, from @src on; returns how many bytes that were. */
static uint64_t hand_out_box(struct ck_load_job *job,
			     const struct ck_load_wish *w,
			     const struct ck_box *box, const unsigned char *src)
{
	struct ck_seg_axis ax[CK_MAX_RANK];
	uint64_t at[CK_MAX_RANK] = { 0 }, step = w->elem, from = 0, dst = 0;
	unsigned nr = 0, in, i;

	for (unsigned d = box->rank; d-- > 0;) {
		uint64_t to = (uint64_t)w->in.stride[d] * w->elem;

		dst += box->start[d] * to;
		if (box->len[d] > 1)
			ax[nr++] = (struct ck_seg_axis){ box->len[d],
							 (int64_t)step,
							 (int64_t)to };
		step *= box->len[d];
	}
	in = CK_MIN(nr, CK_SEG_AXES);
	do {
		ck_load_deliver(job, w, ax, in, w->elem, src + from, dst);
		for (i = in; i < nr; i++) {
			from += (uint64_t)ax[i].src;
			dst += (uint64_t)ax[i].dst;
			if (++at[i] < ax[i].n)
				break;
			at[i] = 0;
			from -= ax[i].n * (uint64_t)ax[i].src;
			dst -= ax[i].n * (uint64_t)ax[i].dst;
		}
	} while (i < nr);
	return step;
}

/* @n bytes of the slot, which are those of @w from @off on. */
static void hand_out(struct ck_load_job *job, const struct ck_load_wish *w,
		     uint64_t off, uint64_t n)
{
	unsigned rank = job->load->img->tensors[w->in.tensor].rank;
	const unsigned char *src = job->slot;
	struct ck_range range;
	struct ck_box box;

	ck_range_init(&range, w->in.len, rank, off / w->elem,
		      (off + n) / w->elem);
	while (ck_range_next(&range, &box))
		src += hand_out_box(job, w, &box, src);
}

static int read_part(struct ck_load_job *job, const struct ck_load_wish *w,
		     uint64_t off, uint64_t n, struct ck_err *err)
{
	struct ck_load *load = job->load;
	bool straight = w->dense && w->from == w->to && !load->ring;
	struct ck_box box;
	int ret;

	ck_load_box(load, w, &box);
	ret = ck_reader_read_box_bytes(
		load->reader, w->in.tensor, &box,
		straight ? (unsigned char *)w->in.mem + off : job->slot, n, off,
		err);
	if (!ret && !straight)
		hand_out(job, w, off, n);
	return ret;
}

void ck_load_slow(struct ck_load_job *job)
{
	struct ck_load *load = job->load;
	struct ck_load_wish *w = &load->item[job->from];
	uint64_t most = CK_LOAD_SLOT;
	const char *name = ck_catalog_str(
		load->img, load->img->tensors[w->in.tensor].name, NULL);

	if (load->ring) /* a cast makes eight bytes of one */
		most = CK_MIN(most, ck_ring_chunk(load->ring) / 8);
	most = most / w->elem * w->elem;
	ck_load_slot_begin(job);
	for (uint64_t n, at = job->lo; at < job->hi && !load->cancel; at += n) {
		struct ck_err err = { 0 };
		int ret = 0;

		n = CK_MIN(most, job->hi - at);
		if (!w->failed)
			ret = read_part(job, w, at, n, &err);
		if (ret) {
			ck_wrap(&err, ret, "%s", name);
			ck_load_item_fail(load, (uint32_t)job->from, &err);
		}
		ck_load_add(&load->slow_bytes, n);
		ck_load_settle_late(job, (uint32_t)job->from, n, false);
	}
	ck_load_slot_end(job);
}
