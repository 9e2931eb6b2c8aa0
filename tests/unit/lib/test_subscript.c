/* SPDX-License-Identifier: Apache-2.0 */
#include "core/lib/subscript.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static const uint64_t shape[] = { 10, 4, 6 };

struct want {
	const char *text;
	uint64_t start[3], len[3];
	unsigned rank; /* of the result */
};

static const struct want good[] = {
	{ "2:5", { 2, 0, 0 }, { 3, 4, 6 }, 3 },
	{ "2:5,:", { 2, 0, 0 }, { 3, 4, 6 }, 3 },
	{ " 2 : 5 , : , 1 ", { 2, 0, 1 }, { 3, 4, 1 }, 2 },
	{ "2:5,:,", { 2, 0, 0 }, { 3, 4, 6 }, 3 },
	{ "...", { 0, 0, 0 }, { 10, 4, 6 }, 3 },
	{ "...,3", { 0, 0, 3 }, { 10, 4, 1 }, 2 },
	{ "0,...,3", { 0, 0, 3 }, { 1, 4, 1 }, 1 },
	{ "0,1,...,3", { 0, 1, 3 }, { 1, 1, 1 }, 0 },
	{ "0,1,3,...", { 0, 1, 3 }, { 1, 1, 1 }, 0 },
	{ "-1,-4,-6", { 9, 0, 0 }, { 1, 1, 1 }, 0 },
	{ "-3:-1", { 7, 0, 0 }, { 2, 4, 6 }, 3 },
	{ "-99:99", { 0, 0, 0 }, { 10, 4, 6 }, 3 },
	{ ":+3", { 0, 0, 0 }, { 3, 4, 6 }, 3 },
	{ "7:", { 7, 0, 0 }, { 3, 4, 6 }, 3 },
	{ "5:2", { 5, 0, 0 }, { 0, 4, 6 }, 3 },
	{ "10:", { 10, 0, 0 }, { 0, 4, 6 }, 3 },
	{ "99:", { 10, 0, 0 }, { 0, 4, 6 }, 3 },
	{ ":-99", { 0, 0, 0 }, { 0, 4, 6 }, 3 },
};

Test(slice, as_numpy_reads_it)
{
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		const struct want *w = &good[i];
		struct ck_err err = { 0 };
		struct ck_subscript s;

		cr_assert_eq(ck_subscript_parse(shape, 3, w->text,
						strlen(w->text), &s, &err),
			     0, "%s: %s", w->text, err.msg);
		cr_expect_eq(s.box.rank, 3);
		cr_expect_eq(s.rank, w->rank, "%s", w->text);
		for (unsigned d = 0; d < 3; d++) {
			cr_expect_eq(s.box.start[d], w->start[d], "%s axis %u",
				     w->text, d);
			cr_expect_eq(s.box.len[d], w->len[d], "%s axis %u",
				     w->text, d);
		}
	}
}

Test(slice, shape_of_the_result)
{
	const char *text = "2:5, 1, ...";
	struct ck_subscript s;

	cr_assert_eq(ck_subscript_parse(shape, 3, text, strlen(text), &s, NULL),
		     0);
	cr_assert_eq(s.rank, 2);
	cr_expect_eq(s.shape[0], 3);
	cr_expect_eq(s.shape[1], 6);
	ck_subscript_whole(shape, 3, &s);
	cr_assert_eq(s.rank, 3);
	cr_expect_eq(s.shape[1], 4);
	cr_expect_eq(ck_box_volume(&s.box), 240);
}

Test(slice, scalar)
{
	struct ck_err err;
	struct ck_subscript s;

	cr_expect_eq(ck_subscript_parse(NULL, 0, "...", 3, &s, &err), 0);
	cr_expect_eq(ck_box_volume(&s.box), 1);
	cr_expect_eq(ck_subscript_parse(NULL, 0, "0", 1, &s, &err), -EINVAL);
}

static const struct {
	const char *text, *says;
} wrong[] = {
	{ "", "nothing between" },
	{ "  ", "nothing between" },
	{ "2:5:2", "steps" },
	{ "::", "steps" },
	{ "::-1", "steps" },
	{ "10", "axis 0 has 10" },
	{ "-11", "axis 0 has 10" },
	{ "-0", "axis 0 has 10" },
	{ ":,:,:,:", "4 axes of a tensor that has 3" },
	{ "...,...", "two" },
	{ "a", "whole number" },
	{ "1,,2", "whole number" },
	{ ",", "whole number" },
	{ "1.5", "whole number" },
	{ "0x1", "whole number" },
	{ "1:b", "around the colon" },
	{ "-:", "around the colon" },
	{ "--1:", "around the colon" },
	{ "1 2:", "around the colon" },
	{ "99999999999999999999999:", "around the colon" },
	{ "None", "whole number" },
	{ "[0]", "whole number" },
};

Test(slice, what_is_refused)
{
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const char *text = wrong[i].text;
		struct ck_err err = { 0 };
		struct ck_subscript s;

		cr_assert_eq(ck_subscript_parse(shape, 3, text, strlen(text),
						&s, &err),
			     -EINVAL, "\"%s\"", text);
		cr_expect(strstr(err.msg, wrong[i].says), "\"%s\": %s", text,
			  err.msg);
	}
}

Test(slice, more_items_than_axes_can_be)
{
	char text[400];
	struct ck_err err;
	struct ck_subscript s;

	memset(text, ',', sizeof(text));
	for (size_t i = 0; i < sizeof(text); i += 2)
		text[i] = ':';
	cr_expect_eq(ck_subscript_parse(shape, 3, text, sizeof(text), &s, &err),
		     -EINVAL);
}
