/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cursor.c - from a byte range, or a box, of a tensor to boxes of its cells
 *
 * Nested walks, each a few boxes long:
 *
 *	bytes -> stretches of whole elements, and edges (parts of one)
 *	  -> boxes of the request (ck_range)
 *	    -> boxes of the grid, where the grid refines the shape
 *	      -> cells (ck_tiling)
 *	        -> boxes of a flat cell's [lo, hi) (ck_range again)
 *
 * and the innermost box is one segment (segment.c).  The request's own
 * row-major order counts its bytes; the buffer begins at byte @base of it.
 */
#include "core/geom/cursor_priv.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <string.h>

enum { D_BYTES, D_PARTS, D_GROUPS, D_CELLS, D_FLAT };

static void begin(struct ck_cursor *cur, const struct ck_catalog *img,
		  const struct ck_resolved *resolved, const struct ck_tensor *t)
{
	cur->img = img;
	cur->resolved = resolved;
	cur->t = t;
	cur->grid = img->dims + t->grid;
	cur->elem = ck_dtype_info(t->dtype)->size;
	cur->rank = t->grid_rank;
	cur->grouped = false;
	cur->resolves = false;
	cur->why = NULL;
	cur->sole = CK_NONE;
	cur->only = CK_NONE;
	cur->pos = 0;
	cur->end = 0;
	cur->base = 0;
	cur->depth = D_BYTES;
	cur->holding = false;
	cur->unroll = 0;
}

/* Bytes between neighbours along each axis of row-major @dims. */
static void row_major(const uint64_t *dims, unsigned rank, uint64_t elem,
		      uint64_t *step)
{
	for (unsigned d = rank; d-- > 0; elem *= dims[d])
		step[d] = elem;
}

void ck_cursor_init(struct ck_cursor *cur, const struct ck_catalog *img,
		    const struct ck_resolved *resolved,
		    const struct ck_tensor *t, uint64_t pos, uint64_t len)
{
	begin(cur, img, resolved, t);
	cur->dims = cur->grid;
	memset(cur->corner, 0, cur->rank * sizeof(cur->corner[0]));
	row_major(cur->grid, cur->rank, cur->elem, cur->step);
	if (cur->elem == 0)
		return;
	cur->pos = pos;
	cur->end = pos + len;
	cur->base = pos;
}

/* The grid axes of one axis of the shape share its steps. */
static void group_steps(struct ck_cursor *cur)
{
	uint64_t step[CK_MAX_RANK];

	row_major(cur->own_dims, cur->rank, cur->elem, step);
	for (unsigned d = 0; d < cur->rank; d++) {
		unsigned first = cur->group[d];

		row_major(cur->grid + first, cur->group[d + 1] - first, step[d],
			  cur->step + first);
	}
}

void ck_cursor_init_box(struct ck_cursor *cur, const struct ck_catalog *img,
			const struct ck_resolved *resolved,
			const struct ck_tensor *t, const struct ck_box *box)
{
	const uint64_t *shape = img->dims + t->shape;
	size_t bytes = t->rank * sizeof(shape[0]);
	uint64_t volume = ck_box_volume(box);

	begin(cur, img, resolved, t);
	cur->rank = t->rank;
	cur->dims = cur->own_dims;
	memcpy(cur->own_dims, box->len, bytes);
	memcpy(cur->corner, box->start, bytes);
	if (volume == 0)
		return;
	if (t->rank == t->grid_rank && !memcmp(shape, cur->grid, bytes)) {
		row_major(cur->own_dims, cur->rank, cur->elem, cur->step);
	} else {
		cur->grouped = true;
		if (!ck_grid_refines(shape, t->rank, cur->grid, t->grid_rank,
				     cur->group))
			return; /* all of it is a hole; catalogs are checked */
		group_steps(cur);
	}
	cur->end = volume * cur->elem;
}

