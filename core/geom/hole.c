/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hole.c - where the first hole of a tensor is
 *
 * Cells do not overlap, so a beginning of the tensor is whole when the parts
 * of the cells in it add up; the longest such beginning is found by halving.
 */
#include "core/geom/cursor.h"

#include "core/base/search.h"
#include "core/geom/dtype.h"

static uint64_t covered_of_cell(const struct ck_catalog *img,
				const struct ck_tensor *t,
				const struct ck_chunk *c,
				const struct ck_box *want)
{
	struct ck_chunk_walk walk;
	uint64_t sum = 0;
	struct ck_box box;

	ck_chunk_walk_init(&walk, img, c, t->grid_rank);
	while (ck_chunk_walk_next(&walk, &box))
		if (ck_box_meet(&box, want, &box))
			sum += ck_box_volume(&box);
	return sum;
}

/* Elements [0, end) of the grid that cells cover. */
static uint64_t covered_before(const struct ck_catalog *img,
			       const struct ck_tensor *t, uint64_t end)
{
	struct ck_tiling walk;
	struct ck_range r;
	struct ck_box box;
	uint64_t sum = 0;
	uint32_t cell;

	ck_range_init(&r, img->dims + t->grid, t->grid_rank, 0, end);
	while (ck_range_next(&r, &box)) {
		ck_tiling_init(&walk, img, t, &box);
		while ((cell = ck_tiling_next(&walk)) != CK_NONE)
			sum += covered_of_cell(img, t, &img->chunks[cell],
					       &box);
	}
	return sum;
}

uint64_t ck_tensor_first_hole(const struct ck_catalog *img,
			      const struct ck_tensor *t)
{
	uint64_t elem = ck_dtype_info(t->dtype)->size;
	uint64_t end = elem ? t->size / elem : 0;

	if (t->covered >= end)
		return t->size;
	return CK_LAST(i, 0, end, covered_before(img, t, i) == i) * elem;
}
