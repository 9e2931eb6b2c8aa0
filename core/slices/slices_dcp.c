/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_dcp.c - shards of slices as torch.distributed.checkpoint knows them
 *
 * Each piece that has elements is a chunk of its tensor, and its archive an
 * item of the file that it lies in.
 */
#include "core/slices/slices_priv.h"

#include "core/base/auto.h"
#include "core/base/whole.h"
#include "core/emit/dcp_out.h"
#include "core/emit/torch_blob.h"

#include <errno.h>
#include <string.h>

struct index {
	const struct ck_slices *sl;
	const struct ck_slice_plan *plan;
	uint32_t *v; /* pieces with elements, by tensor */
	uint32_t *first; /* of tensor t in v; one more at the end */
	int fd;
	uint64_t at; /* bytes of the file so far */
};

/* One of a tensor without elements stands for all of it. */
static int make_index(const struct ck_slices *sl, struct index *x,
		      struct ck_err *err)
{
	const struct ck_slice_plan *p = &sl->plan;
	uint32_t nr = 0;

	x->plan = p;
	x->v = calloc(p->nr_pieces + 1, sizeof(*x->v));
	x->first = calloc(p->nr_tensors + 1, sizeof(*x->first));
	if (!x->v || !x->first)
		return ck_no_memory(err);
	for (uint32_t t = 0; t < p->nr_tensors; t++) {
		x->first[t] = nr;
		for (uint32_t i = sl->first_of[t]; i < sl->first_of[t + 1]; i++)
			if (p->pieces[sl->by_tensor[i]].len)
				x->v[nr++] = sl->by_tensor[i];
		if (nr == x->first[t] && sl->first_of[t] < sl->first_of[t + 1])
			x->v[nr++] = sl->by_tensor[sl->first_of[t]];
	}
	x->first[p->nr_tensors] = nr;
	return 0;
}

/* Tensors, and then objects. */
static const char *name_of(const struct index *x, uint64_t i)
{
	uint32_t nr = x->plan->nr_tensors;

	return i < nr ? ck_slice_plan_str(x->plan, x->plan->tensors[i].name) :
			x->sl->extras.v[i - nr].name;
}

static int tell_entry(void *ctx, uint64_t i, struct ck_dcp_out_entry *out,
		      struct ck_err *err)
{
	const struct index *x = ctx;
	const struct ck_slice_plan_tensor *t = &x->plan->tensors[i];

	(void)err;
	*out = (struct ck_dcp_out_entry){ .name = name_of(x, i) };
	if (i >= x->plan->nr_tensors) {
		out->object = true;
	} else {
		out->dtype = t->dtype;
		out->rank = t->rank;
		out->shape = x->plan->dims + t->shape;
		out->nr_chunks = x->first[i + 1] - x->first[i];
	}
	out->len = strlen(out->name);
	out->depth = ck_slices_path_depth(x->sl, out->name);
	return 0;
}

static void tell_part(void *ctx, uint64_t i, unsigned level,
		      struct ck_dcp_out_part *out)
{
	const struct index *x = ctx;

	ck_slices_path_part(x->sl, name_of(x, i), level, out);
}

static int tell_object(const struct index *x, uint64_t i,
		       struct ck_dcp_out_chunk *out)
{
	const struct ck_slices_object *o = &x->sl->extras.v[i];

	out->file = CK_SLICES_OBJECTS;
	out->off = o->off;
	out->size = o->len;
	return 0;
}

static int tell_piece(const struct index *x, uint64_t i, uint64_t k,
		      struct ck_dcp_out_chunk *out, struct ck_err *err)
{
	const struct ck_slice_plan *p = x->plan;
	const struct ck_slice_plan_piece *piece =
		&p->pieces[x->v[x->first[i] + k]];
	const struct ck_slice_plan_tensor *t = &p->tensors[i];
	const uint64_t *start = p->dims + piece->dims;
	struct ck_torch_blob b;
	int ret = ck_slice_plan_blob(p, piece, 0, &b, err);

	if (!ret) {
		if (t->rank) {
			memcpy(out->start, start, t->rank * sizeof(*start));
			memcpy(out->shape, start + t->rank,
			       t->rank * sizeof(*start));
		}
		out->file = ck_slice_plan_str(p, p->files[piece->file].name);
		out->off = piece->off - b.head.len;
		out->size = b.size;
	}
	ck_torch_blob_free(&b);
	return ret;
}

static int tell_chunk(void *ctx, uint64_t i, uint64_t k,
		      struct ck_dcp_out_chunk *out, struct ck_err *err)
{
	const struct index *x = ctx;
	uint32_t nr = x->plan->nr_tensors;

	return i < nr ? tell_piece(x, i, k, out, err) :
			tell_object(x, i - nr, out);
}

static int put(void *ctx, const void *bytes, size_t len, struct ck_err *err)
{
	struct index *x = ctx;
	int ret = ck_pwrite_whole(x->fd, bytes, len, x->at);

	x->at += len;
	return ret ? ck_fail(err, -ret, "%s", strerror(-ret)) : 0;
}

int ck_slices_metadata(const struct ck_slices *sl, int fd, struct ck_err *err)
{
	struct index x = { .fd = fd, .sl = sl };
	const struct ck_dcp_out out = {
		.ctx = &x,
		.nr = sl->plan.nr_tensors + sl->extras.nr,
		.entry = tell_entry,
		.chunk = tell_chunk,
		.part = tell_part,
	};
	int ret = make_index(sl, &x, err);

	if (!ret)
		ret = ck_dcp_out_write(&out, put, &x, err);
	free(x.v);
	free(x.first);
	return ret;
}
