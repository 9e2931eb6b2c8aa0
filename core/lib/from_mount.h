/* SPDX-License-Identifier: Apache-2.0 */
/*
 * from_mount.h - a path in a mount of unshardfs: what is mounted there
 */
#ifndef CK_FROM_MOUNT_H
#define CK_FROM_MOUNT_H

#include "core/ckpt/map_file.h"

#include <limits.h>

struct ck_from_mount {
	struct ck_map map;
	/* The same in the checkpoint itself; "", or a view to read, without a map. */
	char path[PATH_MAX];
	char served[PATH_MAX]; /* the same in shards/ of the mount */
	bool took_step; /* it is that of the step, too */
};

/*
 * 1: @path, or checkpoint @step (or NULL) in it, or the only one, is in a mount that
 * has a map, and @out, which is to be freed by ck_map_free(&out->map), says of what;
 * 0: it is not; -errno.  A map counts only where it is served by a mount of unshardfs
 * that the caller, or root, has made: no file of a checkpoint is taken for one.
 */
int ck_from_mount(struct ck_from_mount *out, const char *path, const char *step,
		  struct ck_err *err);

#endif
