/* SPDX-License-Identifier: Apache-2.0 */
/*
 * at_call.c - a call that changes storage fails, or is the last of its process
 *
 * To be preloaded.  CRASH_PAGE names a file of one struct page, which all
 * processes of a mount count in; CRASH_AT="NAME CLASS NTH ACTION": in processes
 * called NAME the NTH call of CLASS is preceded by SIGKILL ("kill"), or fails
 * with an errno; or it and all that follow do nothing and say 0 ("skip").  Classes:
 *
 *	change	all of them
 *	room	those that a full disk refuses
 *	sync	those that make something last
 *
 * Calls that an io_uring makes are not seen (-o engine=plain makes none).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* What is preloaded is found by its name, whatever is hidden else. */
#pragma GCC visibility push(default)
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { CHANGE = 0, ROOM = 1, SYNC = 2, CLASSES };
static const char *const classes[CLASSES] = { "change", "room", "sync" };

static struct page {
	atomic_long calls[CLASSES];
	atomic_long fired;
} * page;
static char wanted[32], own[32];
static long at;
static int class_of_it, action; /* 0: SIGKILL; -1: skipped */

static void __attribute__((constructor)) start(void)
{
	const char *text = getenv("CRASH_AT"), *path = getenv("CRASH_PAGE");
	char class[16], what[16];
	int fd;

	snprintf(own, sizeof(own), "%s", program_invocation_short_name);
	if (!text || !path ||
	    sscanf(text, "%31s %15s %ld %15s", wanted, class, &at, what) != 4)
		return;
	for (int i = 0; i < CLASSES; i++)
		if (!strcmp(classes[i], class))
			class_of_it = i;
	action = !strcmp(what, "skip") ? -1 :
		 strcmp(what, "kill")  ? atoi(what) :
					 0;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    0);
	if (page == MAP_FAILED)
		page = NULL;
	close(fd);
}

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* Whether the call is not to be made, but to return @gives, with errno set. */
static __thread int gives;
static bool fails(int class)
{
	bool now = false;
	long nth;

	if (!page || strcmp(own, wanted) != 0)
		return false;
	for (int c = 0; c < CLASSES; c++) {
		if (c != CHANGE && c != class)
			continue;
		nth = atomic_fetch_add(&page->calls[c], 1) + 1;
		if (c == class_of_it)
			now |= nth == at || (nth > at && action < 0);
	}
	if (!now)
		return false;
	atomic_fetch_add(&page->fired, 1);
	if (!action)
		raise(SIGKILL);
	gives = action < 0 ? 0 : -1;
	if (gives)
		errno = action;
	return true;
}

/* A file with a name: no pipe, and nothing that is memory alone. */
static bool stays(int fd)
{
	struct stat st;

	return page && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_nlink;
}

#define CALL(type_, name_, params_, args_, class_, counts_)                    \
	type_ name_ params_                                                    \
	{                                                                      \
		static type_(*real) params_;                                   \
                                                                               \
		if (!real)                                                     \
			*(void **)&real = next(#name_);                        \
		return (counts_) && fails(class_) ? (type_)gives : real args_; \
	}

CALL(ssize_t, write, (int fd, const void *buf, size_t n), (fd, buf, n), ROOM,
     stays(fd))
CALL(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), ROOM,
     stays(fd))
CALL(ssize_t, pwrite, (int fd, const void *buf, size_t n, off_t off),
     (fd, buf, n, off), ROOM, stays(fd))
CALL(ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t off),
     (fd, v, n, off), ROOM, stays(fd))
CALL(ssize_t, copy_file_range,
     (int in, off_t *in_off, int out, off_t *out_off, size_t n, unsigned flags),
     (in, in_off, out, out_off, n, flags), ROOM, stays(out))
CALL(int, fallocate, (int fd, int mode, off_t off, off_t len),
     (fd, mode, off, len), ROOM, stays(fd))
CALL(int, ftruncate, (int fd, off_t len), (fd, len), CHANGE, stays(fd))
CALL(int, fsync, (int fd), (fd), SYNC, true)
CALL(int, fdatasync, (int fd), (fd), SYNC, true)
CALL(int, syncfs, (int fd), (fd), SYNC, true)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), ROOM, true)
CALL(int, mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode),
     ROOM, true)
CALL(int, renameat, (int from, const char *a, int to, const char *b),
     (from, a, to, b), ROOM, true)
CALL(int, symlinkat, (const char *a, int to, const char *b), (a, to, b), ROOM,
     true)
CALL(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags),
     CHANGE, true)
CALL(int, fsetxattr,
     (int fd, const char *name, const void *v, size_t n, int flags),
     (fd, name, v, n, flags), ROOM, true)
CALL(int, fremovexattr, (int fd, const char *name), (fd, name), CHANGE, true)

int openat(int dir, const char *path, int flags, ...)
{
	static int (*real)(int, const char *, int, ...);
	mode_t mode = 0;
	va_list ap;

	if (!real)
		*(void **)&real = next("openat");
	va_start(ap, flags);
	if (flags & (O_CREAT | __O_TMPFILE))
		mode = va_arg(ap, mode_t);
	va_end(ap);
	return flags & O_CREAT && fails(ROOM) ? -1 :
						real(dir, path, flags, mode);
}

long syscall(long nr, ...)
{
	static long (*real)(long, ...);
	long a[6];
	va_list ap;

	if (!real)
		*(void **)&real = next("syscall");
	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (nr == SYS_renameat2 && fails(ROOM))
		return -1;
	return real(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* By which a process says what it is; threads have names of their own. */
int prctl(int what, ...)
{
	static int (*real)(int, ...);
	unsigned long a[4];
	va_list ap;

	if (!real)
		*(void **)&real = next("prctl");
	va_start(ap, what);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(ap, unsigned long);
	va_end(ap);
	if (what == PR_SET_NAME && gettid() == getpid())
		snprintf(own, sizeof(own), "%s", (const char *)a[0]);
	return real(what, a[0], a[1], a[2], a[3]);
}
