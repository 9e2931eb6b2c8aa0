/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range.h - boxes, and a stretch of row-major order as boxes
 */
#ifndef CK_RANGE_H
#define CK_RANGE_H

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* Half-open along each axis: [start, start + len).  Rank 0: one element. */
struct ck_box {
	unsigned rank;
	uint64_t start[CK_MAX_RANK], len[CK_MAX_RANK];
};

/* Elements of dims[0..rank); false: it overflows CK_SIZE_MAX. */
bool ck_dims_volume(const uint64_t *dims, unsigned rank, uint64_t *out);
/* Strides of row-major order over @dims; false: overflow. */
bool ck_dims_strides(const uint64_t *dims, unsigned rank, int64_t *stride);
uint64_t ck_box_volume(const struct ck_box *box);
/*
 * -EINVAL unless [start, start + len) lies within @shape along each axis, with a
 * line that says along which one it does not.
 */
int ck_box_check(const uint64_t *start, const uint64_t *len,
		 const uint64_t *shape, unsigned rank, struct ck_err *err);
/* "[0:4, 2:8]" */
void ck_box_text(struct ck_str *s, const uint64_t *start, const uint64_t *end,
		 unsigned rank);
/* The common part; false if it is empty, and then *out means nothing. */
bool ck_box_meet(const struct ck_box *a, const struct ck_box *b,
		 struct ck_box *out);
/* Leaves of @box what lies within @shape; an empty one stays within, too. */
void ck_box_clip(struct ck_box *box, const uint64_t *shape);

/*
 * Walks the at most 2*rank+1 boxes that together are the elements [lo, hi) of
 * the row-major order of @dims, in ascending order.
 *
 *	struct ck_range r;
 *	ck_range_init(&r, dims, rank, lo, hi);
 *	while (ck_range_next(&r, &box)) ...
 */
struct ck_range {
	const uint64_t *dims;
	unsigned rank;
	uint64_t lo, hi;
};
void ck_range_init(struct ck_range *r, const uint64_t *dims, unsigned rank,
		   uint64_t lo, uint64_t hi);
bool ck_range_next(struct ck_range *r, struct ck_box *box);

/*
 * Whether @grid is a refinement of @shape: each axis of the shape is the
 * product of the next axes of the grid, so that the order of elements is the
 * same.  Then first[d] is the first grid axis of shape axis d and first[rank]
 * is @grid_rank, unless there are no elements; @first may be NULL.
 */
bool ck_grid_refines(const uint64_t *shape, unsigned rank, const uint64_t *grid,
		     unsigned grid_rank, uint8_t *first);

/* Row-major position of @at in @dims, and back. */
uint64_t ck_dims_index(const uint64_t *dims, unsigned rank, const uint64_t *at);
void ck_dims_coords(const uint64_t *dims, unsigned rank, uint64_t index,
		    uint64_t *at);

#endif
