/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chunk.h - what a chunk of a catalog holds, and where its bytes are
 *
 * For whoever looks at chunks one by one; a cursor's segments say the same of
 * what is read.
 */
#ifndef CK_CHUNK_H
#define CK_CHUNK_H

#include "core/geom/catalog.h"
#include "core/geom/range.h"
#include "core/geom/resolved.h"

struct ck_chunk_at {
	const struct ck_layout *layout;
	const uint64_t *corner, *len; /* its box in the grid: rank values */
	unsigned rank;
	bool flat; /* of its box only [lo, hi), in row-major order */
	uint64_t lo, hi; /* of another one: all */
	uint64_t bytes; /* of these elements */
	/*
	 * In its source: of the box's element 0, or of the flat ones' first; of
	 * the item where it is not placed.
	 */
	uint64_t off;
	const int64_t *stride; /* elements; NULL: none skipped, or not placed */
	uint64_t
		item; /* DEFERRED: bytes of the item at the chunk's off; or 0 */
	bool placed; /* false: in an item of which no more is known, or @err */
	uint8_t xform;
	int err;
};

/* @resolved may be NULL: then an item is one that nobody has looked into. */
void ck_chunk_at(const struct ck_catalog *img,
		 const struct ck_resolved *resolved, unsigned rank,
		 const struct ck_chunk *chunk, struct ck_chunk_at *out);
/*
 * The bytes of the source that its elements lie between, or the item's; false:
 * they begin before 0 or end past CK_SIZE_MAX.
 */
bool ck_chunk_extent(const struct ck_chunk_at *at, uint64_t *from,
		     uint64_t *to);
/* Bytes of the item that deferred @chunk is in; 0: it is not deferred. */
uint64_t ck_chunk_item(const struct ck_catalog *img, unsigned rank,
		       const struct ck_chunk *chunk);
uint64_t ck_chunk_volume(const struct ck_catalog *img,
			 const struct ck_chunk *chunk, unsigned rank);
/*
 * Bytes that the box of @len at @stride elements reaches, relative to element
 * 0; false: further than CK_SIZE_MAX.
 */
bool ck_stride_extent(const uint64_t *len, const int64_t *stride, unsigned rank,
		      uint8_t elem, int64_t *lo, int64_t *hi);

/* Box of a chunk in its tensor's grid.  FLAT: the box that bounds [lo, hi). */
void ck_chunk_box(const struct ck_catalog *img, unsigned rank,
		  const struct ck_chunk *chunk, struct ck_box *box);
/* The same as start[rank], end[rank]. */
void ck_chunk_bounds(const struct ck_catalog *img, const struct ck_chunk *chunk,
		     unsigned rank, uint64_t *start, uint64_t *end);
/* The at most 2*rank+1 boxes of the grid that it covers. */
struct ck_chunk_walk {
	const uint64_t *corner;
	struct ck_range range;
};
void ck_chunk_walk_init(struct ck_chunk_walk *w, const struct ck_catalog *img,
			const struct ck_chunk *chunk, unsigned rank);
bool ck_chunk_walk_next(struct ck_chunk_walk *w, struct ck_box *box);

#endif
