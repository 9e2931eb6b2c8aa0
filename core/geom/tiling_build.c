/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiling_build.c - ordering cells for the packed tree: sort-tile-recursive
 *
 * Sorted along the first axis the cells are cut into slabs, each slab sorted
 * along the next axis and cut again, down to groups of CK_FANOUT, so that a
 * group is about as wide along every axis.
 */
#include "core/geom/tiling.h"

#include "core/base/check.h"

#define MAX_AXES 8 /* that vary; 16 x 2^8 cells are cut at least once by each */

struct key {
	const struct ck_tiling_in *in;
	unsigned axis;
};

/* Twice the middle of the cell; ties keep their order. */
static uint64_t middle(const struct key *k, uint32_t cell)
{
	size_t i = (size_t)cell * k->in->rank + k->axis;

	return k->in->start[i] + k->in->end[i];
}

static bool before(const struct key *k, uint32_t a, uint32_t b)
{
	uint64_t ma = middle(k, a), mb = middle(k, b);

	return ma != mb ? ma < mb : a < b;
}

static void sift(const struct key *k, uint32_t *v, size_t at, size_t nr)
{
	uint32_t moved = v[at];

	for (size_t child; (child = 2 * at + 1) < nr; at = child) {
		if (child + 1 < nr && before(k, v[child], v[child + 1]))
			child++;
		if (!before(k, moved, v[child]))
			break;
		v[at] = v[child];
	}
	v[at] = moved;
}

static void heap_sort(const struct key *k, uint32_t *v, size_t nr)
{
	for (size_t i = nr / 2; i-- > 0;)
		sift(k, v, i, nr);
	while (nr-- > 1) {
		uint32_t last = v[nr];

		v[nr] = v[0];
		v[0] = last;
		sift(k, v, 0, nr);
	}
}

static void insertion_sort(const struct key *k, uint32_t *v, size_t nr)
{
	for (size_t i = 1; i < nr; i++) {
		uint32_t cell = v[i];
		size_t j = i;

		for (; j > 0 && before(k, cell, v[j - 1]); j--)
			v[j] = v[j - 1];
		v[j] = cell;
	}
}

static bool sorted(const struct key *k, const uint32_t *v, size_t nr)
{
	for (size_t i = 1; i < nr; i++)
		if (before(k, v[i], v[i - 1]))
			return false;
	return true;
}

static uint32_t median(const struct key *k, uint32_t a, uint32_t b, uint32_t c)
{
	if (before(k, a, b))
		return before(k, b, c) ? b : before(k, a, c) ? c : a;
	return before(k, a, c) ? a : before(k, b, c) ? c : b;
}

/* Returns where the upper part begins; neither part is empty. */
static size_t partition(const struct key *k, uint32_t *v, size_t nr)
{
	uint32_t pivot = median(k, v[0], v[nr / 2], v[nr - 1]), swap;
	uint64_t mid = middle(k, pivot), m;
	size_t i = 0, j = nr - 1;

	for (;; i++, j--) {
		while ((m = middle(k, v[i])) < mid ||
		       (m == mid && v[i] < pivot))
			i++;
		while ((m = middle(k, v[j])) > mid ||
		       (m == mid && v[j] > pivot))
			j--;
		if (i >= j)
			return j + 1;
		swap = v[i];
		v[i] = v[j];
		v[j] = swap;
	}
}

struct span {
	uint32_t *v;
	size_t nr;
	unsigned cuts; /* left, before it counts as an attack on quicksort */
};

