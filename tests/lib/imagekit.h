/* SPDX-License-Identifier: Apache-2.0 */
/*
 * imagekit.h - catalogs made by hand, for tests of what reads catalogs
 *
 * Nothing is checked, so that what the builder would refuse can be made too.
 * Out of memory aborts.
 */
#ifndef IMAGEKIT_H
#define IMAGEKIT_H

#include "core/base/vec.h"
#include "core/geom/dtype.h"
#include "core/geom/catalog.h"

struct imagekit {
	CK_VEC(uint64_t) dims;
	CK_VEC(struct ck_chunk) chunks;
	CK_VEC(struct ck_layout) layouts;
	CK_VEC(struct ck_src) srcs;
	CK_VEC(struct ck_tensor) tensors;
	CK_VEC(char) strs;
};

void ik_free(struct imagekit *k);
uint32_t ik_dims(struct imagekit *k, const uint64_t *v, unsigned nr);
uint32_t ik_str(struct imagekit *k, const char *text);
uint32_t ik_src(struct imagekit *k, enum ck_src_kind kind, const char *name,
		uint64_t len);

struct ik_chunk {
	unsigned rank; /* of the grid */
	const uint64_t *start, *len;
	const int64_t *stride; /* elements; NULL: row-major */
	const uint64_t *flat; /* [lo, hi), or NULL */
	uint64_t item_len; /* not 0: deferred */
	uint64_t off;
	uint32_t src;
	uint8_t xform, op, state;
};
/* Chunks of one tensor come one after the other, its cells first. */
uint32_t ik_chunk(struct imagekit *k, const struct ik_chunk *in);
/* Makes one ring of @nr chunks. */
void ik_ring(struct imagekit *k, const uint32_t *chunks, unsigned nr);

struct ik_tensor {
	const char *name;
	enum ck_dtype dtype;
	unsigned rank, grid_rank; /* grid_rank 0 with grid NULL: the shape */
	const uint64_t *shape, *grid;
	uint32_t first, nr, nr_all;
	uint64_t covered;
};
uint32_t ik_tensor(struct imagekit *k, const struct ik_tensor *in);
/* Orders the tensor's cells and gives it a tree, where it has enough cells. */
void ik_index(struct imagekit *k, uint32_t tensor);

/* Valid until the next change of @k. */
struct ck_catalog ik_image(const struct imagekit *k);

#endif
