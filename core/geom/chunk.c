/* SPDX-License-Identifier: Apache-2.0 */
/* chunk.c - the arithmetic of one chunk */
#include "core/geom/chunk.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <string.h>

bool ck_stride_extent(const uint64_t *len, const int64_t *stride, unsigned rank,
		      uint8_t elem, int64_t *lo, int64_t *hi)
{
	const __int128 max = (__int128)CK_SIZE_MAX;
	__int128 low = 0, high = elem;

	for (unsigned d = 0; d < rank; d++) {
		__int128 far = (__int128)(len[d] - 1) * stride[d];

		if (far < -max || far > max)
			return false;
		*(far < 0 ? &low : &high) += far * elem;
		if (low < -max || high > max)
			return false;
	}
	*lo = (int64_t)low;
	*hi = (int64_t)high;
	return true;
}

uint64_t ck_chunk_volume(const struct ck_catalog *img,
			 const struct ck_chunk *chunk, unsigned rank)
{
	const struct ck_layout *l = &img->layouts[chunk->layout];
	const uint64_t *corner = img->dims + chunk->corner;
	uint64_t volume = 1;

	if (l->flags & CK_LAYOUT_FLAT)
		return corner[rank + 1] - corner[rank];
	for (unsigned d = 0; d < rank; d++)
		volume *= img->dims[l->len + d];
	return volume;
}

uint64_t ck_chunk_item(const struct ck_catalog *img, unsigned rank,
		       const struct ck_chunk *chunk)
{
	uint8_t flags = img->layouts[chunk->layout].flags;

	if (!(flags & CK_LAYOUT_DEFERRED))
		return 0;
	return img
		->dims[chunk->corner + rank + (flags & CK_LAYOUT_FLAT ? 2 : 0)];
}

static bool is_dense(const uint64_t *len, const int64_t *stride, unsigned rank)
{
	uint64_t dense = 1;

	for (unsigned d = rank; d-- > 0; dense *= len[d])
		if (len[d] > 1 && stride[d] != (int64_t)dense)
			return false;
	return true;
}

/* An item that nobody resolved: where the item is. */
static void look_into(const struct ck_resolved *resolved, uint32_t chunk,
		      struct ck_chunk_at *out)
{
	enum ck_resolved_state state = CK_RESOLVED_UNKNOWN;
	struct ck_place place = { 0 };

	if (resolved)
		state = ck_resolved_get(resolved, chunk, &place);
	out->placed = state == CK_RESOLVED_PLACED;
	out->err = state == CK_RESOLVED_BAD ? place.err : 0;
	out->stride = out->placed ? place.stride : NULL;
	if (out->placed) {
		out->off = place.off;
		out->xform = place.xform;
	}
}

void ck_chunk_at(const struct ck_catalog *img,
		 const struct ck_resolved *resolved, unsigned rank,
		 const struct ck_chunk *chunk, struct ck_chunk_at *out)
{
	const struct ck_layout *l = &img->layouts[chunk->layout];
	uint64_t nr = ck_chunk_volume(img, chunk, rank);

	*out = (struct ck_chunk_at){
		.layout = l,
		.corner = img->dims + chunk->corner,
		.len = img->dims + l->len,
		.rank = rank,
		.flat = l->flags & CK_LAYOUT_FLAT,
		.bytes = nr * ck_dtype_info(l->dtype)->size,
		.off = chunk->off,
		.item = ck_chunk_item(img, rank, chunk),
		.placed = true,
		.xform = l->xform,
	};
	out->lo = out->flat ? out->corner[rank] : 0;
	out->hi = out->lo + nr;
	if (l->stride != CK_NONE)
		out->stride = (const int64_t *)img->dims + l->stride;
	if (l->flags & CK_LAYOUT_DEFERRED)
		look_into(resolved, (uint32_t)(chunk - img->chunks), out);
	if (out->stride && (out->flat || is_dense(out->len, out->stride, rank)))
		out->stride = NULL;
}

bool ck_chunk_extent(const struct ck_chunk_at *at, uint64_t *from, uint64_t *to)
{
	int64_t lo = 0, hi = (int64_t)at->bytes;

	if (!at->placed)
		hi = (int64_t)at->item;
	else if (at->stride && at->bytes &&
		 !ck_stride_extent(at->len, at->stride, at->rank,
				   ck_dtype_info(at->layout->dtype)->size, &lo,
				   &hi))
		return false;
	*from = at->off + (uint64_t)lo;
	return (uint64_t)-lo <= at->off && ck_add_ok(at->off, (uint64_t)hi, to);
}

/* ---- in the grid ---- */

/* Positions [lo, hi) of the box's order -> the box around them. */
static void bound_flat(struct ck_box *box, uint64_t lo, uint64_t hi)
{
	uint64_t first[CK_MAX_RANK], last[CK_MAX_RANK];
	unsigned d = 0;

	if (lo >= hi) {
		memset(box->len, 0, box->rank * sizeof(box->len[0]));
		return;
	}
	ck_dims_coords(box->len, box->rank, lo, first);
	ck_dims_coords(box->len, box->rank, hi - 1, last);
	while (d < box->rank && first[d] == last[d]) {
		box->start[d] += first[d];
		box->len[d++] = 1;
	}
	if (d < box->rank) {
		box->start[d] += first[d];
		box->len[d] = last[d] - first[d] + 1;
	}
}

void ck_chunk_box(const struct ck_catalog *img, unsigned rank,
		  const struct ck_chunk *chunk, struct ck_box *box)
{
	const struct ck_layout *l = &img->layouts[chunk->layout];
	const uint64_t *corner = img->dims + chunk->corner;
	size_t bytes = rank * sizeof(box->start[0]);

	box->rank = rank;
	memcpy(box->start, corner, bytes);
	memcpy(box->len, img->dims + l->len, bytes);
	if (l->flags & CK_LAYOUT_FLAT)
		bound_flat(box, corner[rank], corner[rank + 1]);
}

void ck_chunk_bounds(const struct ck_catalog *img, const struct ck_chunk *chunk,
		     unsigned rank, uint64_t *start, uint64_t *end)
{
	const struct ck_layout *l = &img->layouts[chunk->layout];
	const uint64_t *corner = img->dims + chunk->corner;
	const uint64_t *len = img->dims + l->len;
	struct ck_box box;

	if (l->flags & CK_LAYOUT_FLAT) {
		ck_chunk_box(img, rank, chunk, &box);
		corner = box.start;
		len = box.len;
	}
	for (unsigned d = 0; d < rank; d++) {
		start[d] = corner[d];
		end[d] = corner[d] + len[d];
	}
}

void ck_chunk_walk_init(struct ck_chunk_walk *w, const struct ck_catalog *img,
			const struct ck_chunk *chunk, unsigned rank)
{
	const struct ck_layout *l = &img->layouts[chunk->layout];
	const uint64_t *corner = img->dims + chunk->corner;
	bool flat = l->flags & CK_LAYOUT_FLAT;

	w->corner = corner;
	ck_range_init(
		&w->range, img->dims + l->len, rank, flat ? corner[rank] : 0,
		flat ? corner[rank + 1] : ck_chunk_volume(img, chunk, rank));
}

bool ck_chunk_walk_next(struct ck_chunk_walk *w, struct ck_box *box)
{
	if (!ck_range_next(&w->range, box))
		return false;
	for (unsigned d = 0; d < box->rank; d++)
		box->start[d] += w->corner[d];
	return true;
}
