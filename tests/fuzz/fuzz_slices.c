/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_slices.c - any bytes as a layout to write by, and as a plan whose sum
 * fits, without which hardly an input would get past the first check
 *
 * What is accepted has frames and runs inside of its files.
 */
#include "core/slices/slices_plan_priv.h"
#include "core/slices/slices_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RUNS 1000

struct inside {
	const struct ck_slice_plan *p;
	uint32_t file;
};

static int put(void *ctx, uint64_t off, const void *bytes, size_t len,
	       struct ck_err *err)
{
	const struct inside *in = ctx;
	uint64_t size = in->p->files[in->file].size;

	(void)bytes, (void)err;
	/* a plan that was tampered with may lie about room for frames only */
	return off > size || len > size - off ? -EINVAL : 0;
}

static void walk_piece(const struct ck_slice_plan *p, uint32_t i)
{
	struct ck_slice_plan_runs runs;

	ck_slice_plan_runs(p, i, &runs);
	for (uint64_t k = 0; k < runs.nr && k < RUNS; k++) {
		uint64_t at = ck_slice_plan_run(&runs, k);

		if (at > p->pieces[i].len || runs.len > p->pieces[i].len - at)
			abort();
	}
}

static void walk(const struct ck_slice_plan *p)
{
	struct inside in = { .p = p };
	struct ck_catalog img;

	for (; in.file < p->nr_files && in.file < RUNS; in.file++)
		ck_slice_plan_frame(p, in.file, put, &in, NULL);
	for (uint32_t i = 0; i < p->nr_pieces; i++)
		walk_piece(p, i);
	for (uint32_t t = 0; t < p->nr_tensors; t++)
		if (ck_slice_plan_find_tensor(
			    p, ck_slice_plan_str(p, p->tensors[t].name)) != t)
			abort();
	if (!ck_slice_plan_catalog(p, &img, NULL))
		ck_catalog_unmap(&img);
}

static void take(const void *bytes, size_t size)
{
	char *copy = malloc(size + 1);
	struct ck_err err = { 0 };
	struct ck_slice_plan p;

	if (!copy)
		return;
	memcpy(copy, bytes, size);
	if (!ck_slice_plan_take(&p, copy, size, &err)) {
		walk(&p);
		ck_slice_plan_free(&p);
	} else if (!err.msg[0]) {
		abort();
	}
}

static void make(const uint8_t *data, size_t size)
{
	struct ck_str out = { 0 };
	struct ck_err err = { 0 };

	if (!ck_slice_plan_make(&out, "x", (const char *)data, size, NULL,
				&err))
		take(out.v, out.len);
	else if (!err.msg[0])
		abort();
	ck_str_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ck_slice_plan_head h;
	char *fixed;

	if (size < sizeof(h) || memcmp(data, CK_SLICE_PLAN_MAGIC, 8) != 0) {
		make(data, size);
		return 0;
	}
	fixed = malloc(size);
	if (!fixed)
		return 0;
	memcpy(fixed, data, size);
	memcpy(&h, fixed, sizeof(h));
	h.version = CK_SLICE_PLAN_VERSION;
	h.len = size;
	h.id = XXH3_64bits(fixed + CK_SLICE_PLAN_HASHED,
			   size - CK_SLICE_PLAN_HASHED);
	memcpy(fixed, &h, sizeof(h));
	take(fixed, size);
	free(fixed);
	return 0;
}
