/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_item_axes.c - the axes of a stored item against those of a box
 *
 * Both list the same elements in the same order, but may cut them into other
 * axes: a box lies in the tensor's grid, an item has the shape it was saved
 * with.  Walks both from the innermost axis outward.
 */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/check.h"
#include "core/container/torch_item.h"

/* An axis of the item that is being cut into, or joined to, box axes. */
struct axis {
	unsigned left; /* axes of the item not looked at yet */
	uint64_t n; /* elements along it that no box axis took yet */
	int64_t stride;
};

static bool next_axis(const struct ck_torch_item *item, struct axis *a)
{
	while (a->left > 0 && item->shape[a->left - 1] == 1)
		a->left--;
	if (!a->left)
		return false;
	a->left--;
	a->n = item->shape[a->left];
	a->stride = item->stride[a->left];
	return true;
}

/* Joins outer axes of the item until @need elements are in one stride. */
static bool join(const struct ck_torch_item *item, struct axis *a,
		 uint64_t need)
{
	while (need % a->n == 0 && need != a->n) {
		struct axis outer = *a;
		int64_t step;
		uint64_t n;

		if (!next_axis(item, &outer) ||
		    __builtin_mul_overflow(a->stride, a->n, &step) ||
		    outer.stride != step || !ck_mul_ok(a->n, outer.n, &n))
			return false;
		a->left = outer.left;
		a->n = n;
		if (n % need == 0)
			break;
	}
	return a->n % need == 0;
}

bool ck_item_match_axes(const struct ck_torch_item *item, const uint64_t *lens,
			unsigned rank, int64_t *stride)
{
	struct axis a = { .left = item->rank, .n = 1 };

	for (unsigned d = rank; d-- > 0;) {
		stride[d] = 0;
		if (lens[d] == 1)
			continue;
		if (a.n == 1 && !next_axis(item, &a))
			return false;
		if (!lens[d] || !a.n || !join(item, &a, lens[d]))
			return false;
		stride[d] = a.stride;
		a.n /= lens[d];
		if (__builtin_mul_overflow(a.stride, lens[d], &a.stride))
			return false; /* of no elements: nobody looked at it */
	}
	return a.n == 1 && !next_axis(item, &a);
}
