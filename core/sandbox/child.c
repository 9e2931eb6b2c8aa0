/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.c - one call in a process of its own
 *
 * Between fork() and _exit() the child has one thread and the locks as they
 * were; glibc makes its own (malloc) usable, and nothing else is needed.  The
 * answer is one struct ck_child_answer through a pipe; the end of the pipe without one
 * is a death.
 */
#include "core/sandbox/child.h"

#include "core/base/auto.h"
#include "core/sandbox/exchange.h"
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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEEP_MAX 64
#define ERRNO_END 4096

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
	signal(SIGXFSZ, SIG_IGN); /* a line instead */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* SIGXCPU, which tells a limit from a crash, comes a second before the end. */
static struct rlimit cpu_limit(unsigned seconds)
{
	struct rlimit was, r = { seconds, seconds + 1 };

	if (!getrlimit(RLIMIT_CPU, &was) && was.rlim_max < r.rlim_max) {
		r.rlim_max = was.rlim_max;
		r.rlim_cur = was.rlim_max > 1 ? was.rlim_max - 1 : 1;
	}
	return r;
}

int ck_child_limit_cpu(unsigned seconds, struct ck_err *err)
{
	const struct rlimit r = cpu_limit(seconds);

	return setrlimit(RLIMIT_CPU, &r) ?
		       ck_fail(err, errno, "limit of processor time: %s",
			       strerror(errno)) :
		       0;
}

void ck_child_answer(struct ck_child_answer *out, int ret,
		     const struct ck_err *err)
{
	memset(out, 0, sizeof(*out));
	if (!ret)
		return;
	out->code = err->code;
	memcpy(out->msg, err->msg, sizeof(out->msg));
}

static void child(const struct ck_child *c, int to, pid_t parent)
{
	int keep[KEEP_MAX + 4] = { 0, 1, 2, to };
	struct ck_child_answer answer;
	struct ck_err err = { 0 };
	ssize_t n;
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	default_signals();
	for (unsigned i = 0; i < c->nr_keep; i++)
		keep[4 + i] = c->keep[i];
	ck_fds_close_others(keep, c->nr_keep + 4);
	ret = c->cpu ? ck_child_limit_cpu(c->cpu, &err) : 0;
	if (!ret)
		ret = c->run(c->ctx, &err);
	ck_child_answer(&answer, ret, &err);
	n = write(to, &answer, sizeof(answer));
	_exit(n != (ssize_t)sizeof(answer));
}

#define ENDS_WITHIN 1000 /* ms, who has closed its end */
#define DIES_WITHIN 5000 /* ms, who was killed */
#define BY_PIDFD ((idtype_t)3)

/* As waitpid() says it; 0: the program waits for all its children. */
static int reap(const struct ck_child_id *id)
{
	siginfo_t how;
	int status;

	while (id->fd >= 0) {
		if (!waitid(BY_PIDFD, (id_t)id->fd, &how, WEXITED))
			return how.si_code == CLD_EXITED ? how.si_status << 8 :
							   how.si_status;
		if (errno != EINTR)
			return 0;
	}
	while (waitpid(id->pid, &status, 0) < 0)
		if (errno != EINTR)
			return 0;
	return status;
}

struct ck_child_id ck_child_id(pid_t pid)
{
	return (struct ck_child_id){
		.pid = pid,
		.fd = (int)syscall(SYS_pidfd_open, pid, 0),
	};
}

void ck_child_kill(const struct ck_child_id *id)
{
	if (id->fd >= 0)
		syscall(SYS_pidfd_send_signal, id->fd, SIGKILL, NULL, 0);
	else
		kill(id->pid, SIGKILL);
}

/* Whether it ends within @ms. */
static bool ends(const struct ck_child_id *id, int ms)
{
	struct pollfd p = { .fd = id->fd, .events = POLLIN };

	return id->fd >= 0 && poll(&p, 1, ms) > 0;
}

int ck_child_end(struct ck_child_id *id, bool kill_it)
{
	int status;

	if (kill_it)
		ck_child_kill(id);
	/* One that the kernel does not let go, as it waits for a disk, is left. */
	if (kill_it && id->fd >= 0 && !ends(id, DIES_WITHIN))
		status = SIGKILL;
	else
		status = reap(id);
	if (id->fd >= 0)
		close(id->fd);
	id->fd = -1;
	return status;
}

static int died(const struct ck_child *c, int status, struct ck_err *err)
{
	int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	struct rlimit r;

	r = cpu_limit(c->cpu);
	if (c->cpu && r.rlim_cur < c->cpu &&
	    (sig == SIGXCPU || (sig == SIGKILL && r.rlim_max == 1)))
		return ck_fail(err, ETIMEDOUT,
			       "%s needed more than the %u s of processor "
			       "time that the caller's limit leaves it "
			       "(ulimit -t)",
			       c->what, (unsigned)r.rlim_cur);
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

int ck_child_await(const struct ck_child *c, struct ck_child_id *id, int from,
		   bool stays, struct ck_err *err)
{
	struct ck_patience wait = ck_patience(c->seconds);
	struct ck_child_answer answer = { 0 };
	int ret, status;

	wait.stopped = c->stopped;
	wait.ctx = c->stop_ctx;
	ret = ck_exchange_get(from, &answer, sizeof(answer), &wait);
	if (stays && !ret && !answer.code)
		return 0;
	/* Who has answered has nothing left to do, but may not know that. */
	status = ck_child_end(id, ret == -ETIMEDOUT || ret == -EINTR || !ret ||
					  !ends(id, ENDS_WITHIN));
	if (ret == -EINTR)
		return ck_fail(err, ECANCELED, "%s was stopped: cancelled",
			       c->what);
	if (ret == -ETIMEDOUT)
		return ck_fail(err, ETIMEDOUT, "%s took more than %u s %s",
			       c->what, c->seconds, c->hint);
	if (ret)
		return died(c, status, err);
	answer.msg[sizeof(answer.msg) - 1] = '\0';
	if (answer.code < 0 || answer.code >= ERRNO_END)
		answer.code = EPROTO;
	if (answer.code && !answer.msg[0])
		return ck_fail(err, answer.code, "%s gave no reason", c->what);
	if (answer.code)
		return ck_fail(err, answer.code, "%s", answer.msg);
	return 0;
}

int ck_child_call(const struct ck_child *c, struct ck_err *err)
{
	ck_auto_fd int from = -1;
	struct ck_child_id id;
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
	id = ck_child_id(pid);
	if (c->meanwhile)
		c->meanwhile(c->ctx);
	return ck_child_await(c, &id, from, false, err);
}
