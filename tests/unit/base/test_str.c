/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/str.h"

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

Test(str, nothing_that_a_terminal_obeys)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct ck_str s = { 0 };

		ck_str_plain(&s, names[i].in, strlen(names[i].in));
		cr_expect_str_eq(s.v, names[i].out);
		ck_str_free(&s);
	}
}
