/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_procs.c - reads /proc/PID/status, and waits for pidfds
 */
#include "fs/mount_procs.h"

#include "core/base/auto.h"
#include "core/base/clock.h"
#include "core/base/number.h"
#include "core/sandbox/child.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ASK_SECONDS 5
#define BEGIN_MS 10000 /* to end the last requests, be the machine busy */
#define LOOK_MS 20

struct question {
	const char *path;
	pid_t *pid; /* shared with the child */
};

static int ask(void *ctx, struct ck_err *err)
{
	const struct question *q = ctx;
	char text[32];
	ssize_t n = getxattr(q->path, FS_PID_XATTR, text, sizeof(text) - 1);
	uint64_t pid;

	if (n < 0)
		return ck_fail(err, errno, "%s: %s", q->path, strerror(errno));
	text[n] = '\0';
	ck_digits(text, SIZE_MAX, &pid);
	*q->pid = (pid_t)pid;
	return 0;
}

/* A worker that hangs would hang who asks: another process does. */
static pid_t worker_of(const char *path, bool *hangs)
{
	pid_t *pid = mmap(NULL, sizeof(*pid), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct question q = { path, pid };
	const struct ck_child c = {
		.what = "the mount",
		.hint = "",
		.run = ask,
		.ctx = &q,
		.seconds = ASK_SECONDS,
	};
	struct ck_err err;
	pid_t found;
	int ret;

	if (pid == MAP_FAILED)
		return 0;
	ret = ck_child_call(&c, &err);
	*hangs = ret == -ETIMEDOUT;
	found = ret ? 0 : *pid;
	munmap(pid, sizeof(*pid));
	return found > 0 ? found : 0;
}

/* The line of /proc/PID/status that begins with @key, behind that; "": none. */
static void status_of(pid_t pid, const char *key, char line[256])
{
	size_t len = strlen(key);
	ck_auto_file FILE *f = NULL;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, 256, f))
		if (!strncmp(line, key, len)) {
			memmove(line, line + len, strlen(line + len) + 1);
			return;
		}
	line[0] = '\0';
}

static bool has_name(pid_t pid, const char *name)
{
	char line[256];

	status_of(pid, "Name:\t", line);
	line[strcspn(line, "\n")] = '\0';
	return !strcmp(line, name);
}

static pid_t parent_of(pid_t pid)
{
	char line[256];

	status_of(pid, "PPid:", line);
	return (pid_t)strtol(line, NULL, 10);
}

/* By a signal, or a debugger. */
static bool is_stopped(pid_t pid)
{
	char line[256];

	status_of(pid, "State:", line);
	line[strcspn(line, "(")] = '\0';
	return strpbrk(line, "Tt");
}

/* The number is of another namespace, or another's by now: by its name. */
static int hold(pid_t pid, const char *name)
{
	int fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

	if (fd >= 0 && !has_name(pid, name)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

void fs_mount_procs_look(struct fs_mount_procs *e, const char *path)
{
	*e = (struct fs_mount_procs){ .super = -1 };
	e->pid = worker_of(path, &e->hangs);
	e->worker = hold(e->pid, FS_WORKER_NAME);
	if (e->worker >= 0)
		e->super_pid = parent_of(e->pid);
	e->super = hold(e->super_pid, FS_SUPER_NAME);
}

/* Negative descriptors are of nobody. */
static bool ended(int fd, int64_t ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return fd < 0 || poll(&p, 1, ms < 0 ? 0 : (int)ms) > 0;
}

int fs_mount_procs_wait(struct fs_mount_procs *e, const char *path,
			unsigned seconds, struct ck_err *err)
{
	int64_t start = ck_now_ms(), end = start + (int64_t)seconds * 1000;
	bool stopped = false;

	while (!ended(e->worker, LOOK_MS) && !stopped && ck_now_ms() < end) {
		stopped = is_stopped(e->pid);
		if (!has_name(e->pid, FS_FLUSH_NAME) &&
		    ck_now_ms() > start + BEGIN_MS)
			return 0;
	}
	if (ended(e->worker, 0))
		while (ck_now_ms() < end)
			if (ended(e->super, LOOK_MS) ||
			    is_stopped(e->super_pid))
				return 0;
	return ck_fail(err, ETIMEDOUT,
		       "%s: it is unmounted; its worker (process %d) %s", path,
		       (int)e->pid,
		       stopped ? "was stopped before it had ended" :
				 "is still writing");
}

void fs_mount_procs_free(struct fs_mount_procs *e)
{
	if (e->worker >= 0)
		close(e->worker);
	if (e->super >= 0)
		close(e->super);
	e->worker = e->super = -1;
}
