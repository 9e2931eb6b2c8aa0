/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.h - what one rank holds of a tensor: a box with one axis in runs
 *
 *	axis @dim:   0 ..[run 0)....[run 1)...[run 2).. n      other axes: a box
 *	the shard:   [run 0)[run 1)[run 2)
 *
 * One run is a box.  A gated layer cut over ranks is two (rows of the gate,
 * rows beside it), a fused query, key and value three, a strided shard many.
 * The shard's own elements are row-major, its runs joined along @dim.
 */
#ifndef CK_SHARD_H
#define CK_SHARD_H

#include "core/geom/range.h"

#define CK_SHARD_RUNS 64

struct ck_shard_run {
	uint64_t start, len;
};

struct ck_shard {
	struct ck_box box; /* along @dim: len is that of all runs together */
	unsigned dim, nr; /* nr 0: no axes, or no elements along @dim */
	struct ck_shard_run run[CK_SHARD_RUNS];
};

/* The whole of a tensor. */
void ck_shard_whole(struct ck_shard *s, const uint64_t *shape, unsigned rank);

/*
 * What of the shard's own order lies at element @at < its volume: elements
 * @box of the tensor, of whose row-major order position @skip is that.  What
 * follows there, to the end of @box, follows in the shard too.
 */
void ck_shard_at(const struct ck_shard *s, uint64_t at, struct ck_box *box,
		 uint64_t *skip);

/* Whether @box is a stretch of the row-major order of @shape; where, if so. */
bool ck_box_is_stretch(const struct ck_box *box, const uint64_t *shape,
		       uint64_t *first);

#endif
