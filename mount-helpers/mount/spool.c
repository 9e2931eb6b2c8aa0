/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spool.c - the folder of a mount for decompressed items
 *
 * DIR/unshardfs-spool-XXXXXX, empty whenever nobody is making a file in it, and locked
 * (flock) by its mount's processes.  A supervisor that is killed leaves it; who
 * mounts next removes it, once the worker has ended too.
 */
#include "mount-helpers/mount/supervisor_priv.h"

#include "core/base/auto.h"
#include "core/base/suffix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PREFIX "unshardfs-spool-"
#define ITEM ".unshard-spool-"
#ifndef SYS_fsopen
#define SYS_fsopen 430 /* one number on all machines */
#define SYS_fsconfig 431
#define SYS_fsmount 432
#endif
/* As linux/mount.h has them, beside which sys/mount.h cannot be included. */
#define FSOPEN_CLOEXEC 1
#define FSMOUNT_CLOEXEC 1
#define FSCONFIG_SET_STRING 1
#define FSCONFIG_CMD_CREATE 6
#define MOUNT_ATTR_NOSUID_ 2
#define MOUNT_ATTR_NOEXEC_ 8

#define TRIES 10 /* at a folder that nobody takes for left */

/* Files are made with a name where no other can be had, for a moment. */
static void remove_items(int fd)
{
	ck_auto_dir DIR *d = fdopendir(dup(fd));
	const struct dirent *e;

	while (d && (e = readdir(d)))
		if (ck_begins(e->d_name, ITEM))
			unlinkat(fd, e->d_name, 0);
}

static void remove_left(int dir, const char *name)
{
	ck_auto_fd int fd = openat(
		dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || st.st_uid != geteuid() ||
	    (st.st_mode & 077) || flock(fd, LOCK_EX | LOCK_NB))
		return;
	remove_items(fd);
	unlinkat(dir, name, AT_REMOVEDIR);
}

static void remove_all_left(const char *in)
{
	ck_auto_dir DIR *d = opendir(in);
	const struct dirent *e;

	while (d && (e = readdir(d)))
		if (ck_begins(e->d_name, PREFIX))
			remove_left(dirfd(d), e->d_name);
}

/* Whether it is still there: until it was locked, it looked left. */
static bool is_ours(int fd, const char *path)
{
	struct stat own, there;

	return !flock(fd, LOCK_SH | LOCK_NB) && !fstat(fd, &own) &&
	       !stat(path, &there) && own.st_ino == there.st_ino &&
	       own.st_dev == there.st_dev;
}

/*
 * Pages of a file system of its own can be large ones, and are read three times as
 * fast then; those of a memfd are as the machine's settings say.
 */
int spool_in_memory(void)
{
	ck_auto_fd int fs = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);

	if (fs < 0)
		return -1;
	syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "mode", "0700", 0);
	syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "size", "0", 0);
	syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "huge", "always", 0);
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		return -1;
	return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
			    MOUNT_ATTR_NOEXEC_ | MOUNT_ATTR_NOSUID_);
}

int spool_make(const char *dir, char *out, size_t size, int *fd)
{
	remove_all_left(dir);
	for (unsigned n = 0; n < TRIES; n++) {
		snprintf(out, size, "%s/" PREFIX "XXXXXX", dir);
		if (!mkdtemp(out)) {
			*out = '\0';
			return -errno;
		}
		*fd = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (*fd >= 0 && is_ours(*fd, out))
			return 0;
		if (*fd >= 0)
			close(*fd);
		*fd = -1;
		rmdir(out);
	}
	*out = '\0';
	return -EAGAIN;
}
