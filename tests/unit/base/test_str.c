/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/err.h"
#include "core/base/str.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
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
	/* what turns text round: U+061C, U+200F, U+202E, U+2066 */
	{ "a\xd8\x9c", "a\\xd8\\x9c" },
	{ "\xe2\x80\x8f", "\\xe2\\x80\\x8f" },
	{ "w\xe2\x80\xae"
	  "b",
	  "w\\xe2\\x80\\xaeb" },
	{ "\xe2\x81\xa6\xe2\x82\xac", "\\xe2\\x81\\xa6\xe2\x82\xac" },
	{ "\xe2\x80\x8d", "\xe2\x80\x8d" },
	/* what ends a line: U+2028, U+2029 */
	{ "\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xa7",
	  "\\xe2\\x80\\xa8\\xe2\\x80\\xa9\xe2\x80\xa7" },
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

Test(str, messages_neither)
{
	struct ck_err err;
	char name[2 * CK_ERR_MAX];

	ck_fail(&err, EINVAL, "%s: no", "w\n\xe2\x80\xae\xc2\x9b\xff\xc3\xa9");
	cr_expect_str_eq(err.msg,
			 "w\\x0a\\xe2\\x80\\xae\\xc2\\x9b\xff\xc3\xa9: no");
	/* cut where there is no more room, wherever that is */
	for (size_t n = CK_ERR_MAX - 40; n < CK_ERR_MAX; n++) {
		memset(name, 'x', n);
		strcpy(name + n, "\xe2\x80\xae\xe2\x80\xae");
		ck_fail(&err, EINVAL, "%s", name);
		cr_assert_lt(strlen(err.msg), CK_ERR_MAX);
		cr_assert_null(strstr(err.msg, "\xe2\x80\xae"));
	}
}

/* Whatever room is left when it comes, and whatever comes behind it. */
Test(str, text_of_any_length_fits)
{
	for (unsigned before = 0; before < 140; before++)
		for (unsigned len = 0; len < 140; len++) {
			struct ck_str s = { 0 };
			char want[300];

			snprintf(want, sizeof(want), "%0*d|%0*d|%d",
				 (int)before + 1, 1, (int)len + 1, 2, 3);
			ck_str_fmt(&s, "%0*d", (int)before + 1, 1);
			ck_str_fmt(&s, "|%0*d|", (int)len + 1, 2);
			ck_str_fmt(&s, "%d", 3);
			cr_assert_str_eq(s.v, want);
			cr_assert_eq(s.len, strlen(want));
			ck_str_free(&s);
		}
}

Test(str, integers_and_names_as_json)
{
	const uint64_t v[] = { 0, 9, 10, 1234567890, UINT64_MAX };
	struct ck_str s = { 0 };

	ck_str_json_u64(&s, v, 5);
	ck_str_json_u64(&s, v, 0);
	cr_expect_str_eq(s.v, "[0, 9, 10, 1234567890, 18446744073709551615][]");
	s.len = 0;
	ck_str_json(&s,
		    "a\"b\\\n\x7f"
		    "caf\xc3\xa9"
		    "z\xff",
		    13);
	cr_expect_str_eq(s.v, "\"a\\\"b\\\\\\u000a\\u007fcaf\xc3\xa9z"
			      "\\udcff\"");
	s.len = 0;
	ck_str_json(&s, "", 0);
	cr_expect_str_eq(s.v, "\"\"");
	ck_str_free(&s);
}

Test(str, labels_of_metrics)
{
	struct ck_str s = { 0 };

	ck_str_label(&s, "mount", "/a\"b\\c\n\xff");
	cr_expect_str_eq(s.v, "mount=\"/a\\\"b\\\\c\\\\x0a\\\\xff\"");
	ck_str_free(&s);
}
