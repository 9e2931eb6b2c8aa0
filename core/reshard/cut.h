/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut.h - how a tensor is cut over a grid of ranks
 *
 * Steps are taken in order; each cuts one dimension of what the steps before
 * it left, or each of several blocks of it, along axes of the grid.  Part i of
 * the grid goes to rank base + i, or where a list of places says.
 *
 * A ck_reshard_cut is compared as bytes: zero it before filling.
 */
#ifndef CK_RESHARD_CUT_H
#define CK_RESHARD_CUT_H

#include "core/base/err.h"
#include "core/format/layout/split.h"
#include "core/geom/shard.h"

#include <stdbool.h>
#include <stdint.h>

#define CK_RESHARD_AXES 16
#define CK_RESHARD_STEPS 16
#define CK_RESHARD_WEIGHTS 16

struct ck_reshard_step {
	const uint64_t *given; /* CK_LAY_GIVEN: nr sizes */
	uint64_t blocks; /* so many, each cut by itself; 0: no blocks */
	uint64_t weight
		[CK_RESHARD_WEIGHTS]; /* of the blocks; all 0: equal ones */
	uint32_t nr; /* parts */
	uint8_t dim;
	uint8_t how, block_how; /* enum ck_lay_sizes */
	uint8_t full; /* no part may be empty unless all are */
	/*
	 * Axes of the grid, the most significant first: together they say
	 * which part, modulo @nr.
	 */
	uint8_t nr_axes;
	uint8_t axis[CK_RESHARD_AXES];
};

struct ck_reshard_place {
	uint32_t rank, at;
};

struct ck_reshard_cut {
	const struct ck_reshard_place
		*place; /* nr, by rank; NULL: from @base on */
	uint32_t base, nr; /* ranks of the grid */
	uint32_t next; /* number of the cut of further ranks, from 1; 0: none */
	uint32_t partial; /* axes, as bits: all but their first have zeros */
	uint8_t nr_axes, nr_steps;
	uint32_t size[CK_RESHARD_AXES];
	struct ck_reshard_step step[CK_RESHARD_STEPS];
};

/* An axis of @size; CK_RESHARD_AXES: there are too many axes, or ranks. */
unsigned ck_reshard_add_axis(struct ck_reshard_cut *c, uint32_t size);
/* A step along one axis, to be refined; NULL: there are too many. */
struct ck_reshard_step *ck_reshard_add_step(struct ck_reshard_cut *c,
					    unsigned dim, unsigned axis,
					    enum ck_lay_sizes how);
/* The rank that place @at of the grid is. */
uint32_t ck_reshard_rank_at(const struct ck_reshard_cut *c, uint32_t at);
/* The place of @rank in the grid; false: it is not there. */
bool ck_reshard_place_of(const struct ck_reshard_cut *c, uint32_t rank,
			 uint32_t *at);
/*
 * What place @at holds of a tensor of @shape.  -EINVAL with the reason where
 * it cannot be cut so; that does not depend on @at.
 */
int ck_reshard_cut_at(const struct ck_reshard_cut *c, uint32_t at,
		      const uint64_t *shape, unsigned rank,
		      struct ck_shard *out, bool *zeros, struct ck_err *err);

#endif
