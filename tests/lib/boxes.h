/* SPDX-License-Identifier: Apache-2.0 */
/* boxes.h - whether two boxes are the same */
#ifndef TEST_BOXES_H
#define TEST_BOXES_H

#include "core/geom/range.h"

#include <stdbool.h>
#include <string.h>

static inline bool box_equal(const struct ck_box *a, const struct ck_box *b)
{
	size_t bytes = a->rank * sizeof(a->start[0]);

	return a->rank == b->rank && !memcmp(a->start, b->start, bytes) &&
	       !memcmp(a->len, b->len, bytes);
}

#endif
