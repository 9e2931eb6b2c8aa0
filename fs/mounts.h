/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounts.h - what is mounted where, and ending it
 *
 * Never asks the mount itself: it may be dead, or not served yet.
 */
#ifndef FS_MOUNTS_H
#define FS_MOUNTS_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define FS_MOUNT_TYPE "fuse.unshardfs"

struct fs_mount_info {
	char dev[32]; /* "0:57", unique among mounts */
	char type[64];
	const char *source, *super; /* what is mounted, its own options */
};

/* Calls @fn for each of ours, lowest first.  0 or -errno. */
int fs_mounts_each(void (*fn)(void *ctx, const char *path,
			      const struct fs_mount_info *info),
		   void *ctx);
/* The topmost mount at @path (absolute, no links): 0, -ENOENT or -errno. */
/* Without source and options. */
int fs_mounts_find(const char *path, struct fs_mount_info *out);
/*
 * Unmounts what is at @path, which is absolute, as root or by fusermount3.
 * -EBUSY, -EPERM ... with a line.
 */
int fs_mounts_end(const char *path, bool lazy, struct ck_err *err);

/*
 * What this process and its children write on stderr goes to a memory file
 * until fs_catch_end() puts its first line into @said.  One thread.
 */
struct fs_catch {
	int saved, file;
};
void fs_catch_begin(struct fs_catch *c);
void fs_catch_end(struct fs_catch *c, char *said, size_t size);

#endif
