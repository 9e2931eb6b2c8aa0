/* SPDX-License-Identifier: Apache-2.0 */
#include "core/assemble/rank_set.h"

#include <criterion/criterion.h>

static void add(struct ck_rank_set *s, const uint64_t *v, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		cr_assert(ck_rank_set_add(s, v[i]));
}

Test(rank_set, names_the_first_that_are_lacking)
{
	static const uint64_t v[] = { 9, 0, 3, 4 };
	ck_auto_rank_set struct ck_rank_set s = { 0 };
	ck_auto_str struct ck_str out = { 0 };

	add(&s, v, 4);
	cr_expect_not(ck_rank_set_sort(&s, NULL));
	cr_expect_eq(ck_rank_set_lack(&s, 0, 9, "dist-", 5, 3, &out), 6);
	cr_expect_str_eq(out.v,
			 "dist-00001, dist-00002, dist-00005 and 3 more");
	out.len = 0;
	cr_expect_eq(ck_rank_set_lack(&s, 8, 11, "", 1, 8, &out), 2);
	cr_expect_str_eq(out.v, "8, 10");
}

Test(rank_set, says_which_is_there_twice)
{
	static const uint64_t v[] = { 5, 2, 5, 2, 7 };
	ck_auto_rank_set struct ck_rank_set s = { 0 };
	ck_auto_str struct ck_str out = { 0 };
	uint64_t twice = 0;

	add(&s, v, 5);
	cr_expect(ck_rank_set_sort(&s, &twice));
	cr_expect_eq(twice, 2);
	cr_expect_eq(s.v.nr, 3);
	cr_expect_eq(ck_rank_set_lack(&s, 5, 5, "", 1, 8, &out), 0);
	cr_expect_null(out.v);
}
