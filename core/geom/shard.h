/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard.h - what one rank holds of a tensor: a box with axes in runs
 *
 *	such an axis:  0 ..[run 0)....[run 1)...[run 2).. n    other axes: a box
 *	the shard:     [run 0)[run 1)[run 2)
 *
 * A gated layer cut over ranks is two runs (rows of the gate, rows beside it),
 * a fused query, key and value three, a strided shard many, and one strided
 * along two axes every run of the one with every run of the other.  The
 * shard's own elements are row-major, runs joined along their axis.
 */
#ifndef CK_SHARD_H
#define CK_SHARD_H

#include "core/geom/range.h"

#define CK_SHARD_RUNS 64 /* along one axis */
#define CK_SHARD_CUTS 4 /* axes in runs */
#define CK_SHARD_PIECES 4096 /* boxes altogether */

struct ck_shard_run {
	uint64_t start, len;
};

/* An axis in several runs. */
struct ck_shard_cut {
	unsigned dim, nr;
	struct ck_shard_run run[CK_SHARD_RUNS];
};

struct ck_shard {
	struct ck_box box; /* of a cut axis: from the first run, len of all */
	unsigned nr; /* cuts, by rising axis */
	struct ck_shard_cut cut[CK_SHARD_CUTS];
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

/* How many boxes of the tensor it is. */
unsigned ck_shard_pieces(const struct ck_shard *s);
/* The @i-th of them, of the tensor, and where in the shard it begins. */
void ck_shard_piece(const struct ck_shard *s, unsigned i, struct ck_box *box,
		    uint64_t *to);

/* Whether @box is a stretch of the row-major order of @shape; where, if so. */
bool ck_box_is_stretch(const struct ck_box *box, const uint64_t *shape,
		       uint64_t *first);

#endif
