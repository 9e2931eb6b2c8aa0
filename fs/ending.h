/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ending.h - the processes of a mount, for whoever unmounts it
 *
 * After the last unmount a worker puts down what it still owes: checksums,
 * digests, a last fsync.  It tells its number as an attribute of the mount's
 * root, and by its name when it has begun.
 */
#ifndef FS_ENDING_H
#define FS_ENDING_H

#include "core/base/err.h"

#include <sys/types.h>

#define FS_PID_XATTR "user.unshard.pid" /* of the root; in decimal */
#define FS_WORKER_NAME "unshard-worker" /* serves */
#define FS_SETTLE_NAME "unshard-settle" /* the same; nothing is mounted */
#define FS_SUPER_NAME "unshard-super"

struct fs_ending {
	pid_t pid; /* of the worker; 0: not known */
	int worker, super; /* descriptors of the processes; -1 */
};

/*
 * While @path is mounted.  Where the mount does not answer within seconds, or
 * not to this user, nothing will be known.
 */
void fs_ending_look(struct fs_ending *e, const char *path);
/*
 * After it was unmounted: waits until both processes ended, up to @seconds;
 * not at all where the worker serves on, for another namespace.  -ETIMEDOUT
 * with a line.
 */
int fs_ending_wait(struct fs_ending *e, const char *path, unsigned seconds,
		   struct ck_err *err);
void fs_ending_free(struct fs_ending *e);

#endif
