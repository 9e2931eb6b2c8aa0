/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ckpt/ckpt_priv.h"

#include "core/container/torch_item.h"

#include <criterion/criterion.h>

#define DIMS(...)                          \
	(const uint64_t[]){ __VA_ARGS__ }, \
		sizeof((uint64_t[]){ __VA_ARGS__ }) / 8
#define STRIDES(...)        \
	(const int64_t[])   \
	{                   \
		__VA_ARGS__ \
	}

static struct ck_torch_item item(const uint64_t *shape, unsigned rank,
				 const int64_t *stride)
{
	struct ck_torch_item it = { .rank = rank };

	for (unsigned d = 0; d < rank; d++) {
		it.shape[d] = shape[d];
		it.stride[d] = stride[d];
	}
	return it;
}

static void item_axes(struct ck_torch_item it, const uint64_t *lens,
		      unsigned rank, const int64_t *want)
{
	int64_t got[64];

	cr_assert(ck_item_match_axes(&it, lens, rank, got));
	for (unsigned d = 0; d < rank; d++)
		cr_expect(got[d] == want[d], "axis %u: %ld, expected %ld", d,
			  (long)got[d], (long)want[d]);
}

static void fits_not(struct ck_torch_item it, const uint64_t *lens,
		     unsigned rank)
{
	int64_t got[64];

	cr_expect(!ck_item_match_axes(&it, lens, rank, got));
}

Test(item_axes, the_same_shape)
{
	item_axes(item(DIMS(4, 6), STRIDES(6, 1)), DIMS(4, 6), STRIDES(6, 1));
	item_axes(item(DIMS(4, 6), STRIDES(1, 4)), DIMS(4, 6), STRIDES(1, 4));
	item_axes(item(DIMS(4, 6), STRIDES(0, 2)), DIMS(4, 6), STRIDES(0, 2));
	item_axes(item(NULL, 0, NULL), NULL, 0, NULL);
}

Test(item_axes, axes_of_one_element_count_nothing)
{
	item_axes(item(DIMS(1), STRIDES(9)), NULL, 0, NULL);
	item_axes(item(NULL, 0, NULL), DIMS(1, 1), STRIDES(0, 0));
	item_axes(item(DIMS(4, 1, 6), STRIDES(6, 77, 1)), DIMS(1, 4, 6),
		  STRIDES(0, 6, 1));
}

Test(item_axes, an_axis_cut_into_several)
{
	item_axes(item(DIMS(24, 5), STRIDES(5, 1)), DIMS(2, 3, 4, 5),
		  STRIDES(60, 20, 5, 1));
	item_axes(item(DIMS(24, 5), STRIDES(1, 24)), DIMS(2, 3, 4, 5),
		  STRIDES(12, 4, 1, 24));
}

Test(item_axes, several_axes_joined)
{
	item_axes(item(DIMS(2, 3, 4), STRIDES(12, 4, 1)), DIMS(24), STRIDES(1));
	item_axes(item(DIMS(2, 3, 4), STRIDES(36, 12, 3)), DIMS(6, 4),
		  STRIDES(12, 3));
	/* [2, 6] seen as [4, 3]: the outer 4 is 2 x 2 */
	item_axes(item(DIMS(2, 6), STRIDES(6, 1)), DIMS(4, 3), STRIDES(3, 1));
}

Test(item_axes, other_shapes_do_not)
{
	fits_not(item(DIMS(4, 6), STRIDES(6, 1)), DIMS(4, 5));
	fits_not(item(DIMS(4, 6), STRIDES(6, 1)), DIMS(6));
	fits_not(item(DIMS(4, 6), STRIDES(6, 1)), DIMS(2, 4, 6));
	fits_not(item(DIMS(6), STRIDES(1)), DIMS(4, 6));
	fits_not(item(NULL, 0, NULL), DIMS(2));
	fits_not(item(DIMS(2), STRIDES(1)), NULL, 0);
	fits_not(item(DIMS(0, 6), STRIDES(6, 1)), DIMS(4, 6));
	/* transposed: its axes are no single stretch */
	fits_not(item(DIMS(4, 6), STRIDES(1, 4)), DIMS(24));
	fits_not(item(DIMS(4, 6), STRIDES(1, 4)), DIMS(8, 3));
}

/* Strides of an item of no elements are whatever a file says. */
Test(item_axes, strides_that_overflow_fit_nothing)
{
	fits_not(item(DIMS(0, 2), STRIDES(9, INT64_MAX / 2 + 1)), DIMS(2));
	fits_not(item(DIMS(2, 4), STRIDES(0, INT64_MAX / 2)), DIMS(8));
}
