/* SPDX-License-Identifier: Apache-2.0 */
/* askers.c - the side of who may start askers: one order at a time */
#include "fs/ask/ask_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/fds.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define END_MS 1000 /* who is stuck in the kernel is left to itself then */

int fs_askers_open(struct fs_askers *s, int *worker, const char *names,
		   bool sandbox, struct ck_err *err)
{
	int ends[2];

	*s = (struct fs_askers){ .fd = -1, .sandbox = sandbox };
	s->names = names ? strdup(names) : NULL;
	if (names && !s->names)
		return ck_no_memory(err);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return ck_fail(err, errno, "allow-other: socketpair: %s",
			       strerror(errno));
	s->fd = ends[0];
	*worker = ends[1];
	return 0;
}

static void end_one(const struct fs_askers *s, pid_t pid)
{
	for (unsigned i = 0; i < s->nr; i++)
		if (s->pids[i] == pid)
			kill(pid, SIGKILL);
}

/* The worker does not wait for long, and neither does this process. */
static void answer(const struct fs_askers *s, int32_t pid, int fd)
{
	struct fs_ask_started said = { pid };

	ck_fds_send(s->fd, &said, sizeof(said), &fd, fd >= 0, MSG_DONTWAIT);
}

static void start_one(struct fs_askers *s)
{
	ck_auto_fd int fd = -1;
	pid_t pid = -EAGAIN;

	if (s->nr < FS_ASKERS_MAX)
		pid = fs_ask_fork(s, &fd);
	if (pid > 0)
		s->pids[s->nr++] = pid;
	answer(s, pid, fd);
}

bool fs_askers_serve(struct fs_askers *s)
{
	struct fs_ask_order order;
	ssize_t n = recv(s->fd, &order, sizeof(order), MSG_DONTWAIT);

	if (n < 0)
		return errno == EINTR || errno == EAGAIN;
	if (n != sizeof(order))
		return false;
	if (order.end > 0)
		end_one(s, order.end);
	if (order.start)
		start_one(s);
	return true;
}

bool fs_askers_reap(struct fs_askers *s, pid_t *pid, int *status)
{
	for (unsigned i = 0; i < s->nr; i++) {
		*pid = s->pids[i];
		if (waitpid(*pid, status, WNOHANG) != *pid)
			continue;
		s->pids[i] = s->pids[--s->nr];
		return true;
	}
	return false;
}

void fs_askers_end(struct fs_askers *s)
{
	int64_t until = ck_now_ms() + END_MS;

	for (unsigned i = 0; i < s->nr; i++)
		kill(s->pids[i], SIGKILL);
	for (unsigned i = 0; i < s->nr; i++) {
		ck_auto_fd int fd = (int)syscall(SYS_pidfd_open, s->pids[i], 0);
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int64_t left = CK_MAX(until - ck_now_ms(), 0);

		if (fd < 0 || poll(&p, 1, (int)left) > 0)
			waitpid(s->pids[i], NULL, fd < 0 ? 0 : WNOHANG);
	}
	s->nr = 0;
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	free(s->names);
	s->names = NULL;
}
