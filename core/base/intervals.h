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

struct ck_interval {
	uint64_t off, end; /* bytes; off < end */
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
/* Whether anything of [off, end), which is not empty, is part of it. */
bool ck_intervals_any(const struct ck_intervals *r, uint64_t off, uint64_t end);
/* Makes [off, end) part of it: 0 or -ENOMEM. */
int ck_intervals_add(struct ck_intervals *r, uint64_t off, uint64_t end);
/* The same of all of @more. */
int ck_intervals_join(struct ck_intervals *r, const struct ck_intervals *more);
/* Takes [off, end) out of it. */
int ck_intervals_cut(struct ck_intervals *r, uint64_t off, uint64_t end);

#endif
