/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.c - one call in a process of its own
 *
 * Between fork() and _exit() the child has one thread and the locks as they
 * were; glibc makes its own (malloc) usable, and nothing else is needed.  The
 * answer is one struct ck_err through a pipe; the end of the pipe without one
 * is a death.
 */
#include "core/sandbox/child.h"

#include "core/base/auto.h"
#include "core/base/clock.h"
#include "core/base/fds.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define KEEP_MAX 64

/* Handlers of the program must not run here, but a sanitizer's may. */
static void default_signals(void)
{
	sigset_t none;

	for (int sig = 1; sig < NSIG; sig++) {
#ifdef __SANITIZE_ADDRESS__
		if (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE ||
		    sig == SIGILL || sig == SIGABRT)
			continue;
#endif
		signal(sig, SIG_DFL);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static int limit_cpu(const struct ck_child *c, struct ck_err *err)
{
	const struct rlimit r = { c->cpu, c->cpu + 1 };

	if (!c->cpu || !setrlimit(RLIMIT_CPU, &r))
		return 0;
	return ck_fail(err, errno, "%s: limit of processor time: %s", c->what,
		       strerror(errno));
}

static void child(const struct ck_child *c, int to, pid_t parent)
{
	int keep[KEEP_MAX + 4] = { 0, 1, 2, to };
	struct ck_err err = { 0 };
	ssize_t n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	default_signals();
	for (unsigned i = 0; i < c->nr_keep; i++)
		keep[4 + i] = c->keep[i];
	ck_fds_close_others(keep, c->nr_keep + 4);
	if (!limit_cpu(c, &err) && !c->run(c->ctx, &err))
		err.code = 0;
	n = write(to, &err, sizeof(err));
	_exit(n != (ssize_t)sizeof(err));
}

/* Bytes of the answer; -ETIMEDOUT where neither it nor an end came. */
static ssize_t receive(int from, struct ck_err *out, unsigned seconds)
{
	int64_t until = ck_now_ms() + (int64_t)seconds * 1000;
	size_t got = 0;

	while (got < sizeof(*out)) {
		struct pollfd p = { .fd = from, .events = POLLIN };
		int64_t left = until - ck_now_ms();
		ssize_t n;

		if (left <= 0)
			return -ETIMEDOUT;
		if (poll(&p, 1, (int)left) <= 0)
			continue;
		n = read(from, (char *)out + got, sizeof(*out) - got);
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

static int reap(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 0; /* the program waits for all its children */
	return status;
}

static int died(const struct ck_child *c, int status, struct ck_err *err)
{
	int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	if (sig == SIGXCPU)
		return ck_fail(err, ETIMEDOUT,
			       "%s needed more than %u s of "
			       "processor time %s",
			       c->what, c->cpu, c->hint);
	if (sig)
		return ck_fail(err, EINVAL, "%s died (signal %d, %s)", c->what,
			       sig, strsignal(sig));
	return ck_fail(err, EINVAL, "%s ended without an answer (exit %d)",
		       c->what, WEXITSTATUS(status));
}

static int await(const struct ck_child *c, pid_t pid, int from,
		 struct ck_err *err)
{
	struct ck_err answer = { 0 };
	ssize_t got = receive(from, &answer, c->seconds);
	int status;

	if (got == -ETIMEDOUT)
		kill(pid, SIGKILL);
	status = reap(pid);
	if (got == -ETIMEDOUT)
		return ck_fail(err, ETIMEDOUT, "%s took more than %u s %s",
			       c->what, c->seconds, c->hint);
	if (got != sizeof(answer))
		return died(c, status, err);
	answer.msg[sizeof(answer.msg) - 1] = '\0';
	if (answer.code)
		return ck_fail(err, answer.code, "%s", answer.msg);
	return 0;
}

int ck_child_call(const struct ck_child *c, struct ck_err *err)
{
	ck_auto_fd int from = -1;
	sigset_t all, was;
	pid_t pid, self = getpid();
	int ends[2];

	if (c->nr_keep > KEEP_MAX)
		return ck_fail(err, EINVAL, "too many descriptors (%u)",
			       c->nr_keep);
	if (pipe2(ends, O_CLOEXEC))
		return ck_fail(err, errno, "pipe: %s", strerror(errno));
	from = ends[0];
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	pid = fork();
	if (!pid)
		child(c, ends[1], self);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	close(ends[1]);
	if (pid < 0)
		return ck_fail(err, EAGAIN, "fork: %s", strerror(errno));
	return await(c, pid, from, err);
}
