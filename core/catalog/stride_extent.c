/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stride_extent.c - arithmetic that the gate and the map of a catalog share
 */
#include "core/catalog/builder_priv.h"

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

void ck_chunk_walk_init(struct ck_chunk_walk *w, const struct ck_catalog *img,
			const struct ck_chunk *chunk, unsigned rank)
{
	const struct ck_layout *l = &img->layouts[chunk->layout];

	w->corner = img->dims + chunk->corner;
	w->len = img->dims + l->len;
	w->rank = rank;
	w->flat = l->flags & CK_LAYOUT_FLAT;
	w->done = false;
	if (w->flat)
		ck_range_init(&w->range, w->len, rank, w->corner[rank],
			      w->corner[rank + 1]);
}

bool ck_chunk_walk_next(struct ck_chunk_walk *w, struct ck_box *box)
{
	if (w->flat) {
		if (!ck_range_next(&w->range, box))
			return false;
		for (unsigned d = 0; d < w->rank; d++)
			box->start[d] += w->corner[d];
		return true;
	}
	if (w->done)
		return false;
	w->done = true;
	box->rank = w->rank;
	for (unsigned d = 0; d < w->rank; d++) {
		box->start[d] = w->corner[d];
		box->len[d] = w->len[d];
	}
	return true;
}

/*
 * Of the first axis where the first and the last element differ, the stretch
 * between them; of the axes outside it one place, of those inside it all.
 */
static void flat_bounds(const uint64_t *corner, const uint64_t *len,
			unsigned rank, uint64_t *start, uint64_t *end)
{
	uint64_t first[CK_MAX_RANK], last[CK_MAX_RANK];
	bool differ = false;

	ck_dims_coords(len, rank, corner[rank], first);
	ck_dims_coords(len, rank, corner[rank + 1] - 1, last);
	for (unsigned d = 0; d < rank; d++) {
		start[d] = corner[d] + (differ ? 0 : first[d]);
		end[d] = corner[d] + (differ ? len[d] : last[d] + 1);
		differ = differ || first[d] != last[d];
	}
}

void ck_chunk_bounds(const struct ck_catalog *img, const struct ck_chunk *chunk,
		     unsigned rank, uint64_t *start, uint64_t *end)
{
	const struct ck_layout *l = &img->layouts[chunk->layout];
	const uint64_t *corner = img->dims + chunk->corner;
	const uint64_t *len = img->dims + l->len;

	if (l->flags & CK_LAYOUT_FLAT) {
		flat_bounds(corner, len, rank, start, end);
		return;
	}
	for (unsigned d = 0; d < rank; d++) {
		start[d] = corner[d];
		end[d] = corner[d] + len[d];
	}
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
