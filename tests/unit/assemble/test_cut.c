/* SPDX-License-Identifier: Apache-2.0 */
#include "core/assemble/cut.h"

#include <criterion/criterion.h>
#include <errno.h>

/* Rank r of a fused layer, row by row, against plain loops. */
Test(cut, parts_are_shared_one_by_one)
{
	const uint64_t parts[] = { 6, 2, 4 }, shard[] = { 6, 3 };
	const uint64_t first[] = { 0, 6, 8 };

	for (uint64_t at = 0; at < 2; at++) {
		struct ck_cut c;
		uint64_t row = 0;

		cr_assert_eq(
			ck_cut_parts(&c, shard, 2, 0, parts, 3, at, 2, NULL),
			0);
		cr_expect_eq(c.whole[0], 12);
		cr_expect_eq(c.whole[1], 3);
		cr_assert_eq(c.pieces.nr, 3);
		for (unsigned i = 0; i < 3; i++) {
			const struct ck_cut_piece *p = &c.pieces.v[i];

			cr_expect_eq(p->len[0], parts[i] / 2);
			cr_expect_eq(p->len[1], 3);
			cr_expect_eq(p->whole[0], first[i] + at * parts[i] / 2);
			cr_expect_eq(p->shard[0], row);
			row += p->len[0];
		}
		ck_cut_free(&c);
	}
}

Test(cut, parts_that_do_not_fit)
{
	const uint64_t odd[] = { 5, 7 }, few[] = { 4, 4 }, shard[] = { 6, 3 };
	const uint64_t huge[] = { UINT64_MAX - 1, 4 };
	struct ck_err err = { 0 };
	struct ck_cut c;

	cr_expect_eq(ck_cut_parts(&c, shard, 2, 0, odd, 2, 0, 2, &err),
		     -EINVAL);
	ck_cut_free(&c);
	cr_expect_eq(ck_cut_parts(&c, shard, 2, 0, few, 2, 0, 2, &err),
		     -EINVAL);
	ck_cut_free(&c);
	cr_expect_eq(ck_cut_parts(&c, shard, 2, 2, few, 2, 0, 2, &err),
		     -EINVAL);
	ck_cut_free(&c);
	cr_expect_eq(ck_cut_parts(&c, shard, 2, 0, huge, 2, 0, 2, &err),
		     -EINVAL);
	ck_cut_free(&c);
	cr_expect_eq(ck_cut_parts(&c, shard, 2, 0, few, 2, 2, 2, &err),
		     -EINVAL);
	ck_cut_free(&c);
}
