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

#include "core/assemble/assemble.h"
#include "core/base/limits.h"
#include "core/base/vec.h"
#include "core/mesh/mesh.h"

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
 * The shard is what place @at of @p stores; its steps are EVEN.  -EINVAL where
 * that does not fit.
 */
int ck_cut_placed(struct ck_cut *c, const struct ck_placement *p, uint32_t at,
		  const uint64_t *shard, unsigned rank, struct ck_err *err);

/* A strided view: where it begins and its strides, in elements. */
struct ck_cut_view {
	uint64_t offset, stride[CK_MAX_RANK];
};
/*
 * One more piece, which both views, of the row-major whole and of the shard,
 * have as a box of @len.  -EINVAL where one is none.
 */
int ck_cut_add_views(struct ck_cut *c, const uint64_t *len,
		     const struct ck_cut_view *whole,
		     const struct ck_cut_view *shard, struct ck_err *err);

/*
 * Gives tensor @t, which is declared by it if nothing else has, what @file has
 * of the shard: all of it as a tensor of the shard's shape,
 */
int ck_cut_give(const struct ck_cut *c, struct ck_asm *a,
		struct ck_asm_tensor *t, uint32_t file,
		const struct ck_extent *x, struct ck_err *err);

/* Elements [at, at + len) of what a file has in a row, the first of them @x's. */
struct ck_asm_run {
	uint64_t at, len;
	struct ck_extent x; /* shape and stride do not count */
};
/*
 * or elements [lo, hi) of its order, which are in @run from position @pos on: as
 * much of them as the run has.
 */
int ck_cut_give_run(const struct ck_cut *c, struct ck_asm *a,
		    struct ck_asm_tensor *t, uint32_t file, uint64_t lo,
		    uint64_t hi, uint64_t pos, const struct ck_asm_run *run,
		    struct ck_err *err);

#endif
