/* SPDX-License-Identifier: Apache-2.0 */
/* The vectors of RFC 4648, and what is no base64. */
#include "core/parse/base64.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void expect(const char *text, const char *want)
{
	char *out = NULL;
	size_t len = 0;
	struct ck_err err;

	cr_assert_eq(ck_base64_decode(text, strlen(text), &out, &len, &err), 0,
		     "%s", err.msg);
	cr_expect_eq(len, strlen(want), "%s", text);
	cr_expect_eq(memcmp(out, want, len), 0, "%s", text);
	free(out);
}

Test(base64, vectors)
{
	expect("", "");
	expect("Zg==", "f");
	expect("Zm8=", "fo");
	expect("Zm9v", "foo");
	expect("Zm9vYg==", "foob");
	expect("Zm9vYmE=", "fooba");
	expect("Zm9vYmFy", "foobar");
	expect("+/+/", "\xfb\xff\xbf");
}

static void expect_bad(const char *text, const char *part)
{
	char *out = NULL;
	size_t len;
	struct ck_err err = { 0 };

	cr_expect_eq(ck_base64_decode(text, strlen(text), &out, &len, &err),
		     -EINVAL, "%s", text);
	cr_expect(strstr(err.msg, part), "%s", err.msg);
	cr_expect_null(out);
}

Test(base64, what_is_none)
{
	expect_bad("Zg=", "groups of 4");
	expect_bad("Z===", "character 1");
	expect_bad("Zg==Zg==", "character 2");
	expect_bad("Zm9 ", "character 3");
	expect_bad("Zm\n9", "character 2");
}
