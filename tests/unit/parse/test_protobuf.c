/* SPDX-License-Identifier: Apache-2.0 */
#include "core/parse/protobuf.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct ck_pb pb;
static struct ck_pb_field f;
static struct ck_err err;

static void start(const void *bytes, size_t len)
{
	const struct ck_pb_in in = { ck_pb_read_mem, (void *)bytes, len };

	ck_pb_init(&pb, &in, len);
}

static void expect_bad(const void *bytes, size_t len, const char *word)
{
	int ret;

	start(bytes, len);
	while ((ret = ck_pb_next(&pb, &f, &err)) > 0)
		;
	cr_expect_eq(ret, -EINVAL, "%s", word);
	cr_expect(strstr(err.msg, word), "\"%s\" lacks \"%s\"", err.msg, word);
}

Test(protobuf, every_wire_type)
{
	static const char bytes[] =
		"\x08\x96\x01" /* 1: 150 */
		"\x11\1\2\3\4\5\6\7\x08" /* 2: 8 bytes */
		"\x1a\2hi" /* 3: "hi" */
		"\x25\1\0\0\x80" /* 4: 4 bytes */
		"\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\1";
	char text[2];

	start(bytes, sizeof(bytes) - 1);
	cr_assert_eq(ck_pb_next(&pb, &f, &err), 1);
	cr_expect(f.number == 1 && f.wire == CK_PB_VARINT && f.value == 150);
	cr_assert_eq(ck_pb_next(&pb, &f, &err), 1);
	cr_expect(f.number == 2 && f.value == UINT64_C(0x0807060504030201));
	cr_assert_eq(ck_pb_next(&pb, &f, &err), 1);
	cr_expect(f.number == 3 && f.wire == CK_PB_LEN && f.len == 2);
	cr_expect_eq(ck_pb_bytes(&pb, &f, text, 2, &err), 0);
	cr_expect_eq(memcmp(text, "hi", 2), 0);
	cr_expect_eq(ck_pb_bytes(&pb, &f, text, 1, &err), -EINVAL);
	cr_assert_eq(ck_pb_next(&pb, &f, &err), 1);
	cr_expect(f.number == 4 && f.value == 0x80000001);
	cr_assert_eq(ck_pb_next(&pb, &f, &err), 1);
	cr_expect(f.number == 5 && (int64_t)f.value == -1);
	cr_expect_eq(ck_pb_next(&pb, &f, &err), 0);
}

Test(protobuf, what_is_no_field)
{
	expect_bad("\x0b", 1, "wire type 3");
	expect_bad("\x0c", 1, "wire type 4");
	expect_bad("\x00\x00", 2, "number 0");
	expect_bad("\x08\xff", 2, "inside a number");
	expect_bad("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11,
		   "64 bits");
	expect_bad("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 12,
		   "64 bits");
	expect_bad("\x0a\x03hi", 4, "has 2 left");
	expect_bad("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11,
		   "message has 0 left");
	expect_bad("\x09\1\2", 3, "inside a number");
}

Test(protobuf, messages_in_messages)
{
	unsigned char bytes[2 * CK_PB_DEPTH];
	int ret = 0;
	unsigned n;

	for (n = 0; n < CK_PB_DEPTH; n++) {
		bytes[2 * n] = 0x0a;
		bytes[2 * n + 1] = (unsigned char)(2 * (CK_PB_DEPTH - 1 - n));
	}
	start(bytes, sizeof(bytes));
	for (n = 0; !ret; n++) {
		cr_assert_eq(ck_pb_next(&pb, &f, &err), 1);
		ret = ck_pb_enter(&pb, &f, &err);
	}
	cr_expect_eq(n, CK_PB_DEPTH);
	cr_expect(strstr(err.msg, "deeper"), "%s", err.msg);
	for (; n > 1; n--)
		ck_pb_leave(&pb);
	cr_expect_eq(ck_pb_next(&pb, &f, &err), 0);
}

/* A message may claim more than there is: its fields are still listed. */
Test(protobuf, fields_past_the_end_of_the_input)
{
	static const char bytes[] = "\x0a\x64\x08\x01\x12\x60";
	const struct ck_pb_in in = { ck_pb_read_mem, (void *)bytes, 6 };
	char text[96];

	ck_pb_init(&pb, &in, UINT64_C(1) << 62);
	cr_assert_eq(ck_pb_next(&pb, &f, &err), 1);
	cr_assert_eq(ck_pb_enter(&pb, &f, &err), 0);
	cr_assert_eq(ck_pb_next(&pb, &f, &err), 1);
	cr_assert_eq(ck_pb_next(&pb, &f, &err), 1);
	cr_expect(f.number == 2 && f.off == 6 && f.len == 96);
	cr_expect_eq(ck_pb_bytes(&pb, &f, text, 96, &err), -EINVAL);
	cr_expect_eq(ck_pb_next(&pb, &f, &err), 0, "all of 100 bytes is seen");
	ck_pb_leave(&pb);
	cr_expect_eq(ck_pb_next(&pb, &f, &err), 0);
}

Test(protobuf, packed_numbers)
{
	uint64_t value;

	start("\x0a\x03\x01\xac\x02", 5);
	cr_assert_eq(ck_pb_next(&pb, &f, &err), 1);
	cr_assert_eq(ck_pb_enter(&pb, &f, &err), 0);
	cr_assert_eq(ck_pb_packed(&pb, &value, &err), 1);
	cr_expect_eq(value, 1);
	cr_assert_eq(ck_pb_packed(&pb, &value, &err), 1);
	cr_expect_eq(value, 300);
	cr_expect_eq(ck_pb_packed(&pb, &value, &err), 0);
}
