/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/check.h"
#include "core/geom/range.h"
#include "tests/lib/boxes.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static uint64_t rnd(unsigned *seed, uint64_t n)
{
	return (uint64_t)rand_r(seed) % n;
}

/* Marks the elements of @box one by one; they must come in ascending order. */
static uint64_t visit(const uint64_t *dims, const struct ck_box *box,
		      uint64_t expect)
{
	uint64_t at[8], volume = ck_box_volume(box);

	for (uint64_t i = 0; i < volume; i++) {
		uint64_t left = i, index = 0;

		for (unsigned d = box->rank; d-- > 0;) {
			at[d] = box->start[d] + left % box->len[d];
			left /= box->len[d];
			cr_assert_lt(at[d], dims[d]);
		}
		for (unsigned d = 0; d < box->rank; d++)
			index = index * dims[d] + at[d];
		cr_assert_eq(index, expect++);
	}
	return expect;
}

Test(range, boxes_are_the_stretch_in_order)
{
	unsigned seed = 1;

	for (int round = 0; round < 3000; round++) {
		unsigned rank = (unsigned)rnd(&seed, 7), boxes = 0;
		uint64_t dims[8], volume = 1, lo, hi, seen;
		struct ck_range r;
		struct ck_box box;

		for (unsigned d = 0; d < rank; d++)
			volume *= dims[d] = 1 + rnd(&seed, 5);
		lo = rnd(&seed, volume + 1);
		hi = lo + rnd(&seed, volume - lo + 1);
		seen = lo;
		ck_range_init(&r, dims, rank, lo, hi);
		while (ck_range_next(&r, &box)) {
			cr_assert_eq(box.rank, rank);
			seen = visit(dims, &box, seen);
			boxes++;
		}
		cr_assert_eq(seen, hi);
		cr_assert_leq(boxes, 2 * rank + 1);
	}
}

Test(range, whole_is_one_box)
{
	const uint64_t dims[] = { 3, 1, 5, 7 };
	struct ck_range r;
	struct ck_box box;

	ck_range_init(&r, dims, 4, 0, 105);
	cr_assert(ck_range_next(&r, &box));
	cr_expect_eq(ck_box_volume(&box), 105);
	cr_expect_not(ck_range_next(&r, &box));
	ck_range_init(&r, dims, 0, 0, 1);
	cr_assert(ck_range_next(&r, &box));
	cr_expect_eq(box.rank, 0);
	cr_expect_not(ck_range_next(&r, &box));
}

Test(range, index_and_coords)
{
	const uint64_t dims[] = { 4, 5, 6 };
	uint64_t at[3];

	for (uint64_t i = 0; i < 120; i++) {
		ck_dims_coords(dims, 3, i, at);
		cr_assert_eq(at[0] * 30 + at[1] * 6 + at[2], i);
		cr_assert_eq(ck_dims_index(dims, 3, at), i);
	}
}

Test(range, volume)
{
	const uint64_t big[] = { UINT64_C(1) << 40, UINT64_C(1) << 40, 0 };
	uint64_t v = 77;

	cr_expect(ck_dims_volume(big, 3, &v));
	cr_expect_eq(v, 0);
	v = 77;
	cr_expect_not(ck_dims_volume(big, 2, &v));
	cr_expect_eq(v, 77);
	cr_expect(ck_dims_volume(big, 1, &v));
	cr_expect_eq(v, UINT64_C(1) << 40);
	cr_expect(ck_dims_volume(NULL, 0, &v));
	cr_expect_eq(v, 1);
}

Test(range, meet)
{
	struct ck_box a = { 2, { 0, 4 }, { 5, 4 } };
	struct ck_box b = { 2, { 3, 0 }, { 9, 6 } };
	struct ck_box want = { 2, { 3, 4 }, { 2, 2 } };
	struct ck_box away = { 2, { 5, 0 }, { 1, 99 } };
	struct ck_box none = { 0 }, out;

	cr_expect(ck_box_meet(&a, &b, &out));
	cr_expect(box_equal(&out, &want));
	cr_expect_not(ck_box_meet(&a, &away, &out));
	cr_expect(ck_box_meet(&a, &b, &a), "in place");
	cr_expect(box_equal(&a, &want));
	cr_expect(ck_box_meet(&none, &none, &out), "rank 0 is one element");
	cr_expect_eq(ck_box_volume(&out), 1);
}

#define REFINES(shape, grid, first)                                    \
	ck_grid_refines(shape, sizeof(shape) / sizeof(uint64_t), grid, \
			sizeof(grid) / sizeof(uint64_t), first)

Test(range, grid_refines_shape)
{
	const uint64_t shape[] = { 24, 1, 10 };
	const uint64_t fine[] = { 2, 3, 4, 1, 5, 2 };
	const uint64_t other[] = { 2, 3, 8, 5 }, wrong[] = { 24, 11 };
	const uint64_t less[] = { 24 }, more[] = { 24, 10, 2 };
	const uint64_t huge[] = { UINT64_C(1) << 40, UINT64_C(1) << 40 };
	const uint64_t none[] = { 0, 7 }, none_too[] = { 9, 0, 4 };
	uint8_t first[4] = { 9, 9, 9, 9 };

	cr_expect(REFINES(shape, fine, first));
	cr_expect_eq(first[0], 0);
	cr_expect_eq(first[2], 4);
	cr_expect_eq(first[3], 6);
	cr_expect(REFINES(shape, shape, NULL));
	cr_expect_not(REFINES(shape, other, NULL), "order would differ");
	cr_expect_not(REFINES(shape, wrong, NULL));
	cr_expect_not(REFINES(shape, less, NULL));
	cr_expect_not(REFINES(shape, more, NULL));
	cr_expect_not(REFINES(shape, huge, NULL));
	cr_expect(REFINES(none, none_too, NULL), "no elements either way");
	cr_expect_not(REFINES(shape, none, NULL));
	cr_expect(ck_grid_refines(NULL, 0, NULL, 0, NULL));
}
