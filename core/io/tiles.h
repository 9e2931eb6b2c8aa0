/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiles.h - bounded cache of stretches of tensors that are slow to gather
 *
 * Where neighbours in a tensor are far apart in its source (a transposed
 * tensor read in rows), a request would touch a page of the source for every
 * few bytes.  Such a tensor is read in tiles: stretches of its bytes that are
 * long enough for whole pages of the source.
 *
 * A tile is filled once, however many threads want it, and is used only while
 * every source that it was made of is still the file that was described, and
 * was not written since.
 *
 * Threads: any.
 */
#ifndef CK_TILES_H
#define CK_TILES_H

#include "core/base/err.h"

#include <stdint.h>

struct ck_reader;
struct ck_tiles;

struct ck_tiles *ck_tiles_new(struct ck_reader *r, uint64_t max);
void ck_tiles_free(struct ck_tiles *c);

/*
 * Bytes of tensor @t through tiles that suit @chunk of it.  -EREMOTE, without
 * a line: not here (the tile cannot be made, would not fit, or its sources
 * have changed): read them directly.
 */
int ck_tiles_read(struct ck_tiles *c, uint32_t t, uint32_t chunk,
		  unsigned char *buf, uint64_t len, uint64_t off);

#endif
