/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiling.c - walking the packed tree of a tensor's cells
 *
 * The walk keeps nothing but the number of the next cell: whether a node
 * begins there, and which, follows from the number.
 */
#include "core/geom/tiling.h"

#include "core/base/check.h"

#include <string.h>

#define FANOUT_BITS 4
_Static_assert(CK_FANOUT == 1 << FANOUT_BITS, "fan-out is a power of two");

unsigned ck_tiling_levels(uint32_t nr, uint32_t level_nr[CK_MAX_LEVELS])
{
	unsigned levels = 0;

	if (nr <= CK_FANOUT)
		return 0;
	while (nr > 1) {
		nr = (uint32_t)CK_DIV_UP((uint64_t)nr, CK_FANOUT);
		level_nr[levels++] = nr;
	}
	return levels;
}

void ck_tiling_init(struct ck_tiling *w, const struct ck_catalog *img,
		    const struct ck_tensor *t, const struct ck_box *want)
{
	size_t bytes = want->rank * sizeof(want->start[0]);
	uint32_t level_nr[CK_MAX_LEVELS];
	uint64_t at = t->index;

	w->img = img;
	w->t = t;
	w->next = 0;
	w->looked = 0;
	w->want.rank = want->rank;
	memmove(w->want.start, want->start, bytes);
	memmove(w->want.len, want->len, bytes);
	w->levels = t->index == CK_NONE ? 0 : ck_tiling_levels(t->nr, level_nr);
	for (unsigned l = 0; l < w->levels; l++) {
		w->level_at[l] = at;
		at += 2 * (uint64_t)t->grid_rank * level_nr[l];
	}
}

static bool node_meets(const struct ck_tiling *w, unsigned level, uint32_t i)
{
	unsigned rank = w->want.rank;
	const uint64_t *start =
		w->img->dims + w->level_at[level] + 2 * (uint64_t)rank * i;
	const uint64_t *end = start + rank;

	for (unsigned d = 0; d < rank; d++)
		if (end[d] <= w->want.start[d] ||
		    start[d] >= w->want.start[d] + w->want.len[d])
			return false;
	return true;
}

/*
 * Where a group begins at w->next: goes over those that miss, largest first.
 * False: one was skipped.
 */
static bool descend(struct ck_tiling *w)
{
	unsigned top = 0;

	while (top < w->levels &&
	       w->next % (UINT64_C(1) << FANOUT_BITS * (top + 1)) == 0)
		top++;
	while (top-- > 0) {
		unsigned shift = FANOUT_BITS * (top + 1);
		uint64_t i = (uint64_t)w->next >> shift;

		w->looked++;
		if (node_meets(w, top, (uint32_t)i))
			continue;
		w->next =
			(uint32_t)CK_MIN((i + 1) << shift, (uint64_t)w->t->nr);
		return false;
	}
	return true;
}

static bool cell_meets(const struct ck_tiling *w, const struct ck_chunk *c)
{
	const struct ck_layout *l = &w->img->layouts[c->layout];
	const uint64_t *start = w->img->dims + c->corner;
	const uint64_t *len = w->img->dims + l->len;
	const struct ck_box *want = &w->want;

	for (unsigned d = 0; d < want->rank; d++)
		if (start[d] + len[d] <= want->start[d] ||
		    start[d] >= want->start[d] + want->len[d] || !len[d])
			return false;
	return true;
}

uint32_t ck_tiling_next(struct ck_tiling *w)
{
	const struct ck_chunk *cells = w->img->chunks + w->t->first;

	while (w->next < w->t->nr) {
		if (w->next % CK_FANOUT == 0 && !descend(w))
			continue;
		w->looked++;
		if (cell_meets(w, &cells[w->next]))
			return w->t->first + w->next++;
		w->next++;
	}
	return CK_NONE;
}
