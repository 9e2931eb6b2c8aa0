/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/crc32.h"

#include <criterion/criterion.h>

Test(crc32, known_values)
{
	cr_expect_eq(ck_crc32(0, "", 0), 0);
	cr_expect_eq(ck_crc32(0, "123456789", 9), 0xcbf43926);
	cr_expect_eq(
		ck_crc32(0, "The quick brown fox jumps over the lazy dog", 43),
		0x414fa339);
}

Test(crc32, in_pieces_as_at_once)
{
	unsigned char bytes[300];
	uint32_t all;

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 37 + (i >> 3));
	all = ck_crc32(0, bytes, sizeof(bytes));
	for (unsigned cut = 0; cut < sizeof(bytes); cut++)
		cr_expect_eq(ck_crc32(ck_crc32(0, bytes, cut), bytes + cut,
				      sizeof(bytes) - cut),
			     all, "%u", cut);
}

Test(crc32, two_parts_joined_as_one)
{
	unsigned char bytes[300];
	uint32_t all;

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 91 + 5);
	all = ck_crc32(0, bytes, sizeof(bytes));
	for (unsigned cut = 0; cut <= sizeof(bytes); cut++) {
		uint32_t a = ck_crc32(0, bytes, cut);
		uint32_t b = ck_crc32(0, bytes + cut, sizeof(bytes) - cut);

		cr_expect_eq(ck_crc32_shift(a, sizeof(bytes) - cut) ^ b, all,
			     "%u", cut);
	}
	/* much more than 32 bits of length */
	cr_expect_eq(
		ck_crc32_shift(ck_crc32_shift(0x1234, UINT64_C(1) << 40), 5),
		ck_crc32_shift(0x1234, (UINT64_C(1) << 40) + 5));
}
