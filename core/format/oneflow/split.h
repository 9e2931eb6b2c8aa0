/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.h - how OneFlow cuts a tensor over a hierarchy of devices
 *
 * A placement is ranks in a grid, the hierarchy; each of its axes has one
 * SBP.  The parallel id of a rank is its row-major place in the grid.  Axis
 * 0 cuts first, the next axis cuts what is left, each by the balanced rule.
 */
#ifndef CK_ONEFLOW_SPLIT_H
#define CK_ONEFLOW_SPLIT_H

#include "core/base/err.h"
#include "core/base/limits.h"

#include <stdbool.h>
#include <stdint.h>

#define CK_OF_MAX_AXES 8
#define CK_OF_BROADCAST (-1)
#define CK_OF_PARTIAL (-2)

struct ck_of_nd {
	unsigned axes;
	uint32_t size[CK_OF_MAX_AXES]; /* not 0; the product is under 2^31 */
	int32_t sbp[CK_OF_MAX_AXES]; /* the dimension that is split, or above */
};

/* Part @i of @n rows over @k parts: the first n % k have one more. */
void ck_of_balanced(uint64_t n, uint64_t k, uint64_t i, uint64_t *start,
		    uint64_t *len);
uint32_t ck_of_nd_nr(const struct ck_of_nd *nd);
/* The range of dimension @d, of @n rows, that parallel id @id holds. */
void ck_of_nd_range(const struct ck_of_nd *nd, unsigned d, uint64_t n,
		    uint32_t id, uint64_t *start, uint64_t *len);
/* Whether ids @a and @b hold the same box of any tensor. */
bool ck_of_nd_same(const struct ck_of_nd *nd, uint32_t a, uint32_t b);

/*
 * The full shape, from what the parts say of theirs: local[id] is rank
 * values, or NULL where there is no part.  -EINVAL with a line where a box is
 * held by no part, or where the parts are not cut as @nd says; *id is then
 * the parallel id that it is about.
 */
int ck_of_nd_shape(const struct ck_of_nd *nd, unsigned rank,
		   const uint64_t *const *local, uint64_t *shape, uint32_t *id,
		   struct ck_err *err);

#endif
