/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer_lock.c - record locks, and a line beside them that says whose they are
 *
 * The line is believed only while the lock is held: what a process leaves that
 * was killed means nothing.  A file that was locked may be gone from its
 * directory by then, its holder having ended; so it is looked for again.
 */
#include "core/root/writer_lock.h"

#include "core/base/auto.h"
#include "core/base/fds.h"
#include "core/base/str.h"
#include "core/root/openat_beneath.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/xattr.h>

#define FAR ((off_t)1 << 62) /* no file has such a byte */
#define ATTR "user.unshard.holder"
#define MAX_LINE 200
#define TRIES 20

struct ck_writer_lock {
	unsigned nr;
	struct {
		int dir, fd; /* dir: borrowed; fd -1: without a lock */
	} v[];
};

static void who_am_i(char line[MAX_LINE])
{
	struct utsname u;

	snprintf(line, MAX_LINE, "process %ld on %.100s", (long)getpid(),
		 uname(&u) ? "this machine" : u.nodename);
}

/* What was left in @line, @len bytes of it, as text for a message. */
static int busy(const char *what, char *line, ssize_t len, struct ck_err *err)
{
	ck_auto_str struct ck_str who = { 0 };

	if (len > 0)
		ck_str_plain(&who, line, strnlen(line, (size_t)len));
	return ck_fail(err, EBUSY,
		       "%s: is being edited by %s; one mount at a time writes "
		       "to a checkpoint, until it ends",
		       what, who.len ? who.v : "another process");
}

/* ---- the directory ---- */

static int busy_dir(const struct ck_root *root, int fd, struct ck_err *err)
{
	char line[MAX_LINE];

	return busy(root->path, line, pread(fd, line, sizeof(line), 0), err);
}

/* Without leave to write it, somebody else may have it all the same. */
static int only_look(const struct ck_root *root, struct ck_err *err)
{
	ck_auto_fd int fd =
		openat(root->fd, CK_WRITER_LOCK_NAME,
		       O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	return fd >= 0 && ck_fds_is_locked(fd, 0) ? busy_dir(root, fd, err) : 0;
}

static bool is_named(int dir, const struct stat *st)
{
	struct stat now;

	return !fstatat(dir, CK_WRITER_LOCK_NAME, &now, AT_SYMLINK_NOFOLLOW) &&
	       now.st_dev == st->st_dev && now.st_ino == st->st_ino;
}

static void sign(int fd)
{
	char line[MAX_LINE];

	who_am_i(line);
	if (ftruncate(fd, 0) || pwrite(fd, line, strlen(line), 0) < 0)
		return; /* the lock is what counts */
}

/* A manifest is written only by who holds the lock: what is left is nobody's. */
static bool is_temp(int dir, const char *name)
{
	const char *rest = name + strlen(CK_WRITER_LOCK_TEMP);
	size_t pid;
	struct stat st;

	if (strncmp(name, CK_WRITER_LOCK_TEMP, strlen(CK_WRITER_LOCK_TEMP)))
		return false;
	pid = strspn(rest, "0123456789");
	if (!pid || rest[pid] != '-' || !rest[pid + 1] ||
	    rest[pid + 1 + strspn(rest + pid + 1, "0123456789")])
		return false;
	return !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) &&
	       S_ISREG(st.st_mode);
}

static void sweep(int at)
{
	ck_auto_dir DIR *dir = NULL;
	const struct dirent *d;

	ck_beneath_list(at, "", &dir);
	while (dir && (d = readdir(dir)))
		if (is_temp(at, d->d_name))
			unlinkat(at, d->d_name, 0);
}

