/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extent.h - a tensor as a file stores it
 *
 * Whoever gives one says how long its pointers live.  Any thread.
 */
#ifndef CK_EXTENT_H
#define CK_EXTENT_H

#include "core/catalog/builder.h"

#include <stdbool.h>
#include <stdint.h>

struct ck_extent {
	const uint64_t *shape; /* rank values */
	const int64_t *stride; /* elements; NULL: row-major without gaps */
	const char *fault; /* why it cannot be used; NULL: it can */
	uint64_t off; /* bytes into @src; of element 0 */
	uint64_t storage; /* torch.save: where its storage begins; else 0 */
	uint32_t src; /* the builder's number of the file */
	uint8_t dtype, xform; /* as stored; enum ck_xform */
	uint8_t rank;
};

/* All of it as the tensor of that name. */
struct ck_part ck_extent_part(const struct ck_extent *x, const char *name,
			      size_t len);
/* Whether its elements lie in row-major order without gaps. */
bool ck_extent_is_dense(const struct ck_extent *x);
/* Bytes of all its elements; false: 2^62 or more. */
bool ck_extent_bytes(const struct ck_extent *x, uint64_t *bytes);

#endif
