/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runs.h - stretches of a file: sorted, apart from each other
 *
 * Two that touch are one, so that a file written from front to back is one
 * stretch however many calls that took.  Kept in blocks, so that one more in
 * the middle of a million moves little.
 *
 * Pure, but for allocation.  One thread at a time.
 */
#ifndef CK_RUNS_H
#define CK_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_RUN_NO_SLOT UINT32_MAX

struct ck_run {
	uint64_t off, end; /* bytes; off < end */
	uint32_t slot; /* its user's: where it is written down */
	bool safe; /* its user's */
};

struct ck_runs_block;
struct ck_runs {
	struct ck_runs_block **v;
	size_t nr, room; /* blocks */
	size_t total; /* stretches */
};

void ck_runs_free(struct ck_runs *r);
/* The first that ends behind @pos; NULL: none.  Holds until a change. */
const struct ck_run *ck_runs_at(const struct ck_runs *r, uint64_t pos);
/* Takes out the first that has a byte in, or touches, [off, end]. */
bool ck_runs_take(struct ck_runs *r, uint64_t off, uint64_t end,
		  struct ck_run *out);
/* Which nothing that is in it may touch.  0 or -ENOMEM. */
int ck_runs_put(struct ck_runs *r, const struct ck_run *run);
/* Makes [off, end) part of it, without slots: 0 or -ENOMEM. */
int ck_runs_add(struct ck_runs *r, uint64_t off, uint64_t end);
/* Takes [off, end) out of it, without slots. */
int ck_runs_cut(struct ck_runs *r, uint64_t off, uint64_t end);
/* @was: called for each, in order; not 0 ends it, and is given back. */
int ck_runs_each(const struct ck_runs *r,
		 int (*call)(void *ctx, const struct ck_run *run), void *ctx);

#endif
