/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolved.h - what was learnt of deferred items after the catalog was made
 *
 * One 64-bit word a chunk, written by compare-and-swap, so readers take no
 * lock.  The first resolver wins; resolving twice gives the same answer, until
 * it is forgotten because its file was touched.
 * Threads: any, at any time.
 */
#ifndef CK_RESOLVED_H
#define CK_RESOLVED_H

#include "core/base/err.h"

#include <stdint.h>

struct ck_resolved;

enum ck_resolved_state {
	CK_RESOLVED_UNKNOWN,
	CK_RESOLVED_PLACED,
	CK_RESOLVED_BAD
};

/* Where the payload of an item is. */
struct ck_place {
	uint64_t off; /* of element 0 of the box, in the chunk's source */
	const int64_t *stride; /* elements, per grid axis; NULL: row-major */
	uint8_t xform; /* enum ck_xform */
	int err; /* CK_RESOLVED_BAD: the errno to answer with */
};

struct ck_resolved *ck_resolved_new(uint32_t nr_chunks); /* NULL: no memory */
void ck_resolved_free(struct ck_resolved *resolved);
enum ck_resolved_state ck_resolved_get(const struct ck_resolved *resolved,
				       uint32_t chunk, struct ck_place *out);
/*
 * Resolves deferred chunk @chunk into the table (ck_resolved_put or _bad).
 * 0 when the table has an answer, good or bad; -errno: try again later.
 */
typedef int (*ck_resolve_fn)(void *ctx, uint32_t chunk, struct ck_err *err);
/* Before anybody else uses it: who is asked. */
void ck_resolved_by(struct ck_resolved *resolved, ck_resolve_fn fn, void *ctx);
/*
 * The same, and what is unknown is asked for: THE place where that is done, for it
 * may become unknown again at any time.  @why: of what is found bad just now, and
 * where it stays unknown.
 */
enum ck_resolved_state ck_resolved_find(const struct ck_resolved *resolved,
					uint32_t chunk, struct ck_place *out,
					struct ck_err *why);
/* Copies @place (rank strides).  0, -ENOMEM; 0 too if it was known already. */
int ck_resolved_put(struct ck_resolved *resolved, uint32_t chunk,
		    const struct ck_place *place, unsigned rank);
int ck_resolved_put_bad(struct ck_resolved *resolved, uint32_t chunk, int err);
/* Nothing is known of @chunk; who has its strides may use them still. */
void ck_resolved_forget(struct ck_resolved *resolved, uint32_t chunk);

#endif
