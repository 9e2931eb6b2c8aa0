/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passthrough.h - files that the kernel reads from another file by itself
 *
 * An open is answered with the number of a file that was registered before, and
 * no read of it comes here (Linux 6.9).  Registering takes CAP_SYS_ADMIN, which
 * the worker has not: it sends the file, and its device, to the process that
 * started it, which keeps neither.  The kernel opens the file once more for each
 * open of ours, by that process's rights and in the mode that was asked for: so
 * this is for mounts that are only read.
 */
#ifndef FS_PASSTHROUGH_H
#define FS_PASSTHROUGH_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * The kernel knows one content of an inode.  What a file has beside one that is
 * still open is shown under a number in which these bits say so.
 */
#define FS_INO_TURNS 16
#define FS_INO_TURN (UINT64_C(15) << 28)

static inline uint64_t fs_ino_turn(uint64_t ino, unsigned turn)
{
	return (ino & ~FS_INO_TURN) | (uint64_t)turn << 28;
}

/* ---- in the process that started the worker ---- */

/* A pair of sockets; both are the caller's to close. */
int fs_passthrough_pair(int *own, int *worker, struct ck_err *err);
/* Does what the worker wants, which never takes long; false: it is gone. */
bool fs_passthrough_serve(int own);

/* ---- in the worker, one thread at a time ---- */

/*
 * The number of @file, above 0, for opens on device @dev; -errno.  -EPIPE:
 * nobody answers, and a later answer would be taken for that to another call.
 */
int fs_passthrough_add(int worker, int dev, int file);
/* Opens that were answered with @id stay as they are.  0, or as above. */
int fs_passthrough_drop(int worker, int dev, int id);

#endif
