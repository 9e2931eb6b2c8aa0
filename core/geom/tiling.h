/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiling.h - which cells of a tensor meet a box: a packed R-tree
 *
 * The cells of a tensor are ordered so that every CK_FANOUT neighbours lie
 * close together (sort-tile-recursive).  Level 0 of the tree bounds groups of
 * CK_FANOUT cells, level 1 groups of CK_FANOUT level-0 nodes, up to one root.
 * Nodes are stored level by level as start[grid_rank], end[grid_rank] in
 * dims.  A tensor of at most CK_FANOUT cells has no tree.
 */
#ifndef CK_TILING_H
#define CK_TILING_H

#include "core/geom/catalog.h"
#include "core/geom/chunk.h"

#define CK_FANOUT 16
#define CK_MAX_LEVELS 8

/* Nodes of each level for @nr cells; returns the number of levels (0: none). */
unsigned ck_tiling_levels(uint32_t nr, uint32_t level_nr[CK_MAX_LEVELS]);

/* Restartable walk over the cells whose box meets @want, in stored order. */
struct ck_tiling {
	const struct ck_catalog *img;
	const struct ck_tensor *t;
	struct ck_box want;
	uint32_t next; /* cell to look at next, relative to t->first */
	uint32_t looked; /* cells and nodes compared so far: the work done */
	/* private: where each level begins, in dims */
	unsigned levels;
	uint64_t level_at[CK_MAX_LEVELS];
};
void ck_tiling_init(struct ck_tiling *w, const struct ck_catalog *img,
		    const struct ck_tensor *t, const struct ck_box *want);
/* The next cell's chunk index, or CK_NONE at the end. */
uint32_t ck_tiling_next(struct ck_tiling *w);

/*
 * For the builder: order the cells (@perm: 0..nr-1 in, stored order out) and
 * fill @nodes (sum of the levels x 2*rank values).  @box gives the corner and
 * end of cell i.  No allocation.
 */
struct ck_tiling_in {
	unsigned rank;
	uint32_t nr;
	const uint64_t *start, *end; /* nr x rank values each */
};
void ck_tiling_build(const struct ck_tiling_in *in, uint32_t *perm,
		     uint64_t *nodes);

#endif
