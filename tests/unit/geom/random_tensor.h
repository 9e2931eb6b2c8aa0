/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_tensor.h - a random tensor, its catalog, and where each byte is by
 * another way: a table of addresses per chunk, filled element by element
 */
#ifndef RANDOM_TENSOR_H
#define RANDOM_TENSOR_H

#include "core/geom/catalog.h"
#include "core/geom/resolved.h"
#include "tests/lib/imagekit.h"

#define RT_MAX_CHUNKS 512
#define RT_MAX_ELEMS 6000
#define RT_NOWHERE UINT64_MAX

struct rt_chunk {
	uint64_t *addr; /* of each element of the tensor, or RT_NOWHERE */
	uint64_t span; /* bytes of the source that it needs */
	uint32_t cell; /* which cell it is a copy of */
	bool deferred;
	struct ck_place place; /* what a resolver would answer */
	int64_t stride[16];
};

struct rt {
	unsigned seed;
	bool tall; /* more axes than one segment has, in any order */
	unsigned elem, rank, grid_rank;
	uint64_t shape[8], grid[16], volume;
	enum ck_dtype dtype;
	unsigned nr, nr_all; /* cells, chunks */
	struct rt_chunk c[RT_MAX_CHUNKS];
	int32_t *cell_of; /* of each element; -1: a hole */
	struct imagekit kit;
	struct ck_catalog img;
	struct ck_resolved *resolved;
};

uint64_t rt_rnd(struct rt *r, uint64_t n);
void rt_make(struct rt *r, unsigned seed);
void rt_free(struct rt *r);

#endif
