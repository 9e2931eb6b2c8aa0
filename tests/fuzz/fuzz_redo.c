/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_redo.c - any bytes as the end of a redo file, and again with lengths and
 * a sum that fit
 */
#include "core/redo/redo.h"

#include "core/base/le.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES 1000 /* before it */

static void parse(const uint8_t *tail, size_t size)
{
	struct ck_redo_left left = { .fd = -1 };
	struct ck_err err = { 0 };
	struct ck_redo_part p;
	uint64_t nr = 0;

	if (ck_redo_parse(&left, tail, size, size + BYTES, &err)) {
		if (!err.code || !err.msg[0])
			abort();
		return;
	}
	for (; ck_redo_part(&left, &p); nr++)
		if (p.at > BYTES || p.len > BYTES - p.at || p.off > p.size ||
		    p.len > p.size - p.off || strlen(p.name) > p.name_len ||
		    strlen(p.tree) > p.tree_len)
			abort();
	if (nr != left.nr)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *fixed, *end;

	parse(data, size);
	if (size < CK_REDO_TRAILER)
		return 0;
	fixed = malloc(size);
	if (!fixed)
		return 0;
	memcpy(fixed, data, size);
	end = fixed + size - CK_REDO_TRAILER;
	ck_le64_put(end + 16, BYTES);
	ck_le64_put(end + 24, size - CK_REDO_TRAILER);
	ck_le64_put(fixed + size - 8, XXH3_64bits(fixed, size - 8));
	parse(fixed, size);
	free(fixed);
	return 0;
}
