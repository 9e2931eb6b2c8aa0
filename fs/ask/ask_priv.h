/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask_priv.h - what ask.c writes, and askers.c and asker.c read
 *
 * An asker first says one struct ck_err: whether it can ask.  A question is a head,
 * then @len bytes of items, each with its name behind it, and as many NULs as make
 * a multiple of 8.  The answer is one int32_t: 0 or -errno.
 *
 * An order to who starts askers is one message, and so is the answer to one that
 * wants a process: with the descriptor of the worker's end.
 */
#ifndef FS_ASK_PRIV_H
#define FS_ASK_PRIV_H

#include "fs/ask/ask.h"

#include <stddef.h>
#include <stdint.h>

#define FS_ASK_MAX (UINT32_C(64) << 20) /* bytes of items */

struct fs_ask_head {
	uint32_t len;
	int32_t pid;
	uint32_t uid, gid;
	uint32_t keep_ms; /* how long the answer may be given again; 0: not */
	uint32_t pad;
};

struct fs_ask_order {
	int32_t end; /* the asker to be killed; 0: none */
	int32_t start; /* whether one is wanted */
};
struct fs_ask_started {
	int32_t pid; /* or -errno, and no descriptor comes */
};

/*
 * @mask of a change is its flags, and the name "NAME/OTHER" where there is one.
 * Of an owner @dev and @ino are the user and the group, and @mask the rights.
 */
struct fs_ask_item {
	uint64_t dev, ino; /* ino 0: any */
	uint32_t name_len; /* the NUL not counted */
	uint16_t kind, mask; /* enum fs_ask_kind */
};

/* Bytes that an item takes. */
static inline size_t fs_ask_size(const struct fs_ask_item *item)
{
	return sizeof(*item) + (((size_t)item->name_len + 8) & ~(size_t)7);
}

/* Makes an asker of @s: its process, *fd the worker's end.  -errno. */
pid_t fs_ask_fork(const struct fs_askers *s, int *fd);

#endif
