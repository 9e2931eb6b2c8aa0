/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meanwhile.c - what another does to a name between two calls of a mount
 *
 * To be preloaded.  The name says what, in the folder where it is:
 *
 *	made-*	is made by root, 0600, before the call that would make it
 *	his-*	the same, of user 65534, 0644
 *	swap-*	once, and whichever is there, changes places with victim-* before
 *		it is opened to be changed, or has its times set, and after it
 *		was made
 *
 * Calls that an io_uring makes are not seen (-o engine=plain makes none).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What is preloaded is found by its name, whatever is hidden else. */
#pragma GCC visibility push(default)
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define NOBODY 65534
#define EXCHANGE 2
#define CALL(...) syscall(__VA_ARGS__)

static bool begins(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

static void make(int dir, const char *name)
{
	bool his = begins(name, "his-");
	const char text[] = "what was there before\n";
	int fd;

	if (!his && !begins(name, "made-"))
		return;
	fd = (int)CALL(SYS_openat, dir, name, O_WRONLY | O_CREAT | O_EXCL,
		       his ? 0644 : 0600);
	if (fd < 0)
		return;
	if (write(fd, text, sizeof(text) - 1) < 0 ||
	    (his && fchown(fd, NOBODY, NOBODY)))
		perror(name);
	close(fd);
}

static void swap(int dir, const char *name)
{
	char other[256], done[256];
	struct stat st;

	if (!begins(name, "swap-"))
		return;
	snprintf(other, sizeof(other), "victim-%s", name + strlen("swap-"));
	snprintf(done, sizeof(done), "done-%s", name + strlen("swap-"));
	if (!fstatat(dir, other, &st, AT_SYMLINK_NOFOLLOW) &&
	    !CALL(SYS_mkdirat, dir, done, 0700))
		CALL(SYS_renameat2, dir, name, dir, other, EXCHANGE);
}

int openat(int dir, const char *name, int flags, ...)
{
	bool makes = flags & O_CREAT && flags & O_EXCL;
	mode_t mode = 0;
	va_list args;
	int fd, saved;

	va_start(args, flags);
	if (flags & O_CREAT)
		mode = (mode_t)va_arg(args, unsigned);
	va_end(args);
	if (makes)
		make(dir, name);
	else if (flags & O_PATH || (flags & O_ACCMODE) == O_WRONLY)
		swap(dir, name);
	fd = (int)CALL(SYS_openat, dir, name, flags, mode);
	saved = errno;
	if (makes && fd >= 0)
		swap(dir, name);
	errno = saved;
	return fd;
}

int __openat_2(int dir, const char *name, int flags)
{
	return openat(dir, name, flags);
}

int utimensat(int dir, const char *name, const struct timespec t[2], int flags)
{
	swap(dir, name);
	return (int)CALL(SYS_utimensat, dir, name, t, flags);
}

int mkdirat(int dir, const char *name, mode_t mode)
{
	int ret = (int)CALL(SYS_mkdirat, dir, name, mode);
	int saved = errno;

	if (!ret)
		swap(dir, name);
	errno = saved;
	return ret;
}
