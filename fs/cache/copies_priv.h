/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies_priv.h - the two halves of copies.h
 *
 *	copies.c       which copies there are, and opening and closing them
 *	copies_read.c  how they fill up, and are read
 */
#ifndef FS_COPIES_PRIV_H
#define FS_COPIES_PRIV_H

#include "fs/cache/copies.h"

#include <pthread.h>
#include <stdatomic.h>

#define BLOCK ((uint64_t)FS_MAX_IO)

enum fs_copy_state { ABSENT, FILLING, THERE };

struct fs_copy_block {
	uint32_t missed; /* bytes that were read of it, */
	uint32_t end; /* the last ones up to here, while it was not there */
	uint8_t state;
};

#define NOT_ASKED (CK_NONE - 1) /* no source, but not yet known to be none */

struct fs_copy {
	struct fs_copies *of;
	struct fs_copy *next; /* the one that was opened before this */
	uint64_t serial, ino, kernel, size;
	unsigned users; /* opens, and those that are being answered */
	_Atomic uint32_t stored; /* the source that is the same; CK_NONE */
	uint64_t
		touch; /* of the shards, see ck_ckpt_unchanged(); 0, or @begun to be */
	_Atomic bool mapped; /* the page cache asked for it */
	bool begun; /* read: the kernel has no pages of other bytes */
	bool looked; /* that is known */
	bool changed; /* the shards are others by now */
	bool stale; /* the same, or they were touched */
	bool bad; /* nothing more is written to it */
	bool syncing; /* it is being written to storage, which may lose pages */
	bool safe; /* it is whole, and on storage */
	int fd; /* -1: nothing was written yet */
	char *map; /* of it, while it is open; NULL: not yet */
	uint64_t held; /* bytes */
	uint32_t left; /* blocks that are not there */
	struct fs_copy_block block[];
};

struct fs_copies {
	pthread_mutex_t lock;
	pthread_cond_t filled;
	struct fs_copies_in in;
	uint64_t held;
	unsigned nr, most;
	struct fs_copy *first;
	bool asked, stores; /* whether there are copies, or pages alone */
	bool told; /* that it cannot be written */
};

/* Files are not kept, because of @code: says so once. */
void fs_copies_tell(struct fs_copies *cs, int code);
/* Under the lock: the one that was opened the longest ago; false: all are open. */
bool fs_copies_drop_oldest(struct fs_copies *cs);

#endif