void ck_cursor_init_box_strided(struct ck_cursor *cur,
				const struct ck_catalog *img,
				const struct ck_resolved *resolved,
				const struct ck_tensor *t,
				const struct ck_box *box, const int64_t *stride)
{
	ck_cursor_init_box(cur, img, resolved, t, box);
	for (unsigned d = 0; cur->end && d < cur->rank; d++) {
		uint64_t step = (uint64_t)stride[d] * cur->elem;
		unsigned first = d, nr = 1;

		if (cur->grouped) {
			first = cur->group[d];
			nr = cur->group[d + 1] - first;
		}
		row_major(cur->grid + first, nr, step, cur->step + first);
	}
}

void ck_cursor_init_box_bytes(struct ck_cursor *cur,
			      const struct ck_catalog *img,
			      const struct ck_resolved *resolved,
			      const struct ck_tensor *t,
			      const struct ck_box *box, uint64_t pos,
			      uint64_t len)
{
	ck_cursor_init_box(cur, img, resolved, t, box);
	if (cur->end == 0)
		return;
	cur->pos = pos;
	cur->end = pos + len;
	cur->base = pos;
}

/* The grid coordinates of the element at byte @at of the request's order. */
static void grid_coords(const struct ck_cursor *cur, uint64_t at,
			uint64_t *coords)
{
	uint64_t own[CK_MAX_RANK];

	ck_dims_coords(cur->dims, cur->rank, at / cur->elem, own);
	for (unsigned d = 0; d < cur->rank; d++) {
		unsigned g = cur->group[d];

		own[d] += cur->corner[d];
		if (!cur->grouped)
			coords[d] = own[d];
		else
			ck_dims_coords(cur->grid + g, cur->group[d + 1] - g,
				       own[d], coords + g);
	}
}

static void init_same_request(struct ck_cursor *cur,
			      const struct ck_cursor *from)
{
	unsigned rank = from->rank;

	begin(cur, from->img, from->resolved, from->t);
	cur->dims = from->dims;
	if (from->dims == from->own_dims)
		cur->dims = cur->own_dims;
	cur->rank = from->rank;
	cur->grouped = from->grouped;
	cur->base = from->base;
	memcpy(cur->own_dims, from->dims, rank * sizeof(cur->own_dims[0]));
	memcpy(cur->corner, from->corner, rank * sizeof(cur->corner[0]));
	memcpy(cur->step, from->step,
	       from->t->grid_rank * sizeof(cur->step[0]));
	if (from->grouped)
		memcpy(cur->group, from->group, rank + 1u);
}

/*
 * A segment with axes is a box of the grid, given by its first and its last
 * element; one without is a stretch of the request.
 */
void ck_cursor_init_alt(struct ck_cursor *cur, const struct ck_cursor *from,
			const struct ck_seg *seg, uint32_t chunk)
{
	uint64_t first = from->base + seg->dst, last = first + seg->run - 1;
	struct ck_box box = { .rank = from->t->grid_rank };

	init_same_request(cur, from);
	cur->sole = seg->chunk;
	cur->only = chunk;
	if (seg->nax == 0) {
		cur->pos = first;
		cur->end = last + 1;
		return;
	}
	for (unsigned i = 0; i < seg->nax; i++)
		last += (seg->ax[i].n - 1) * (uint64_t)seg->ax[i].dst;
	grid_coords(cur, first, box.start);
	grid_coords(cur, last, box.len);
	for (unsigned d = 0; d < box.rank; d++)
		box.len[d] += 1 - box.start[d];
	for (unsigned d = 0; d < cur->rank; d++)
		ck_range_init(&cur->groups[d], NULL, 0, 0, 0);
	ck_range_init(&cur->range, NULL, 0, 0, 0);
	cur->skip = 0;
	cur->cut = 0;
	cur->dst = seg->dst;
	ck_tiling_init(&cur->walk, cur->img, cur->t, &box);
	cur->depth = D_CELLS;
}

