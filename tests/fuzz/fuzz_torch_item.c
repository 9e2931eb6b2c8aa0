/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_torch_item.c - any bytes as an item: archive, pickle and tensor
 *
 * What is accepted may be read: no element may lie outside the payload, nor
 * the payload outside the item.
 */
#include "core/base/check.h"
#include "core/container/torch_item.h"
#include "tests/lib/memsource.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_item(const struct ck_torch_item *t, uint64_t size)
{
	uint64_t es = ck_dtype_info(t->dtype)->size;
	__int128 low = (__int128)t->storage_offset, high = low;

	if (!es || t->rank > 64 ||
	    !ck_range_ok(t->payload_off, t->payload_len, size))
		abort();
	for (unsigned d = 0; d < t->rank; d++) {
		__int128 reach;

		if (!t->shape[d])
			return;
		reach = (__int128)(t->shape[d] - 1) * t->stride[d];
		low += reach < 0 ? reach : 0;
		high += reach > 0 ? reach : 0;
	}
	if (low < 0 || (high + 1) * (__int128)es > (__int128)t->payload_len)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ck_source *src = memsource(data, size, "item");
	struct ck_torch_item item;
	struct ck_err err = { 0 };

	if (!src)
		return 0;
	if (!ck_torch_item_read(src, 0, size, &item, &err))
		check_item(&item, size);
	else if (!err.msg[0])
		abort();
	ck_source_close(src);
	return 0;
}
