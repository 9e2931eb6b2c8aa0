/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intervals.h - stretches of a file: sorted, apart from each other
 *
 * Two that touch are one, so that a file written from front to back is one
 * stretch however many calls that took.  Kept in blocks, so that one more in
 * the middle of a million moves little.
 *
 * Pure, but for allocation.  One thread at a time.
 */
#ifndef CK_INTERVALS_H
#define CK_INTERVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_INTERVAL_NO_SLOT UINT32_MAX

struct ck_interval {
	uint64_t off, end; /* bytes; off < end */
	uint32_t slot; /* its user's: where it is written down */
	bool safe; /* its user's */
};

struct ck_intervals_block;
struct ck_intervals {
	struct ck_intervals_block **v;
	size_t nr, room; /* blocks */
	size_t total; /* stretches */
};

void ck_intervals_free(struct ck_intervals *r);
/* The first that ends behind @pos; NULL: none.  Holds until a change. */
const struct ck_interval *ck_intervals_at(const struct ck_intervals *r,
					  uint64_t pos);
/* Takes out the first that has a byte in, or touches, [off, end]. */
bool ck_intervals_take(struct ck_intervals *r, uint64_t off, uint64_t end,
		       struct ck_interval *out);
/* Which nothing that is in it may touch.  0 or -ENOMEM. */
int ck_intervals_put(struct ck_intervals *r, const struct ck_interval *run);
/* Makes [off, end) part of it, without slots: 0 or -ENOMEM. */
int ck_intervals_add(struct ck_intervals *r, uint64_t off, uint64_t end);
/* Takes [off, end) out of it, without slots. */
int ck_intervals_cut(struct ck_intervals *r, uint64_t off, uint64_t end);
/* @was: called for each, in order; not 0 ends it, and is given back. */
int ck_intervals_each(const struct ck_intervals *r,
		      int (*call)(void *ctx, const struct ck_interval *run),
		      void *ctx);

#endif
