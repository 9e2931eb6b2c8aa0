/* SPDX-License-Identifier: Apache-2.0 */
/* item.c - what was asked for, checked and copied, and what became of it */
#include "core/load/load_priv.h"

#include "core/base/check.h"
#include "core/geom/cast.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HUGE_PAGE (UINT64_C(2) << 20)
#define HUGE_MIN (UINT64_C(4) << 20) /* smaller items are not populated */

static const char *name_of(const struct ck_load *load, uint32_t tensor)
{
	return ck_catalog_str(load->img, load->img->tensors[tensor].name, NULL);
}

static int check_dtypes(const struct ck_load *load, struct ck_load_wish *w,
			struct ck_err *err)
{
	const struct ck_tensor *t = &load->img->tensors[w->in.tensor];
	enum ck_dtype to = w->in.dtype;

	if (to == CK_DT_NONE)
		to = t->dtype;
	if ((unsigned)to >= CK_DT_NR ||
	    (to != t->dtype && !ck_cast_has(t->dtype, to)))
		return ck_fail(err, EINVAL,
			       "%s: is %s, of which there is no cast to %s",
			       name_of(load, w->in.tensor),
			       ck_dtype_info(t->dtype)->name,
			       (unsigned)to < CK_DT_NR ?
				       ck_dtype_info(to)->name :
				       "such a dtype");
	w->from = t->dtype;
	w->to = (uint8_t)to;
	w->elem = ck_dtype_info(t->dtype)->size;
	w->to_size = ck_dtype_info(to)->size;
	if (!w->elem && t->size)
		return ck_fail(err, EINVAL,
			       "%s: elements of %s are not whole bytes",
			       name_of(load, w->in.tensor),
			       ck_dtype_info(t->dtype)->name);
	return 0;
}

static int check_box(const struct ck_load *load, const struct ck_load_wish *w,
		     struct ck_err *err)
{
	const struct ck_tensor *t = &load->img->tensors[w->in.tensor];
	const uint64_t *shape = load->img->dims + t->shape;

	for (unsigned d = 0; d < t->rank; d++)
		if (!ck_range_ok(w->in.start[d], w->in.len[d], shape[d]))
			return ck_fail(err, EINVAL,
				       "%s: [%llu, %llu) of dimension %u was "
				       "asked for, which has %llu",
				       name_of(load, w->in.tensor),
				       (unsigned long long)w->in.start[d],
				       (unsigned long long)w->in.start[d] +
					       w->in.len[d],
				       d, (unsigned long long)shape[d]);
	return 0;
}

/* What the elements of memory span, in elements, before and from the first. */
struct span {
	uint64_t before, from;
};

/*
 * Axis by axis, the shortest step first: each must step over all that those
 * before it span.
 */
static bool span_of(const struct ck_load_wish *w, unsigned rank,
		    struct span *out)
{
	uint64_t all = 0, more;
	uint64_t used = 0; /* a bit a dimension */

	*out = (struct span){ 0, 1 };
	for (unsigned n = 0; n < rank; n++) {
		uint64_t low = UINT64_MAX, step;
		unsigned at = 0;

		for (unsigned d = 0; d < rank; d++) {
			step = ck_stride_size(w->in.stride[d]);
			if (used >> d & 1 || step >= low)
				continue;
			low = step;
			at = d;
		}
		used |= UINT64_C(1) << at;
		if (w->in.len[at] <= 1)
			continue;
		if (low <= all || !ck_mul_ok(low, w->in.len[at] - 1, &more) ||
		    !ck_add_ok(all, more, &all))
			return false;
		*(w->in.stride[at] < 0 ? &out->before : &out->from) += more;
	}
	return true;
}

static int check_memory(const struct ck_load *load, struct ck_load_wish *w,
			struct ck_err *err)
{
	const struct ck_tensor *t = &load->img->tensors[w->in.tensor];
	uint64_t volume = w->bytes / w->elem, low, high;
	uintptr_t mem = (uintptr_t)w->in.mem;
	struct span span;

	if (!span_of(w, t->rank, &span))
		return ck_fail(err, EINVAL,
			       "%s: by these strides elements meet in memory",
			       name_of(load, w->in.tensor));
	if (!mem || !ck_mul_ok(span.before, w->to_size, &low) ||
	    !ck_mul_ok(span.from, w->to_size, &high) || low > mem ||
	    high > UINTPTR_MAX - mem)
		return ck_fail(err, EINVAL, "%s: no such memory",
			       name_of(load, w->in.tensor));
	if (load->no_prefault || span.before + span.from != volume ||
	    low + high < HUGE_MIN)
		return 0;
	w->huge = (mem - low + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	w->huge_end = (mem + high) & ~(HUGE_PAGE - 1);
	return 0;
}

/* Whether the strides are those of row-major memory, which are put if @put. */
static bool row_major(struct ck_load_wish *w, unsigned rank, int64_t *put)
{
	uint64_t step = 1;
	bool are = true;

	for (unsigned d = rank; d-- > 0;) {
		if (put)
			put[d] = (int64_t)step;
		else
			are = are && (w->in.len[d] <= 1 ||
				      w->in.stride[d] == (int64_t)step);
		step *= w->in.len[d];
	}
	return are;
}

/* Copies @in; its dims from @dims on. */
static int take(struct ck_load *load, struct ck_load_wish *w,
		const struct ck_load_item *in, uint64_t *dims,
		struct ck_err *err)
{
	const struct ck_tensor *t = &load->img->tensors[in->tensor];
	const uint64_t *shape = load->img->dims + t->shape;
	uint64_t *start = dims, *len = dims + t->rank;
	int64_t *stride = (int64_t *)(dims + 2 * t->rank);
	size_t bytes = t->rank * sizeof(*dims);
	int ret;

