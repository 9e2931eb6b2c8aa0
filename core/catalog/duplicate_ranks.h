/* SPDX-License-Identifier: Apache-2.0 */
/*
 * duplicate_ranks.h - two ranks that hold the same bytes where they should
 * differ
 *
 * Where nothing but a name says whose a file is, a copy of one rank's file
 * under the name of another fits in every way, and reads as a tensor that
 * repeats its rows.  Equal bytes in all pieces that belong to different places
 * give it away; pieces of one value (fresh biases, moments) do not count.
 */
#ifndef CK_DUPLICATE_RANKS_H
#define CK_DUPLICATE_RANKS_H

#include "core/base/err.h"
#include "core/base/vec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One piece of a tensor of which there are others. */
struct ck_duplicate_piece {
	uint64_t off, len; /* bytes of @src */
	uint32_t unit; /* string: whose it is said to be */
	uint32_t src, tensor;
	uint32_t cell; /* which part of @tensor: replicas have the same */
	uint8_t elem; /* bytes an element */
};

struct ck_duplicate_ranks {
	CK_VEC(struct ck_duplicate_piece) v;
};

struct ck_duplicate_ranks_in {
	/* -ENOMEM ends it; any other -errno passes over that unit. */
	int (*read)(void *ctx, uint32_t src, void *buf, size_t len,
		    uint64_t off, struct ck_err *err);
	/* Unit @b is like @a, in all of its @pieces. */
	int (*each)(void *ctx, uint32_t a, uint32_t b, uint64_t pieces,
		    struct ck_err *err);
	void *ctx;
	bool whole; /* read all of each piece, not some of its bytes */
};

/* The bytes that chunk @x of a tensor lies in; false: none can be said. */
struct ck_catalog;
struct ck_chunk;
bool ck_duplicate_extent(const struct ck_catalog *img, const struct ck_chunk *x,
			 unsigned rank, uint64_t *off, uint64_t *len);
/* Calls @each in a fixed order; sorts @t.  0 or -errno. */
int ck_duplicate_ranks_find(struct ck_duplicate_ranks *t,
			    const struct ck_duplicate_ranks_in *in,
			    struct ck_err *err);

#endif
