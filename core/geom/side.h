/* SPDX-License-Identifier: Apache-2.0 */
/*
 * side.h - what was learnt of deferred items after the image was made
 *
 * One 64-bit word a chunk, written once by compare-and-swap, so readers take
 * no lock.  The first resolver wins; resolving twice gives the same answer.
 * Threads: any, at any time.
 */
#ifndef CK_SIDE_H
#define CK_SIDE_H

#include <stdint.h>

struct ck_side;

enum ck_side_state { CK_SIDE_UNKNOWN, CK_SIDE_PLACED, CK_SIDE_BAD };

/* Where the payload of an item is. */
struct ck_place {
	uint64_t off; /* of element 0 of the box, in the chunk's source */
	const int64_t *stride; /* elements, per grid axis; NULL: row-major */
	uint8_t xform; /* enum ck_xform */
	int err; /* CK_SIDE_BAD: the errno to answer with */
};

struct ck_side *ck_side_new(uint32_t nr_chunks); /* NULL: no memory */
void ck_side_free(struct ck_side *side);
enum ck_side_state ck_side_get(const struct ck_side *side, uint32_t chunk,
			       struct ck_place *out);
/* Copies @place (rank strides).  0, -ENOMEM; 0 too if it was known already. */
int ck_side_put(struct ck_side *side, uint32_t chunk,
		const struct ck_place *place, unsigned rank);
int ck_side_put_bad(struct ck_side *side, uint32_t chunk, int err);

#endif
