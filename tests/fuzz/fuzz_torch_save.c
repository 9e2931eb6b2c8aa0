/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_torch_save.c - any bytes as a file by torch.save, zip or the old form
 *
 * Every leaf is looked at as all that it might be.  What is accepted must lie
 * where it says: elements inside their storage, boxes inside their tensor.
 */
#include "core/base/check.h"
#include "core/container/torch_dist.h"
#include "core/container/torch_save.h"
#include "core/container/torch_walk.h"
#include "tests/lib/memsource.h"

#include <errno.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_LEAVES 4096

struct walk {
	struct ck_torch_save *ts;
	unsigned seen;
};

static void need(bool ok)
{
	if (!ok)
		abort();
}

static void check_box(const struct ck_torch_piece *b)
{
	need(b->rank <= CK_MAX_RANK);
	for (unsigned d = 0; d < b->rank; d++)
		need(b->start[d] < CK_SIZE_MAX && b->len[d] < CK_SIZE_MAX);
}

static void check_dtensor(const struct ck_torch_piece *b)
{
	check_box(b);
	for (unsigned d = 0; d < b->rank; d++)
		need(b->start[d] <= b->shape[d] &&
		     b->len[d] <= b->shape[d] - b->start[d]);
}

static void check_tensor(const struct ck_torch_tensor *t)
{
	uint64_t es = ck_dtype_info(t->dtype)->size;
	__int128 low = (__int128)t->storage_offset, high = low;

	need(es && t->rank <= CK_MAX_RANK);
	for (unsigned d = 0; d < t->rank; d++) {
		__int128 reach;

		if (!t->shape[d])
			return;
		reach = (__int128)(t->shape[d] - 1) * t->stride[d];
		low += reach < 0 ? reach : 0;
		high += reach > 0 ? reach : 0;
	}
	need(low >= 0 &&
	     (high + 1) * (__int128)es <= (__int128)(t->storage_len / es * es));
}

static int look(void *ctx, const struct ck_torch_leaf *leaf, struct ck_err *e)
{
	struct walk *w = ctx;
	struct ck_torch_tensor t;
	struct ck_torch_piece b;
	struct ck_err err = { 0 };
	uint64_t off, nr = 0;
	int ret;

	need(leaf->depth <= CK_TORCH_MAX_DEPTH);
	if (ck_torch_tensor_read(w->ts->pickle, leaf->value, &t, &err))
		need(err.msg[0]);
	else {
		check_tensor(&t);
		err = (struct ck_err){ 0 };
		if (ck_torch_save_place(w->ts, &t, &off, &err))
			need(err.msg[0]);
	}
	ret = ck_torch_dtensor(w->ts->pickle, leaf->value, &b, &err);
	if (ret > 0)
		check_dtensor(&b);
	for (uint64_t i = 0; i == 0 || i < CK_MIN(nr, 8u); i++)
		if (ck_torch_sharded(w->ts->pickle, leaf->value, i, &nr, &b,
				     &err) > 0 &&
		    i < nr)
			check_box(&b);
	return ++w->seen > MAX_LEAVES ? ck_fail(e, E2BIG, "enough") : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ck_source *src = memsource(data, size, "file");
	struct ck_torch_save ts;
	struct walk w = { .ts = &ts };
	struct ck_err err = { 0 };

	if (!src)
		return 0;
	if (ck_torch_save_open(&ts, src, &err))
		need(err.msg[0]);
	else if (ck_torch_walk(ts.pickle, ck_pickle_root(ts.pickle), look, &w,
			       &err))
		need(err.msg[0]);
	ck_torch_save_close(&ts);
	ck_source_close(src);
	return 0;
}
