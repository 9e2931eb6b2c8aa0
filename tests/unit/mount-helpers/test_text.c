/* SPDX-License-Identifier: Apache-2.0 */
#include "mount-helpers/text.h"

#include <criterion/criterion.h>
#include <string.h>

static void expect_size(uint64_t bytes, const char *want)
{
	struct ck_str s = { 0 };

	text_size(&s, bytes);
	cr_expect_str_eq(s.v, want);
	ck_str_free(&s);
}

Test(text, sizes)
{
	expect_size(0, "0 bytes");
	expect_size(1023, "1023 bytes");
	expect_size(1024, "1.0 KiB");
	expect_size(UINT64_C(117440512), "112.0 MiB");
	expect_size((UINT64_C(1) << 20) - 1, "1.0 MiB");
	expect_size(UINT64_C(1) << 62, "4.0 EiB");
}