	w->in = *in;
	for (unsigned d = 0; d < t->rank; d++) {
		start[d] = in->start ? in->start[d] : 0;
		len[d] = in->len ? in->len[d] :
				   shape[d] - CK_MIN(start[d], shape[d]);
	}
	w->in.start = start;
	w->in.len = len;
	w->in.stride = stride;
	ret = check_dtypes(load, w, err);
	if (!ret)
		ret = check_box(load, w, err);
	if (ret)
		return ret;
	w->bytes = w->elem;
	for (unsigned d = 0; d < t->rank; d++)
		w->bytes *= len[d];
	w->left = w->bytes;
	if (in->stride)
		memcpy(stride, in->stride, bytes);
	w->dense = row_major(w, t->rank, in->stride ? NULL : stride);
	return w->bytes ? check_memory(load, w, err) : 0;
}

int ck_load_items(struct ck_load *load, const struct ck_load_in *in,
		  size_t *bad, struct ck_err *err)
{
	const struct ck_catalog *img = load->img;
	uint64_t nr_dims = 0, at = 0;
	int ret;

	for (size_t i = 0; i < in->nr; i++) {
		if (bad)
			*bad = i;
		if (in->item[i].tensor >= img->nr_tensors)
			return ck_fail(err, EINVAL, "tensor %u of %u",
				       in->item[i].tensor, img->nr_tensors);
		nr_dims += 3u * img->tensors[in->item[i].tensor].rank;
	}
	load->item = calloc(in->nr + 1, sizeof(*load->item));
	load->dims = calloc(nr_dims + 1, sizeof(*load->dims));
	if (!load->item || !load->dims)
		return ck_no_memory(err);
	load->nr = in->nr;
	for (size_t i = 0; i < in->nr; i++) {
		if (bad)
			*bad = i;
		ret = take(load, &load->item[i], &in->item[i], load->dims + at,
			   err);
		if (ret)
			return ret;
		at += 3u * img->tensors[in->item[i].tensor].rank;
		load->total += load->item[i].bytes;
	}
	return 0;
}

void ck_load_box(const struct ck_load *load, const struct ck_load_wish *w,
		 struct ck_box *box)
{
	box->rank = load->img->tensors[w->in.tensor].rank;
	memcpy(box->start, w->in.start, box->rank * sizeof(box->start[0]));
	memcpy(box->len, w->in.len, box->rank * sizeof(box->len[0]));
}

void ck_load_item_fail(struct ck_load *load, uint32_t i,
		       const struct ck_err *err)
{
	struct ck_load_wish *w = &load->item[i];

	if (atomic_exchange(&w->failed, true))
		return;
	w->code = err->code ? err->code : EIO;
	w->why = strdup(err->msg);
	w->file = err->file;
	w->off = err->off;
}

void ck_load_settle(struct ck_load *load, uint32_t i, uint64_t n, bool bad)
{
	struct ck_load_wish *w = &load->item[i];

	if (bad)
		w->redo = true;
	else
		ck_load_add(&load->bytes_done, n);
	if (atomic_fetch_sub(&w->left, n) == n)
		ck_load_item_done(load, i);
}

uint32_t ck_load_tensor(const struct ck_load *load, size_t i)
{
	return i < load->nr ? load->item[i].in.tensor : UINT32_MAX;
}

void ck_load_stats(const struct ck_load *load, struct ck_load_stats *out)
{
	struct ck_share_stats shared = { 0 };
	const char *why = load->why;

	if (load->share)
		ck_share_stats(load->share, &shared);
	if (shared.why)
		why = shared.why;
	*out = (struct ck_load_stats){
		.wanted = load->total,
		.done = CK_MIN(load->bytes_done, load->total),
		.source_bytes = load->source_bytes,
		.source_ops = load->source_ops,
		.slow = load->slow_bytes,
		.cast = load->cast,
		.prefaulted = load->prefaulted,
		.ns_plan = load->ns_plan,
		.ns_read = load->ns_read,
		.ns_copy = load->ns_copy,
		.left_to_reader = load->left_to_reader,
		.direct = load->direct,
		.resident = load->resident,
		.by_device = load->by_device,
		.ring = load->ring ? ck_ring_slots(load->ring) : 0,
		.received = shared.received,
		.sent = shared.sent,
		.ns_comm = shared.ns,
	};
	snprintf(out->why, sizeof(out->why), "%s", why ? why : "");
}
