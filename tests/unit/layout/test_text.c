/* SPDX-License-Identifier: Apache-2.0 */
/* Names with variables in them. */
#include "core/layout/text.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

static const char *expand(const char *text, int want)
{
	static char result[128];
	const struct ck_layout_mesh mesh = {
		.axis = { { "pp", 4 }, { "tp", 8 } }, .nr = 2, .nr_ranks = 32
	};
	const uint64_t at[] = { 3, CK_LAYOUT_FREE };
	const struct ck_layout_vars v = {
		.mesh = &mesh,
		.at = at,
		.rank = 29,
		.key = { "k.w", 3 },
		.cap = { { "12.up", 5 }, { "12", 2 }, { "up", 2 } },
		.nr_cap = 3
	};
	struct ck_str s = { 0 };
	struct ck_err err = { 0 };
	int ret = ck_layout_expand(text, &v, &s, NULL, &err);

	cr_expect_eq(ret, want, "%s: %s", text, err.msg);
	snprintf(result, sizeof(result), "%s", s.v ? s.v : "");
	ck_str_free(&s);
	return result;
}

Test(layout_text, sums_widths_and_captures)
{
	cr_expect_str_eq(expand("r{rank:05}.{pp}", 0), "r00029.3");
	cr_expect_str_eq(expand("l.{$1+16*pp}.{$2}", 0), "l.60.up");
	cr_expect_str_eq(expand("{rank/8}-{rank%8}-{7-2*3}", 0), "3-5-1");
	cr_expect_str_eq(expand("{{{key}}}", 0), "{k.w}");
	cr_expect_str_eq(expand("", 0), "");
	expand("{tp}", -EINVAL); /* nothing says it */
	expand("{2-pp}", -EINVAL);
	expand("{1/0}", -EINVAL);
	expand("{$2+1}", -EINVAL);
	expand("{$3}", -EINVAL);
	expand("{", -EINVAL);
	expand("}", -EINVAL);
	expand("{}", -EINVAL);
	expand("{rank:5}", -EINVAL);
	expand("{9223372036854775807+1}", -EINVAL);
	expand("{pp pp}", -EINVAL);
}