static void sort_cells(const struct key *k, uint32_t *v, size_t nr)
{
	struct span aside[64]; /* the larger parts: each halves what is left */
	struct span now = { v, nr, 64 };
	unsigned depth = 0;

	if (sorted(k, v, nr))
		return;
	for (;;) {
		while (now.nr > CK_FANOUT && now.cuts > 0) {
			size_t cut = partition(k, now.v, now.nr);
			struct span lower = { now.v, cut, now.cuts - 1 };
			struct span upper = { now.v + cut, now.nr - cut,
					      now.cuts - 1 };
			bool up = upper.nr > lower.nr;

			aside[depth++] = up ? upper : lower;
			now = up ? lower : upper;
		}
		if (now.nr > CK_FANOUT)
			heap_sort(k, now.v, now.nr);
		else
			insertion_sort(k, now.v, now.nr);
		if (depth == 0)
			return;
		now = aside[--depth];
	}
}

static unsigned varying_axes(const struct ck_tiling_in *in,
			     unsigned axes[MAX_AXES])
{
	unsigned nr = 0;

	for (unsigned d = 0; d < in->rank && nr < MAX_AXES; d++) {
		struct key k = { in, d };
		uint64_t first = middle(&k, 0);

		for (uint32_t i = 1; i < in->nr; i++) {
			if (middle(&k, i) != first) {
				axes[nr++] = d;
				break;
			}
		}
	}
	return nr;
}

/* The least s with s^power >= n; 1 for power 0. */
static uint64_t root_up(uint64_t n, unsigned power)
{
	if (power == 0)
		return 1;
	for (uint64_t s = 1;; s++) {
		uint64_t product = 1;

		for (unsigned i = 0; i < power && product < n; i++)
			product *= s;
		if (product >= n)
			return s;
	}
}

/* Each slab is a whole number of the next axis's slabs, so they nest. */
static void order_cells(const struct ck_tiling_in *in, uint32_t *perm)
{
	unsigned axes[MAX_AXES], nr_axes = varying_axes(in, axes);
	uint64_t cuts = root_up(CK_DIV_UP(in->nr, CK_FANOUT), nr_axes);
	uint64_t slab = CK_FANOUT;

	for (unsigned a = 0; a < nr_axes; a++)
		slab *= cuts;
	for (unsigned a = 0; a < nr_axes; a++, slab /= cuts) {
		struct key k = { in, axes[a] };

		for (uint64_t i = 0; i < in->nr; i += slab)
			sort_cells(&k, perm + i, CK_MIN(slab, in->nr - i));
	}
}

/* Bounds of @nr boxes, the i-th at start[at[i]] (or start[i]) and so on. */
static void bound(unsigned rank, const uint64_t *start, const uint64_t *end,
		  size_t step, const uint32_t *at, uint32_t nr, uint64_t *node)
{
	for (unsigned d = 0; d < rank; d++) {
		node[d] = UINT64_MAX;
		node[rank + d] = 0;
	}
	for (uint32_t i = 0; i < nr; i++) {
		size_t box = (at ? at[i] : i) * step;

		for (unsigned d = 0; d < rank; d++) {
			node[d] = CK_MIN(node[d], start[box + d]);
			node[rank + d] = CK_MAX(node[rank + d], end[box + d]);
		}
	}
}

void ck_tiling_build(const struct ck_tiling_in *in, uint32_t *perm,
		     uint64_t *nodes)
{
	uint32_t level_nr[CK_MAX_LEVELS], below = in->nr;
	unsigned levels = ck_tiling_levels(in->nr, level_nr);
	unsigned rank = in->rank;
	size_t step = 2 * (size_t)rank;
	const uint64_t *lower = NULL;

	if (levels > 0)
		order_cells(in, perm);
	for (unsigned l = 0; l < levels; l++) {
		for (uint32_t i = 0; i < level_nr[l]; i++) {
			uint32_t first = i * CK_FANOUT;
			uint32_t nr = CK_MIN(below - first, CK_FANOUT);
			uint64_t *node = nodes + i * step;

			if (l == 0)
				bound(rank, in->start, in->end, rank,
				      perm + first, nr, node);
			else
				bound(rank, lower + first * step,
				      lower + first * step + rank, step, NULL,
				      nr, node);
		}
		lower = nodes;
		nodes += level_nr[l] * step;
		below = level_nr[l];
	}
}
