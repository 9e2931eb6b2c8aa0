/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reverse_map.h - from bytes of a source back to bytes of a tensor
 *
 * The way that cursor.h goes, backwards: which bytes of a tensor are made of
 * bytes [lo, hi) of a file.  Pure: no I/O, no allocation.
 */
#ifndef CK_REVERSE_MAP_H
#define CK_REVERSE_MAP_H

#include "core/geom/cursor.h"

struct ck_reverse_map {
	const struct ck_catalog *img;
	const struct ck_resolved *resolved; /* may be NULL */
	uint32_t src; /* a FILE */
	uint64_t lo, hi;
	bool elements; /* bytes of an item that are no elements are nobody's */
	void *ctx;
	/*
	 * Bytes [off, off + len) of the tensor come from there, in chunk
	 * @chunk.  In no order; no byte twice of one chunk.
	 */
	void (*each)(void *ctx, uint32_t chunk, uint64_t off, uint64_t len);
};

/*
 * All replicas count, the ones that a read would not use too.  Of what was
 * decoded, every byte comes from every byte.  An item whose frame the range
 * touches, rather than its payload, counts as a whole (but see @elements), and
 * so does one whose payload is not known.
 */
void ck_reverse_map_tensor(const struct ck_reverse_map *sp, uint32_t tensor);

#endif
