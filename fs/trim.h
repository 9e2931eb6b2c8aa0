/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trim.h - asks the kernel to forget checkpoints that nobody looks at
 *
 * The kernel keeps every name that it was told of until memory runs short,
 * and each keeps one of the slots' numbers, of which there are only so many.
 * Nothing waits for it to comply.  The request may wait for operations that
 * are being served, so a thread of its own makes it.
 */
#ifndef FS_TRIM_H
#define FS_TRIM_H

#include "core/base/err.h"
#include "fs/tree/slot.h"

#include <pthread.h>

struct fuse_session;

struct fs_trim {
	struct fs_slots *slots; /* NULL: not started */
	struct fuse_session *se;
	pthread_t thread;
};

int fs_trim_start(struct fs_trim *t, struct fs_slots *slots,
		  struct fuse_session *se, struct ck_err *err);
/* Nothing where it was not started. */
void fs_trim_stop(struct fs_trim *t);

#endif
