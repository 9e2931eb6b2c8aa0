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

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define PREFIX "unshardfs-spool-"
#define ITEM ".unshard-spool-"
#define TRIES 10 /* at a folder that nobody takes for left */

static bool begins(const char *name, const char *prefix)
{
	return !strncmp(name, prefix, strlen(prefix));
}

/* Files are made with a name where no other can be had, for a moment. */
static void remove_items(int fd)
{
	ck_auto_dir DIR *d = fdopendir(dup(fd));
	const struct dirent *e;

	while (d && (e = readdir(d)))
		if (begins(e->d_name, ITEM))
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
		if (begins(e->d_name, PREFIX))
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