static bool next_bytes(struct ck_cursor *cur)
{
	uint64_t elem = cur->elem, left = cur->end - cur->pos;
	uint64_t at, nr = 1;

	if (cur->pos >= cur->end)
		return false;
	at = cur->pos / elem;
	cur->skip = (uint8_t)(cur->pos % elem);
	cur->cut = 0;
	if (cur->skip || left < elem) {
		cur->cut = (uint8_t)CK_MIN(elem - cur->skip, left);
		cur->pos += cur->cut;
	} else {
		nr = left / elem;
		cur->pos += nr * elem;
	}
	ck_range_init(&cur->range, cur->dims, cur->rank, at, at + nr);
	cur->depth = D_PARTS;
	return true;
}

/* Moves the box of axis @d's group on; false: it was the last. */
static bool next_in_group(struct ck_cursor *cur, unsigned d,
			  struct ck_box *want)
{
	unsigned first = cur->group[d];
	struct ck_box box;

	if (!ck_range_next(&cur->groups[d], &box))
		return false;
	memcpy(want->start + first, box.start, box.rank * sizeof(uint64_t));
	memcpy(want->len + first, box.len, box.rank * sizeof(uint64_t));
	return true;
}

/* Starts the groups of axes from @d on; their first boxes are in @want. */
static void start_groups(struct ck_cursor *cur, unsigned d, struct ck_box *want)
{
	for (; d < cur->rank; d++) {
		unsigned first = cur->group[d];
		uint64_t lo = cur->corner[d] + cur->part.start[d];

		ck_range_init(&cur->groups[d], cur->grid + first,
			      cur->group[d + 1] - first, lo,
			      lo + cur->part.len[d]);
		next_in_group(cur, d, want);
	}
}

static void start_walk(struct ck_cursor *cur, struct ck_box *want)
{
	if (cur->grouped) {
		cur->dst = 0 - cur->base;
		for (unsigned d = 0; d < cur->rank; d++) {
			unsigned g = cur->group[d], end = cur->group[d + 1];
			uint64_t at = ck_dims_index(cur->grid + g, end - g,
						    want->start + g);

			if (end > g) /* else the axis is one element */
				cur->dst += (at - cur->corner[d]) *
					    cur->step[end - 1];
		}
		want->rank = cur->t->grid_rank;
	}
	ck_tiling_init(&cur->walk, cur->img, cur->t, want);
	cur->depth = D_CELLS;
}

static bool next_group(struct ck_cursor *cur)
{
	for (unsigned d = cur->rank; d-- > 0;) {
		if (!next_in_group(cur, d, &cur->walk.want))
			continue;
		start_groups(cur, d + 1, &cur->walk.want);
		start_walk(cur, &cur->walk.want);
		return true;
	}
	return false;
}

static bool next_part(struct ck_cursor *cur)
{
	struct ck_box *part = &cur->part;

	cur->dst = cur->range.lo * cur->elem - cur->base;
	if (!ck_range_next(&cur->range, part))
		return false;
	if (cur->grouped) {
		start_groups(cur, 0, &cur->walk.want);
		start_walk(cur, &cur->walk.want);
		return true;
	}
	for (unsigned d = 0; d < part->rank; d++)
		part->start[d] += cur->corner[d];
	start_walk(cur, part);
	return true;
}

static uint32_t next_cell(struct ck_cursor *cur)
{
	if (cur->sole == CK_NONE)
		return ck_tiling_next(&cur->walk);
	return cur->walk.next++ == 0 ? cur->sole : CK_NONE;
}

