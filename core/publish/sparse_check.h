/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse_check.h - bytes of a file that nobody wrote, and that read as zeros
 *
 * A writer that makes its file as long as it will be, and dies half-way, leaves
 * a file of the right size whose end is a hole.  A file system that cannot tell
 * says that there are none.  One that makes holes of zeros that were written
 * (ZFS, where it compresses) is found out by trying.
 *
 * Threads: any.
 */
#ifndef CK_SPARSE_CHECK_H
#define CK_SPARSE_CHECK_H

#include "core/base/err.h"
#include "core/draft/dir_tree.h"

#include <stdbool.h>
#include <stdint.h>

struct ck_ckpt;

/* Whether any of @files, which lie below @dir, has one. */
bool ck_sparse_any(const struct ck_dir_tree *files, int dir);
/*
 * Whether a hole in @dir may be zeros that somebody wrote: writes some into a
 * file without a name, or one that is gone again.  False where it cannot.
 */
bool ck_sparse_from_zeros(int dir);
/*
 * One in which a tensor or an object has bytes, or in a file of which @ck knows
 * nothing; lasts for the call.
 */
struct ck_hole {
	const char *file;
	uint64_t off, len; /* bytes */
	const char *of; /* the first of them, or NULL */
};
/*
 * Calls @each for all of them, by file and place; more than 0: no others of that
 * file, -errno: no others.  Items of @ck must be resolved.
 */
typedef int (*ck_hole_fn)(void *ctx, const struct ck_hole *h,
			  struct ck_err *err);
int ck_sparse_each(struct ck_ckpt *ck, ck_hole_fn each, void *ctx,
		   struct ck_err *err);
/* -ENODATA with a line for the first. */
int ck_sparse_check(struct ck_ckpt *ck, struct ck_err *err);

#endif
