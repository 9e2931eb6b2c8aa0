/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.c - along which dimension a tensor is split as it is stored
 *
 * The corners of its cells tell.  A gated or fused layer is found by its grid
 * (an outer axis that nothing splits), or by the files: where the cells along
 * the dimension go through the same files again and again, each round is one
 * block, which every rank had a share of.
 */
#include "core/reshard/spec.h"

#include "core/base/check.h"
#include "core/geom/tiling.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LOOK 4096 /* cells that are looked at */

/* The one axis from @g on along which cells lie; 0, or 2 of more: not so. */
static unsigned split_axis(const struct ck_catalog *img,
			   const struct ck_tensor *t, unsigned g,
			   unsigned *axis)
{
	const struct ck_chunk *c = &img->chunks[t->first];
	const uint64_t *zero = img->dims + c[0].corner;
	unsigned nr = 0;

	for (; g < t->grid_rank; g++)
		for (uint32_t i = 1; i < t->nr; i++)
			if (img->dims[c[i].corner + g] != zero[g]) {
				*axis = g;
				nr++;
				break;
			}
	return nr;
}

struct strip {
	uint64_t start, len;
	uint32_t src;
};

static int by_start(const void *a, const void *b)
{
	uint64_t sa = ((const struct strip *)a)->start;
	uint64_t sb = ((const struct strip *)b)->start;

	return (sa > sb) - (sa < sb);
}

/* Neighbours of one file are one strip. */
static uint32_t join(struct strip *s, uint32_t nr)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < nr; i++)
		if (n && s[n - 1].src == s[i].src)
			s[n - 1].len += s[i].len;
		else
			s[n++] = s[i];
	return n;
}

/* Strips per round, where all rounds go through the same files; 0: not so. */
static uint32_t round_of(const struct strip *s, uint32_t nr)
{
	uint32_t n = 1;

	while (n < nr && s[n].src != s[0].src)
		n++;
	if (nr % n || nr / n > CK_MESH_BLOCKS)
		return 0;
	for (uint32_t i = n; i < nr; i++)
		if (s[i].src != s[i % n].src)
			return 0;
	return n;
}

static void find_rounds(const struct strip *s, uint32_t nr,
			struct ck_reshard_split *out)
{
	uint32_t n = round_of(s, nr);

	if (!n) {
		out->how = CK_RESHARD_UNKNOWN;
		return;
	}
	if (n == nr || n == 1)
		return;
	out->nr_blocks = nr / n;
	for (uint32_t i = 0; i < nr; i++)
		out->block[i / n] += s[i].len;
}

/* Of the first @skip dimensions the first cell's part is looked at alone. */
static void look_at_files(const struct ck_catalog *img,
			  const struct ck_tensor *t, unsigned skip,
			  struct ck_reshard_split *out)
{
	const uint64_t *zero = img->dims + img->chunks[t->first].corner;
	struct strip *s;
	uint32_t nr = 0;

	if (t->nr > MAX_LOOK)
		return;
	s = calloc(t->nr, sizeof(*s));
	for (uint32_t i = 0; s && i < t->nr; i++) {
		const struct ck_chunk *c = &img->chunks[t->first + i];
		const struct ck_layout *l = &img->layouts[c->layout];

		if (memcmp(img->dims + c->corner, zero, skip * sizeof(*zero)))
			continue;
		s[nr].start = img->dims[c->corner + out->dim];
		s[nr].len = img->dims[l->len + out->dim];
		s[nr++].src = c->src;
	}
	if (!s) {
		out->how = CK_RESHARD_UNKNOWN;
		return;
	}
	qsort(s, nr, sizeof(*s), by_start);
	find_rounds(s, join(s, nr), out);
	free(s);
}

static bool is_flat(const struct ck_catalog *img, const struct ck_tensor *t)
{
	for (uint32_t i = 0; i < t->nr; i++)
		if (img->layouts[img->chunks[t->first + i].layout].flags &
		    CK_LAYOUT_FLAT)
			return true;
	return false;
}

void ck_reshard_split_of(const struct ck_catalog *img, uint32_t tensor,
			 unsigned skip, struct ck_reshard_split *out)
{
	const struct ck_tensor *t = &img->tensors[tensor];
	const uint64_t *shape = img->dims + t->shape;
	const uint64_t *grid = img->dims + t->grid;
	uint8_t first[CK_MAX_RANK + 1];
	unsigned axis, d = 0, axes;
	uint64_t outer = 1;

	*out = (struct ck_reshard_split){ .how = CK_RESHARD_WHOLE };
	if (t->nr <= 1)
		return;
	out->how = CK_RESHARD_UNKNOWN;
	if (is_flat(img, t) ||
	    !ck_grid_refines(shape, t->rank, grid, t->grid_rank, first))
		return;
	axes = split_axis(img, t, skip ? first[skip] : 0, &axis);
	if (skip && !axes)
		out->how = CK_RESHARD_WHOLE;
	if (axes != 1)
		return;
	out->how = CK_RESHARD_SPLIT;
	while (d + 1 < t->rank && first[d + 1] <= axis)
		d++;
	out->dim = d;
	if (t->grid_rank == t->rank) {
		look_at_files(img, t, skip, out);
		return;
	}
	for (unsigned g = first[d]; g < axis; g++)
		outer *= grid[g];
	if (outer > CK_MESH_BLOCKS)
		out->how = CK_RESHARD_UNKNOWN;
	if (outer <= 1 || outer > CK_MESH_BLOCKS)
		return;
	out->nr_blocks = (unsigned)outer;
	for (unsigned b = 0; b < outer; b++)
		out->block[b] = shape[d] / outer;
}