/* The whole box, also of flat chunks. */
static bool meet_cell(const struct ck_cursor *cur, struct ck_box *sub)
{
	const struct ck_chunk *c = &cur->img->chunks[cur->cell];
	const struct ck_layout *l = &cur->img->layouts[c->layout];
	const uint64_t *start = cur->img->dims + c->corner;
	const uint64_t *len = cur->img->dims + l->len;
	const struct ck_box *want = &cur->walk.want;

	sub->rank = want->rank;
	for (unsigned d = 0; d < want->rank; d++) {
		uint64_t lo = CK_MAX(start[d], want->start[d]);
		uint64_t hi = CK_MIN(start[d] + len[d],
				     want->start[d] + want->len[d]);

		if (hi <= lo)
			return false;
		sub->start[d] = lo;
		sub->len[d] = hi - lo;
	}
	return true;
}

static void start_flat(struct ck_cursor *cur, const struct ck_chunk *c,
		       const struct ck_layout *l)
{
	const uint64_t *dims = cur->img->dims;
	unsigned rank = cur->t->grid_rank;

	ck_range_init(&cur->flat, dims + l->len, rank, dims[c->corner + rank],
		      dims[c->corner + rank + 1]);
	cur->depth = D_FLAT;
}

/* Gives the box of the next cell in @sub, or goes into a flat one. */
static bool take_cell(struct ck_cursor *cur, struct ck_box *sub)
{
	const struct ck_chunk *c;
	const struct ck_layout *l;

	while ((cur->cell = next_cell(cur)) != CK_NONE) {
		c = &cur->img->chunks[cur->cell];
		l = &cur->img->layouts[c->layout];
		if (l->flags & CK_LAYOUT_FLAT) {
			start_flat(cur, c, l);
			return false;
		}
		if (meet_cell(cur, sub))
			return true;
	}
	cur->depth = cur->grouped ? D_GROUPS : D_PARTS;
	return false;
}

static bool take_flat(struct ck_cursor *cur, struct ck_box *sub)
{
	const struct ck_chunk *c = &cur->img->chunks[cur->cell];
	const uint64_t *corner = cur->img->dims + c->corner;

	while (ck_range_next(&cur->flat, sub)) {
		for (unsigned d = 0; d < sub->rank; d++)
			sub->start[d] += corner[d];
		if (ck_box_meet(sub, &cur->walk.want, sub))
			return true;
	}
	cur->depth = D_CELLS;
	return false;
}

/* The next box that is one segment; false at the end. */
static bool next_box(struct ck_cursor *cur, struct ck_box *sub)
{
	for (;;) {
		switch (cur->depth) {
		case D_BYTES:
			if (!next_bytes(cur))
				return false;
			break;
		case D_PARTS:
			if (!next_part(cur))
				cur->depth = D_BYTES;
			break;
		case D_GROUPS:
			if (!next_group(cur))
				cur->depth = D_PARTS;
			break;
		case D_CELLS:
			if (take_cell(cur, sub))
				return true;
			break;
		case D_FLAT:
			if (take_flat(cur, sub))
				return true;
			break;
		}
	}
}

static bool next_seg(struct ck_cursor *cur, struct ck_seg *seg)
{
	struct ck_box sub;

	if (cur->unroll && ck_segment_more(cur, seg))
		return true;
	if (!next_box(cur, &sub))
		return false;
	ck_segment_make(cur, &sub, seg);
	return true;
}

void ck_cursor_resolve(struct ck_cursor *cur, struct ck_err *why)
{
	cur->resolves = true;
	cur->why = why;
}

/* What is looked at ahead may say why of another segment. */
static bool may_look_ahead(const struct ck_cursor *cur,
			   const struct ck_seg *seg)
{
	return seg->nax == 0 && (!cur->resolves || seg->kind == CK_SEG_COPY);
}

bool ck_cursor_next(struct ck_cursor *cur, struct ck_seg *seg)
{
	if (cur->holding)
		*seg = cur->held;
	else if (!next_seg(cur, seg))
		return false;
	cur->holding = false;
	while (may_look_ahead(cur, seg) && next_seg(cur, &cur->held)) {
		if (ck_segment_join(seg, &cur->held))
			continue;
		cur->holding = true;
		break;
	}
	return true;
}
