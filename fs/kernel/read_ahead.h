/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_ahead.h - how far the kernel reads ahead where a file of the mount is mapped
 *
 * Page faults ask for as much as the mount's backing device says, 128 KiB
 * where nobody raised it, which is ten times slower than 4 MiB.  Only root
 * may, in /sys; for the mounts of others the packages have a udev rule
 * (packaging/udev/).
 */
#ifndef FS_READ_AHEAD_H
#define FS_READ_AHEAD_H

#include <stdatomic.h>
#include <stdbool.h>

#define FS_READ_AHEAD_KIB 4096u

struct fs_read_ahead {
	int fd; /* of the setting; -1: it cannot be known */
	char dev[32]; /* the mount's device, MAJOR:MINOR */
	atomic_bool said;
};

/* @dev as mountinfo has it.  With @raise, raises it where it is lower. */
void fs_read_ahead_open(struct fs_read_ahead *a, const char *dev, bool raise);
void fs_read_ahead_close(struct fs_read_ahead *a);
/* What is in force now; 0: unknown. */
unsigned fs_read_ahead_kib(const struct fs_read_ahead *a);
/* A file is mapped: the first time, a low setting is logged. */
void fs_read_ahead_mapped(struct fs_read_ahead *a);

#endif
