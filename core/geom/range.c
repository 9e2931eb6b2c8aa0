/* SPDX-License-Identifier: Apache-2.0 */
/* range.c - boxes, and stretches of row-major order cut into boxes */
#include "core/geom/range.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

bool ck_dims_volume(const uint64_t *dims, unsigned rank, uint64_t *out)
{
	uint64_t volume = 1;

	for (unsigned d = 0; d < rank; d++) {
		if (dims[d] == 0) {
			*out = 0;
			return true;
		}
	}
	for (unsigned d = 0; d < rank; d++)
		if (!ck_mul_ok(volume, dims[d], &volume))
			return false;
	*out = volume;
	return true;
}

bool ck_dims_strides(const uint64_t *dims, unsigned rank, int64_t *stride)
{
	uint64_t step = 1;

	for (unsigned d = rank; d-- > 0;) {
		stride[d] = (int64_t)step;
		if (!ck_mul_ok(step, dims[d], &step))
			return false;
	}
	return true;
}

uint64_t ck_box_volume(const struct ck_box *box)
{
	uint64_t volume = 1;

	for (unsigned d = 0; d < box->rank; d++)
		volume *= box->len[d];
	return volume;
}

/* @out may be @a or @b: an axis is read before it is written. */
int ck_box_check(const uint64_t *start, const uint64_t *len,
		 const uint64_t *shape, unsigned rank, struct ck_err *err)
{
	for (unsigned d = 0; d < rank; d++)
		if (!ck_range_ok(start[d], len[d], shape[d]))
			return ck_fail(err, EINVAL,
				       "dimension %u: elements %" PRIu64
				       " to %" PRIu64 " of %" PRIu64,
				       d, start[d], start[d] + len[d],
				       shape[d]);
	return 0;
}

bool ck_box_meet(const struct ck_box *a, const struct ck_box *b,
		 struct ck_box *out)
{
	for (unsigned d = 0; d < a->rank; d++) {
		uint64_t start = CK_MAX(a->start[d], b->start[d]);
		uint64_t end = CK_MIN(a->start[d] + a->len[d],
				      b->start[d] + b->len[d]);

		if (end <= start)
			return false;
		out->start[d] = start;
		out->len[d] = end - start;
	}
	out->rank = a->rank;
	return true;
}

void ck_box_clip(struct ck_box *box, const uint64_t *shape)
{
	for (unsigned d = 0; d < box->rank; d++) {
		box->start[d] = CK_MIN(box->start[d], shape[d]);
		box->len[d] = CK_MIN(box->len[d], shape[d] - box->start[d]);
	}
}

uint64_t ck_dims_index(const uint64_t *dims, unsigned rank, const uint64_t *at)
{
	uint64_t index = 0;

	for (unsigned d = 0; d < rank; d++)
		index = index * dims[d] + at[d];
	return index;
}

void ck_dims_coords(const uint64_t *dims, unsigned rank, uint64_t index,
		    uint64_t *at)
{
	for (unsigned d = rank; d-- > 0;) {
		at[d] = dims[d] ? index % dims[d] : 0;
		index = dims[d] ? index / dims[d] : 0;
	}
}

static bool has_zero(const uint64_t *dims, unsigned rank)
{
	for (unsigned d = 0; d < rank; d++)
		if (dims[d] == 0)
			return true;
	return false;
}

bool ck_grid_refines(const uint64_t *shape, unsigned rank, const uint64_t *grid,
		     unsigned grid_rank, uint8_t *first)
{
	unsigned g = 0;

	if (has_zero(shape, rank) || has_zero(grid, grid_rank))
		return has_zero(shape, rank) && has_zero(grid, grid_rank);
	for (unsigned d = 0; d < rank; d++) {
		uint64_t n = 1;

		if (first)
			first[d] = (uint8_t)g;
		while (n < shape[d] && g < grid_rank)
			if (!ck_mul_ok(n, grid[g++], &n))
				return false;
		if (n != shape[d])
			return false;
		while (g < grid_rank && grid[g] == 1)
			g++;
	}
	while (g < grid_rank && grid[g] == 1)
		g++;
	if (first)
		first[rank] = (uint8_t)g;
	return g == grid_rank;
}

void ck_range_init(struct ck_range *r, const uint64_t *dims, unsigned rank,
		   uint64_t lo, uint64_t hi)
{
	*r = (struct ck_range){
		.dims = dims, .rank = rank, .lo = lo, .hi = hi
	};
}

/*
 * The box at lo grows outward: axis by axis while lo lies on a multiple of
 * what is inside and the range still holds one of it.
 */
bool ck_range_next(struct ck_range *r, struct ck_box *box)
{
	uint64_t left = r->hi - r->lo, index = r->lo;
	uint64_t inner = 1; /* elements in one step of axis d */
	bool whole = true;

	if (r->lo >= r->hi)
		return false;
	box->rank = r->rank;
	for (unsigned d = r->rank; d-- > 0;) {
		uint64_t n = r->dims[d], at = index % n;

		index /= n;
		box->start[d] = at;
		box->len[d] = 1;
		if (!whole)
			continue;
		box->len[d] = CK_MIN(n - at, left / inner);
		whole = box->len[d] == n;
		inner *= box->len[d];
	}
	r->lo += inner;
	return true;
}

void ck_box_text(struct ck_str *s, const uint64_t *start, const uint64_t *end,
		 unsigned rank)
{
	ck_str_puts(s, "[");
	for (unsigned d = 0; d < rank; d++)
		ck_str_fmt(s, "%s%llu:%llu", d ? ", " : "",
			   (unsigned long long)start[d],
			   (unsigned long long)end[d]);
	ck_str_puts(s, "]");
}