/* *fd: the locked file; -1: none can be had; -EAGAIN: it went meanwhile. */
static int try_dir(const struct ck_root *root, int *out, struct ck_err *err)
{
	ck_auto_fd int fd = openat(
		root->fd, CK_WRITER_LOCK_NAME,
		O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
	struct stat st;
	int ret;

	*out = -1;
	if (fd < 0 && (errno == EACCES || errno == EPERM || errno == EROFS))
		return only_look(root, err);
	if (fd < 0 || fstat(fd, &st))
		return ck_fail(err, errno, "%s/%s: %s", root->path,
			       CK_WRITER_LOCK_NAME, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_nlink > 1)
		return ck_fail(err, EINVAL, "%s/%s: not ours", root->path,
			       CK_WRITER_LOCK_NAME);
	ret = ck_fds_lock(fd, 0, F_WRLCK);
	if (ret == -EBUSY)
		return busy_dir(root, fd, err);
	if (!is_named(root->fd, &st))
		return -EAGAIN;
	if (ret) {
		unlinkat(root->fd, CK_WRITER_LOCK_NAME, 0);
		return 0;
	}
	sign(fd);
	sweep(root->fd);
	*out = ck_steal_fd(fd);
	return 0;
}

static int take_dir(const struct ck_root *root, int *fd, struct ck_err *err)
{
	int ret = -EAGAIN;

	for (int i = 0; ret == -EAGAIN && i < TRIES; i++)
		ret = try_dir(root, fd, err);
	return ret == -EAGAIN ? busy(root->path, NULL, 0, err) : ret;
}

int ck_writer_lock_take(struct ck_writer_lock **out, const struct ck_root *root,
			struct ck_err *err)
{
	struct ck_writer_lock *h;
	unsigned nr = 0;
	int ret = 0;

	for (const struct ck_root *r = root; r; r = r->next)
		nr++;
	h = calloc(1, sizeof(*h) + nr * sizeof(h->v[0]));
	if (!h)
		return ck_no_memory(err);
	for (; !ret && root; root = root->next) {
		int fd = -1;

		if (!root->only)
			ret = take_dir(root, &fd, err);
		h->v[h->nr].dir = root->fd;
		h->v[h->nr++].fd = fd;
	}
	if (ret) {
		ck_writer_lock_drop(h);
		return ret;
	}
	*out = h;
	return 0;
}

void ck_writer_lock_drop(struct ck_writer_lock *h)
{
	for (unsigned i = 0; h && i < h->nr; i++) {
		struct stat st;

		if (h->v[i].fd < 0)
			continue;
		if (!fstat(h->v[i].fd, &st) && is_named(h->v[i].dir, &st))
			unlinkat(h->v[i].dir, CK_WRITER_LOCK_NAME, 0);
		close(h->v[i].fd);
	}
	free(h);
}

static bool is_left(const struct ck_root *root)
{
	struct stat st;

	for (; root; root = root->next)
		if (!root->only && !fstatat(root->fd, CK_WRITER_LOCK_NAME, &st,
					    AT_SYMLINK_NOFOLLOW))
			return true;
	return false;
}

bool ck_writer_lock_sweep(const struct ck_root *root)
{
	struct ck_writer_lock *h;
	struct ck_err err;

	if (!is_left(root) || ck_writer_lock_take(&h, root, &err))
		return false;
	ck_writer_lock_drop(h);
	return true;
}

int ck_writer_lock_look(const struct ck_root *root, struct ck_err *err)
{
	int ret = 0;

	for (; !ret && root; root = root->next)
		if (!root->only)
			ret = only_look(root, err);
	return ret;
}

/* ---- a file ---- */

int ck_writer_lock_file(int fd, const char *name, struct ck_err *err)
{
	char line[MAX_LINE];
	int ret = ck_fds_lock(fd, FAR, F_WRLCK);

	if (ret == -EBUSY)
		return busy(name, line, fgetxattr(fd, ATTR, line, sizeof(line)),
			    err);
	who_am_i(line);
	if (!ret)
		fsetxattr(fd, ATTR, line, strlen(line), 0);
	return 0;
}

void ck_writer_lock_file_end(int fd)
{
	fremovexattr(fd, ATTR);
}

int ck_writer_lock_file_look(int fd, const char *name, struct ck_err *err)
{
	char line[MAX_LINE];

	if (!ck_fds_is_locked(fd, FAR))
		return 0;
	return busy(name, line, fgetxattr(fd, ATTR, line, sizeof(line)), err);
}
