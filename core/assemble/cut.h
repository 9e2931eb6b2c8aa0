/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut.h - how one rank's shard of a tensor lies in the whole tensor
 *
 * A shard is some boxes of the whole, each a box of the shard too: one for a
 * tensor split along an axis, two for a gated layer (gate rows, up rows), one
 * for each part of a fused one.  The shard's elements may be stored as a
 * tensor of its own, or as stretches of its row-major order in flat vectors.
 * All counts are elements.  One thread.
 */
#ifndef CK_CUT_H
#define CK_CUT_H

#include "core/base/limits.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"
#include "core/container/torch_place.h"

#include <stdint.h>

struct ck_cut_piece {
	uint64_t whole[CK_MAX_RANK]; /* where it begins in the whole */
	uint64_t shard[CK_MAX_RANK]; /* and in the shard */
	uint64_t len[CK_MAX_RANK];
};

struct ck_cut {
	unsigned rank;
	uint64_t whole[CK_MAX_RANK], shard[CK_MAX_RANK]; /* shapes */
	CK_VEC(struct ck_cut_piece) pieces;
};

void ck_cut_free(struct ck_cut *c);
#define ck_auto_cut __attribute__((cleanup(ck_cut_free)))

/* The shard is the whole. */
int ck_cut_whole(struct ck_cut *c, const uint64_t *shape, unsigned rank,
		 struct ck_err *err);
/*
 * Part @at of @nr equal ones along @axis; @blocks of them in each shard, one
 * after another (2: a gated layer).  -EINVAL where that does not fit.
 */
int ck_cut_axis(struct ck_cut *c, const uint64_t *shard, unsigned rank,
		unsigned axis, uint64_t blocks, uint64_t at, uint64_t nr,
		struct ck_err *err);

/*
 * The same of @nr_parts blocks that are not equal: @parts says how much of
 * @axis each has in the whole, and each rank has its @nr-th of every one.
 */
int ck_cut_parts(struct ck_cut *c, const uint64_t *shard, unsigned rank,
		 unsigned axis, const uint64_t *parts, unsigned nr_parts,
		 uint64_t at, uint64_t nr, struct ck_err *err);

/* A stretch of a flat vector: elements [at, at + len) of what it belongs to. */
struct ck_cut_run {
	uint64_t at, len;
	struct ck_torch_place place; /* of element @at; a vector, stride 1 */
};

/*
 * Says elements [lo, hi) of the shard's order, which are in @run from position
 * @pos of what the run belongs to: as much of them as the run has.
 */
int ck_cut_add_run(const struct ck_cut *c, struct ck_builder *b,
		   const char *name, size_t name_len, uint64_t lo, uint64_t hi,
		   uint64_t pos, const struct ck_cut_run *run,
		   struct ck_err *err);
/* The shard is stored as a tensor, of the shape that @c says. */
int ck_cut_add_tensor(const struct ck_cut *c, struct ck_builder *b,
		      const char *name, size_t name_len,
		      const struct ck_torch_place *place, struct ck_err *err);

#endif
