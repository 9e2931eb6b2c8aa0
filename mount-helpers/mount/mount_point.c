/* SPDX-License-Identifier: Apache-2.0 */
/* mount_point.c - where a mount is to be: what is there, and whose turn it is */
#include "mount-helpers/mount/mount_point.h"

#include "core/base/auto.h"
#include "fs/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_SECONDS 30

static int check_empty(const struct cmd *c, const struct mount_point *p)
{
	ck_auto_dir DIR *dir = opendir(p->real);
	const struct dirent *d;

	/* Where it cannot be listed, the kernel decides. */
	while (dir && (d = readdir(dir)))
		if (strcmp(d->d_name, ".") && strcmp(d->d_name, ".."))
			return cmd_fail(c, CMD_SYSTEM,
					"%s: expected an empty directory to "
					"mount on, found \"%s\" in it",
					p->path, d->d_name);
	return 0;
}

/* Below the checkpoint, whoever lists it would wait for the mount itself. */
static int check_apart(const struct cmd *c, const struct mount_point *p,
		       const char *ckpt)
{
	ck_auto_free char *src = realpath(ckpt, NULL);
	size_t len = src ? strlen(src) : 0;

	if (!len || strncmp(p->real, src, len))
		return 0;
	if (!p->real[len])
		return cmd_fail(c, CMD_SYSTEM,
				"%s: it is the "
				"checkpoint itself; mount on a directory of "
				"its own",
				p->path);
	if (p->real[len] == '/' || !strcmp(src, "/"))
		return cmd_fail(c, CMD_SYSTEM,
				"%s: it lies in the "
				"checkpoint; mount on a directory outside of "
				"it",
				p->path);
	return 0;
}

/*
 * What the processes of a mount left that were killed, all of them: nobody can
 * use it, and nobody else takes it away.
 */
static void end_dead(const struct mount_point *p)
{
	struct statx st;

	/* not what the kernel remembers */
	if (statx(AT_FDCWD, p->path, AT_STATX_FORCE_SYNC, STATX_INO, &st) &&
	    (errno == ENOTCONN || errno == ECONNABORTED))
		fs_unmount(p->path, true, NULL);
}

/* Where the mount point will be that is not there. */
static int find_absent(const struct cmd *c, struct mount_point *p)
{
	ck_auto_free char *path = strdup(p->path), *parent = NULL;
	size_t len = path ? strlen(path) : 0;
	struct stat st;
	char *slash;

	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
	slash = path ? strrchr(path, '/') : NULL;
	if (slash)
		*slash = '\0';
	parent = realpath(!slash ? "." : *path ? path : "/", NULL);
	if (!parent || !lstat(p->path, &st) ||
	    snprintf(p->real, sizeof(p->real), "%s/%s",
		     strcmp(parent, "/") ? parent : "",
		     slash ? slash + 1 : path) >= (int)sizeof(p->real))
		return cmd_fail(c, CMD_SYSTEM,
				"%s: no such directory, and none can be made "
				"there",
				p->path);
	p->absent = true;
	return 0;
}

static int make_place(const struct cmd *c, struct mount_point *p)
{
	struct stat st;

	if (!p->absent)
		return 0;
	if ((mkdir(p->real, 0777) && errno != EEXIST) || stat(p->real, &st))
		return cmd_fail(c, CMD_SYSTEM, "%s: %s", p->path,
				strerror(errno));
	p->made = true;
	p->under = st.st_dev;
	return 0;
}

static int check_place(const struct cmd *c, struct mount_point *p)
{
	struct stat st;

	end_dead(p);
	if (stat(p->path, &st) && errno == ENOENT)
		return find_absent(c, p);
	if (stat(p->path, &st) && errno == ENOTCONN)
		return cmd_fail(c, CMD_SYSTEM,
				"%s: a dead mount lies "
				"there; end it with: unshard umount %s",
				p->path, p->path);
	if (stat(p->path, &st) || !realpath(p->path, p->real))
		return cmd_fail(c, CMD_SYSTEM, "%s: %s", p->path,
				strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return cmd_fail(c, CMD_SYSTEM,
				"%s: expected a "
				"directory to mount on, found a file",
				p->path);
	p->under = st.st_dev;
	return 0;
}

/*
 * One caller at a time: of several, each would find the place empty.  The lock
 * is on what lies below the mount, and ends with the descriptor.
 */
static int lock_place(const struct cmd *c, struct mount_point *p)
{
	const struct timespec pause = { .tv_nsec = 20000000 };

	p->lock_fd = open(p->real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int n = 0; p->lock_fd >= 0 && n < LOCK_SECONDS * 50; n++) {
		if (!flock(p->lock_fd, LOCK_EX | LOCK_NB) ||
		    errno != EWOULDBLOCK)
			return 0;
		nanosleep(&pause, NULL);
	}
	if (p->lock_fd < 0)
		return 0; /* not for this user to open: the kernel decides */
	return cmd_fail(c, CMD_SYSTEM,
			"%s: somebody else has been mounting there for %d s",
			p->path, LOCK_SECONDS);
}

int mount_point_take(const struct cmd *c, struct mount_point *p,
		     const char *ckpt)
{
	int ret = check_place(c, p);

	if (!ret && ckpt)
		ret = check_apart(c, p, ckpt);
	if (!ret)
		ret = make_place(c, p);
	if (!ret)
		ret = lock_place(c, p);
	if (!ret)
		ret = check_empty(c, p);
	return ret;
}

void mount_point_unmake(const struct mount_point *p)
{
	if (p->made)
		rmdir(p->real);
}
