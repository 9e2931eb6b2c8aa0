/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_protobuf.c - any bytes as messages, entered wherever that is possible
 *
 * The first byte says how far the outermost message goes past the input.
 */
#include "core/base/check.h"
#include "core/parse/protobuf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(struct ck_pb *pb)
{
	struct ck_pb_field f;
	struct ck_err err = { 0 };
	unsigned char text[64];
	uint64_t before = 0, value;
	int ret;

	for (;;) {
		ret = ck_pb_next(pb, &f, &err);
		if (ret < 0 && !err.msg[0])
			abort();
		if (ret < 0 || (!ret && !pb->depth))
			return;
		if (!ret) {
			ck_pb_leave(pb);
			continue;
		}
		if (pb->pos < before && f.wire != CK_PB_LEN)
			abort();
		before = pb->pos;
		if (f.wire != CK_PB_LEN)
			continue;
		if (!ck_range_ok(f.off, f.len, pb->end[pb->depth]))
			abort();
		ck_pb_bytes(pb, &f, text, sizeof(text), NULL);
		if (f.number % 4 == 0 && !ck_pb_enter(pb, &f, NULL)) {
			while (ck_pb_packed(pb, &value, NULL) > 0)
				;
			ck_pb_leave(pb);
		} else if (f.len && f.number % 4 < 3 &&
			   ck_pb_enter(pb, &f, NULL)) {
			return;
		}
		before = 0;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct ck_pb_in in = { .read = ck_pb_read_mem,
				     .ctx = (void *)(uintptr_t)(data + 1),
				     .size = size ? size - 1 : 0 };
	struct ck_pb pb;

	if (!size)
		return 0;
	ck_pb_init(&pb, &in, in.size + data[0]);
	walk(&pb);
	return 0;
}
