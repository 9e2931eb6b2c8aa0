/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dentry_trim.h - asks the kernel to forget checkpoints that nobody looks at
 *
 * The kernel keeps every name that it was told of until memory runs short, and
 * each keeps one of the mounted checkpoints' numbers, of which there are only
 * so many.  Nothing waits for it to comply.  The request may wait for
 * operations that are being served, so a thread of its own makes it.
 */
#ifndef FS_DENTRY_TRIM_H
#define FS_DENTRY_TRIM_H

#include "core/base/err.h"
#include "fs/tree/mounted.h"

#include <pthread.h>

struct fuse_session;

struct fs_dentry_trim {
	struct fs_mounted_table *table; /* NULL: not started */
	struct fuse_session *se;
	pthread_t thread;
};

int fs_dentry_trim_start(struct fs_dentry_trim *t,
			 struct fs_mounted_table *table,
			 struct fuse_session *se, struct ck_err *err);
/* Nothing where it was not started. */
void fs_dentry_trim_stop(struct fs_dentry_trim *t);

#endif
