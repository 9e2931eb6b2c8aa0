/* SPDX-License-Identifier: Apache-2.0 */
/*
 * truncating_opens.h - files that were opened for writing and not written yet
 *
 * The kernel makes two requests of an open with O_TRUNC: the open, which it
 * takes the flag from, and then a truncation to 0, which says no file.  Both
 * come from one thread, so that the newest file that it opened tells which.
 *
 * Threads: any.
 */
#ifndef FS_TRUNCATING_OPENS_H
#define FS_TRUNCATING_OPENS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Part of an open file. */
struct fs_truncating {
	struct fs_truncating *next, **at; /* at NULL: not in the list */
	uint64_t ino;
	pid_t thread;
};

void fs_truncating_add(struct fs_truncating *f, uint64_t ino, pid_t thread);
void fs_truncating_drop(struct fs_truncating *f);
/*
 * Calls @fn for the file that @thread opened last as @ino, which cannot be
 * dropped meanwhile, and returns what it does; -EPERM: there is none.
 */
int fs_truncating_call(uint64_t ino, pid_t thread,
		       int (*fn)(void *ctx, struct fs_truncating *f),
		       void *ctx);

#endif
