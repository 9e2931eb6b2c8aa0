/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mesh.h - a mesh of ranks, how a tensor lies on it, and what a rank holds
 *
 *	mesh       2 x 3       axes, the first varies slowest
 *	placement  axis 0: Shard(1)   axis 1: Replicate   (or Partial: a sum)
 *
 * A placement is a list of steps.  Each shards one dimension, of what the
 * steps before it left, along one axis of the mesh or several; or it shards
 * each of several blocks of the dimension by itself, which is how gated, fused
 * and strided (DTensor's _StridedShard) layers lie; or, after all others, the
 * row-major order of what is left (flat).  An axis without a step replicates.
 *
 * Counts are elements.  Pure: no I/O, no allocation; any thread.
 *
 * A ck_placement is compared as bytes by some: zero it before filling.
 */
#ifndef CK_MESH_H
#define CK_MESH_H

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/geom/shard.h"

#include <stdbool.h>
#include <stdint.h>

#define CK_MESH_AXES 32
#define CK_MESH_STEPS 16
#define CK_MESH_BLOCKS 16 /* that differ in length */

/* ---- one extent, in parts ---- */

enum ck_sizes {
	CK_SIZES_EVEN, /* n equal parts, nothing left over */
	CK_SIZES_CEIL, /* ceil(extent/n) each, the last ones less, or nothing */
	CK_SIZES_BALANCED, /* the first extent%n parts one more than the others */
	CK_SIZES_GIVEN,
};

struct ck_split {
	enum ck_sizes how;
	uint64_t nr; /* parts, not 0 */
	const uint64_t *given; /* nr */
};

/* Part @i of @extent; -EINVAL where it does not come out. */
int ck_split_part(const struct ck_split *s, uint64_t extent, uint64_t i,
		  uint64_t *start, uint64_t *len, struct ck_err *err);

/*
 * What part @i of parts of @size holds of elements [pos, pos + nr) of what is
 * cut: [*lo, *hi) of those, which begin at *at of the part; false: none.
 */
bool ck_split_meet(uint64_t size, uint64_t i, uint64_t pos, uint64_t nr,
		   uint64_t *lo, uint64_t *hi, uint64_t *at);
/* Where number @i of @nr goes when they are dealt to @parts in turn. */
uint64_t ck_split_dealt(uint64_t i, uint64_t nr, uint64_t parts);

/* ---- the mesh ---- */

struct ck_mesh_place {
	uint32_t rank, at;
};

struct ck_mesh {
	const struct ck_mesh_place *place; /* all, by rank; NULL: from @base */
	uint32_t base; /* the rank of place 0 */
	uint32_t ranks; /* product of the sizes */
	uint32_t nr; /* axes */
	uint32_t size[CK_MESH_AXES];
};

/* The number of the new axis; CK_MESH_AXES: too many, or over @max ranks. */
unsigned ck_mesh_add_axis(struct ck_mesh *m, uint32_t size, uint32_t max);
/* Row-major coordinates of place @at < ranks. */
void ck_mesh_coords(const struct ck_mesh *m, uint32_t at, uint64_t *coord);
uint32_t ck_mesh_rank_at(const struct ck_mesh *m, uint32_t at);
/* Sorts places by rank; false: *@twice is the rank of two. */
bool ck_mesh_sort(struct ck_mesh_place *place, uint32_t nr, uint32_t *twice);
/* The place of @rank; false: it is not in the mesh. */
bool ck_mesh_find(const struct ck_mesh *m, uint32_t rank, uint32_t *at);

/* ---- the placement ---- */

struct ck_mesh_step {
	const char *axis_name; /* for messages; may be NULL */
	struct ck_split split;
	uint64_t padded; /* a dim's first step: cut as if so long; or 0 */
	uint64_t blocks; /* so many, each cut by itself; 0: no blocks */
	uint64_t weight[CK_MESH_BLOCKS]; /* of the blocks; all 0: equal ones */
	uint8_t dim;
	uint8_t block_how; /* enum ck_sizes */
	bool flat; /* the row-major order, not @dim; the last step */
	bool nonempty; /* no part may be empty unless all are */
	/* The most significant first: together which part, modulo split.nr. */
	uint8_t nr_axes;
	uint8_t axis[CK_MESH_AXES];
};

struct ck_placement {
	struct ck_mesh mesh;
	uint32_t partial; /* axes, as bits: all but their first have zeros */
	uint32_t nr;
	struct ck_mesh_step step[CK_MESH_STEPS];
};

/* Shard(@dim) along one axis, to be refined; NULL: there are too many. */
struct ck_mesh_step *ck_placement_shard(struct ck_placement *p, unsigned dim,
					unsigned axis, enum ck_sizes how);

/*
 * Which of *@nr parts place @at has, of dimension @dim, or with @dim < 0 of the
 * tensor.  Places with the same part of the tensor are replicas.
 */
uint32_t ck_placement_part(const struct ck_placement *p, int dim, uint32_t at,
			   uint32_t *nr);

/*
 * What place @at holds of a tensor of @shape.  -EINVAL with the reason where
 * it cannot be cut so; that does not depend on @at.  *@zeros: it is a partial
 * sum, of which another place has all.
 */
int ck_placement_at(const struct ck_placement *p, uint32_t at,
		    const uint64_t *shape, unsigned rank, struct ck_shard *out,
		    bool *zeros, struct ck_err *err);

/*
 * The other way round: the shape of the tensor of which place @at stores
 * @stored.  Steps are EVEN or GIVEN.  -EINVAL: it overflows, or sizes are given
 * and that is not what @at stores.
 */
int ck_placement_full(const struct ck_placement *p, uint32_t at,
		      const uint64_t *stored, unsigned rank, uint64_t *shape,
		      struct ck_err *err);

/*
 * Where the one step has equal blocks, maybe more than a ck_shard holds: the
 * box of place @at in @grid, which refines @shape.  False: it is not so.
 */
bool ck_placement_grid(const struct ck_placement *p, uint32_t at,
		       const uint64_t *shape, unsigned rank, uint64_t *grid,
		       struct ck_box *out);

/* ---- with padding, and flat: what layout files say besides ---- */

struct ck_placed {
	uint64_t start[CK_MAX_RANK], len[CK_MAX_RANK]; /* without padding */
	uint64_t full[CK_MAX_RANK]; /* as stored, with padding */
	bool flat;
	uint64_t lo, hi; /* flat: of the box's order */
	uint64_t stored; /* flat: elements, with padding */
};

/*
 * What @nr steps without blocks, of one axis each, leave at @coord, which has
 * the coordinates of those axes.
 */
int ck_mesh_place(const struct ck_mesh_step *step, unsigned nr,
		  const uint64_t *coord, const uint64_t *shape, unsigned rank,
		  struct ck_placed *out, struct ck_err *err);

#endif
