/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openat_beneath.c - opening names that a checkpoint gives, inside one
 * directory
 *
 * The kernel keeps to the rules in one step (openat2, Linux 5.6).  Where it
 * lacks that call, or a container filters it, the parts are opened one after
 * the other, each checked before the next.
 */
#include "core/root/root_priv.h"

#include "core/base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

bool ck_root_no_openat2;
static _Atomic bool lacking; /* the kernel said so once */

static int open_strict(int dirfd, const char *rel, int flags)
{
	struct open_how how = {
		.flags = (unsigned)flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
			   RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
	};
	long fd;

	if (ck_root_no_openat2 || lacking)
		return -ENOSYS;
	do
		fd = syscall(SYS_openat2, dirfd, rel, &how, sizeof(how));
	while (fd < 0 && (errno == EINTR || errno == EAGAIN));
	if (fd < 0 && errno == ENOSYS)
		lacking = true;
	return fd < 0 ? -errno : (int)fd;
}

/* One part, which must be no link and on the filesystem of @dev. */
static int step(int dirfd, const char *part, dev_t dev)
{
	ck_auto_fd int fd =
		openat(dirfd, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if (S_ISLNK(st.st_mode))
		return -ELOOP;
	if (st.st_dev != dev)
		return -EXDEV;
	return ck_steal_fd(fd);
}

static int open_parts(int dirfd, const char *rel, int flags)
{
	ck_auto_fd int at = dup(dirfd);
	char part[NAME_MAX + 1];
	struct stat st;

	if (at < 0 || fstat(at, &st))
		return -errno;
	for (;;) {
		size_t n = strcspn(rel, "/");
		int fd;

		if (n > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(part, rel, n);
		part[n] = '\0';
		fd = step(at, part, st.st_dev);
		if (fd < 0)
			return fd;
		if (!rel[n]) {
			close(fd);
			break;
		}
		close(at);
		at = fd;
		rel += n + 1;
	}
	int fd = openat(at, part, flags | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int ck_beneath_open(int dirfd, const char *rel, int flags)
{
	int fd = open_strict(dirfd, rel, flags);

	/* Filters of containers answer EPERM to calls that they do not know. */
	if (fd == -ENOSYS || fd == -EPERM)
		return open_parts(dirfd, rel, flags);
	return fd;
}

static int open_dir(int dirfd, const char *rel, int flags)
{
	int fd;

	if (*rel)
		return ck_beneath_open(dirfd, rel, flags | O_DIRECTORY);
	fd = openat(dirfd, ".", flags | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int ck_beneath_dir(int dirfd, const char *rel)
{
	return open_dir(dirfd, rel, O_RDONLY);
}

int ck_beneath_list(int dirfd, const char *rel, DIR **out)
{
	ck_auto_fd int fd = ck_beneath_dir(dirfd, rel);

	*out = NULL;
	if (fd < 0)
		return fd;
	*out = fdopendir(fd);
	if (!*out)
		return -errno;
	fd = -1; /* the list's now */
	return 0;
}

int ck_beneath_at(int dirfd, const char *rel)
{
	return open_dir(dirfd, rel, O_PATH);
}

int ck_beneath_file(int dirfd, const char *rel, int flags)
{
	ck_auto_fd int fd =
		ck_beneath_open(dirfd, rel, flags | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st))
		return -errno;
	return S_ISREG(st.st_mode) ? ck_steal_fd(fd) : -EINVAL;
}

size_t ck_beneath_link(int dirfd, const char *rel, char target[PATH_MAX])
{
	char prefix[PATH_MAX];
	size_t n = 0;

	if (strlen(rel) >= sizeof(prefix))
		return 0;
	do {
		ssize_t got;

		n += strcspn(rel + n, "/");
		memcpy(prefix, rel, n);
		prefix[n] = '\0';
		got = readlinkat(dirfd, prefix, target, PATH_MAX);
		if (got > 0 && got < PATH_MAX) {
			target[got] = '\0';
			return n;
		}
	} while (rel[n++]);
	return 0;
}

bool ck_path_plain(const char *rel)
{
	for (;;) {
		size_t n = strcspn(rel, "/");

		if (n == 0 || (n == 1 && rel[0] == '.') ||
		    (n == 2 && rel[0] == '.' && rel[1] == '.'))
			return false;
		if (!rel[n])
			return true;
		rel += n + 1;
	}
}

bool ck_path_join(char out[PATH_MAX], const char *dir, const char *rel)
{
	size_t len = rel[0] == '/' ? 0 : strlen(dir);

	if (len >= PATH_MAX)
		return false;
	memcpy(out, dir, len);
	while (len && out[len - 1] == '/')
		len--;
	while (*rel) {
		size_t n = strcspn(rel, "/");

		if (n == 2 && !memcmp(rel, "..", 2)) {
			while (len && out[--len] != '/')
				;
		} else if (n && !(n == 1 && rel[0] == '.')) {
			if (len + n + 2 > PATH_MAX)
				return false;
			out[len] = '/';
			memcpy(out + len + 1, rel, n);
			len += n + 1;
		}
		rel += n + (rel[n] == '/');
	}
	out[len] = '\0';
	return true;
}

const char *ck_path_inside(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	while (n && dir[n - 1] == '/')
		n--;
	if (strncmp(path, dir, n))
		return NULL;
	if (!path[n])
		return ".";
	return path[n] == '/' ? path + n + 1 : NULL;
}
