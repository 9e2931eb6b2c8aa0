/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_save.c - any bytes as what ranks have declared that they will save
 *
 * Each rank's text ends with a NUL, and there are as many ranks as texts.
 */
#include "core/save/save_priv.h"

#include "core/base/auto.h"
#include "core/slices/slices_plan.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RANKS 8

/* What all agree on can be planned, or is refused with a line. */
static void plan(const char *format, const struct ck_str *layout)
{
	struct ck_str out = { 0 };
	struct ck_err err = { 0 };
	struct ck_slice_plan p;
	char *copy;

	if (ck_slice_plan_make(&out, "x", layout->v, layout->len, format,
			       &err)) {
		if (!err.msg[0])
			abort();
		ck_str_free(&out);
		return;
	}
	copy = malloc(out.len);
	if (copy) {
		memcpy(copy, out.v, out.len);
		if (ck_slice_plan_take(&p, copy, out.len, &err))
			abort(); /* what was planned is taken */
		ck_slice_plan_free(&p);
	}
	ck_str_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ck_save_text text[RANKS];
	struct ck_str layout = { 0 }, extras = { 0 };
	struct ck_err err = { 0 };
	const char *format = size && data[0] % 2 ? "safetensors" : "dcp";
	ck_auto_free char *copy = malloc(size + 1);
	char *at = copy;
	uint32_t ranks = 0;

	if (!copy || !size)
		return 0;
	memcpy(copy, data, size);
	copy[size] = '\0';
	while (ranks < RANKS && at < copy + size) {
		text[ranks] =
			(struct ck_save_text){ .v = at, .len = strlen(at) };
		at += text[ranks++].len + 1;
	}
	if (!ck_save_merge(text, ranks, format, &layout, &extras, &err))
		plan(format, &layout);
	else if (!err.msg[0])
		abort();
	ck_str_free(&layout);
	ck_str_free(&extras);
	return 0;
}
