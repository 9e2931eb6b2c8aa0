/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_dist.h - which box of a full tensor a saved DTensor or ShardedTensor is
 *
 * A rank that torch.saves its own state dict writes, beside its local bytes,
 * the full size and where it stood: a DTensor its mesh coordinate and its
 * placements, a ShardedTensor the offsets of each shard.
 */
#ifndef CK_TORCH_DIST_H
#define CK_TORCH_DIST_H

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/parse/pickle.h"

#include <stdbool.h>
#include <stdint.h>

struct ck_torch_piece {
	ck_pv local; /* the tensor with the bytes */
	unsigned rank;
	uint64_t shape[CK_MAX_RANK]; /* of the full tensor */
	uint64_t start[CK_MAX_RANK], len[CK_MAX_RANK]; /* of this box */
};

#define CK_TORCH_MESH 16 /* dimensions of a device mesh */

/* A mesh of devices, where one of them is in it, and how a tensor lies on it. */
struct ck_torch_mesh {
	unsigned rank;
	uint64_t size[CK_TORCH_MESH], at[CK_TORCH_MESH];
	struct {
		enum {
			CK_TORCH_REPLICATE,
			CK_TORCH_SHARD,
			CK_TORCH_STRIDED,
		} how;
		uint64_t dim;
		int64_t factor; /* strided: pieces that it cuts each of */
	} place[CK_TORCH_MESH];
};

/*
 * Which box of out->shape, of out->rank dimensions, that device has; false: the
 * placements are none that are known.
 */
bool ck_torch_mesh_box(const struct ck_torch_mesh *m,
		       struct ck_torch_piece *out);

/* 1 and the piece, 0 where @v is no DTensor, -EINVAL for one that is bad. */
int ck_torch_dtensor(const struct ck_pickle *p, ck_pv v,
		     struct ck_torch_piece *out, struct ck_err *err);

/*
 * The shards of a ShardedTensor: *@nr is how many this rank holds, and piece
 * @i of them is filled in.  1, 0 or -EINVAL as above.
 */
int ck_torch_sharded(const struct ck_pickle *p, ck_pv v, uint64_t i,
		     uint64_t *nr, struct ck_torch_piece *out,
		     struct ck_err *err);

#endif
