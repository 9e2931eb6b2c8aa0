/* SPDX-License-Identifier: Apache-2.0 */
#include "mount-helpers/text.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct {
	const char *in, *out;
} names[] = {
	{ "model.layers.0", "model.layers.0" },
	{ "caf\xc3\xa9", "caf\xc3\xa9" },
	{ "a\nb\x1b[31m", "a\\x0ab\\x1b[31m" },
	{ "\x7f", "\\x7f" },
	{ "\xc2\x9b"
	  "31m",
	  "\\xc2\\x9b31m" },
	{ "\xff\xfe", "\\xff\\xfe" },
	{ "\xc3", "\\xc3" },
};

Test(text, nothing_that_a_terminal_obeys)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct ck_str s = { 0 };

		text_bytes(&s, names[i].in, strlen(names[i].in));
		cr_expect_str_eq(s.v, names[i].out);
		ck_str_free(&s);
	}
}

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
