/* SPDX-License-Identifier: Apache-2.0 */
/* mount_point.h - where a mount is to be */
#ifndef MOUNT_POINT_H
#define MOUNT_POINT_H

#include "mount-helpers/cmd.h"

#include <limits.h>
#include <sys/types.h>

struct mount_point {
	const char *path; /* as given */
	char real[PATH_MAX];
	dev_t under; /* the device of what lies there now */
	bool absent, made; /* at first, and then by us */
	int lock_fd; /* -1 at first; its end ends the lock */
};

/*
 * Looks at what is there, makes it if nothing is, and takes its turn.  @ckpt: what
 * it must lie outside of; NULL: one file.  Exit codes, with a line.
 */
int mount_point_take(const struct cmd *c, struct mount_point *p,
		     const char *ckpt);
/* Nothing was mounted: what was made for it goes. */
void mount_point_unmake(const struct mount_point *p);

#endif
