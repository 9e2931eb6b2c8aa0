/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_procs.h - the processes of a mount, for whoever unmounts it
 *
 * After the last unmount a worker puts down what it still owes: checksums,
 * digests, a last fsync.  It tells its number as an attribute of the mount's
 * root, and by its name when it has begun.
 */
#ifndef FS_MOUNT_PROCS_H
#define FS_MOUNT_PROCS_H

#include "core/base/err.h"

#include <stdbool.h>
#include <sys/types.h>

#define FS_PID_XATTR "user.unshard.pid" /* of the root; in decimal */
#define FS_WORKER_NAME "unshard-worker" /* serves */
#define FS_FLUSH_NAME "unshard-settle" /* the same; nothing is mounted */
#define FS_SUPER_NAME "unshard-super"

struct fs_mount_procs {
	pid_t pid; /* of the worker; 0: not known */
	pid_t super_pid;
	int worker, super; /* descriptors of the processes; -1 */
	bool hangs; /* the mount did not answer */
};

/*
 * While @path is mounted.  Where the mount does not answer within seconds, or
 * not to this user, nothing will be known.
 */
void fs_mount_procs_look(struct fs_mount_procs *e, const char *path);
/*
 * After it was unmounted: waits until both processes ended, up to @seconds;
 * not at all where the worker serves on, for another namespace, nor for one that
 * was stopped.  -ETIMEDOUT with a line where the worker has not ended.
 */
int fs_mount_procs_wait(struct fs_mount_procs *e, const char *path,
			unsigned seconds, struct ck_err *err);
void fs_mount_procs_free(struct fs_mount_procs *e);

#endif
