/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supervisor.c - one thread, one loop: signals, the worker's answer, its log
 *
 * Signals are blocked and come through a descriptor, so nothing here runs
 * inside a handler.
 */
#include "mount-helpers/mount/supervisor_priv.h"

#include "core/base/auto.h"
#include "core/base/clock.h"
#include "core/base/fds.h"
#include "core/catalog/catalog.h"
#include "core/sandbox/child.h"
#include "fs/ask/ask.h"
#include "fs/kernel/passthrough.h"
#include "fs/mount_procs.h"
#include "fs/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#define START_SECONDS 60 /* a worker that does not answer by then is stuck */
#define END_SECONDS 3 /* open files may be read on so long after a signal */

struct sup {
	const struct supervise_in *in;
	struct fs_session *session;
	struct suplog log;
	int result_fd; /* the caller's, -1 when it has its answer */
	int lock_fd; /* in the foreground: see supervisor.h */
	int answer_fd, worker_log_fd, signal_fd;
	pid_t worker;
	struct fs_askers askers; /* for other users */
	int askers_fd; /* the worker's end; -1 */
	int spool_fd; /* says that the folder is used, as the worker's does */
	bool started, answers, ending;
	int64_t deadline; /* when the worker is killed; 0: never */
	struct ck_err err; /* why it ended, code 0: it was unmounted */
	char spool[4096];
	int cache_fd; /* the same of -o cache=DIR; or in memory */
	char cache[4096];
	int passthrough; /* where the worker sends what is kept; -1 */
	int passthrough_fd; /* the worker's end; -1 */
};

/* ---- starting ---- */

/*
 * UNSHARD_START_FAULT="NTH": tests kill this process at the NTH of these places.
 */
static void step(void)
{
	static int passed;
	const char *at = getenv("UNSHARD_START_FAULT");

	if (at && atoi(at) == ++passed)
		raise(SIGKILL);
}

static int catch_signals(struct sup *s, struct ck_err *err)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	/* Ignored signals would not come; nohup's SIGHUP may stay so. */
	signal(SIGCHLD, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_SETMASK, &set, NULL);
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signal_fd < 0)
		return ck_fail(err, errno, "signalfd: %s", strerror(errno));
	return 0;
}

/*
 * The worker may write below one folder only, and it should be one in which
 * there is nothing else.  Where none can be made, the first compressed item
 * that is read says so.
 */
static int make_spool(struct sup *s, struct ck_err *err)
{
	const char *dir = ck_opts_get(s->in->opts, "spool");
	int ret = spool_make(dir ? dir : "/var/tmp", s->spool, sizeof(s->spool),
			     &s->spool_fd);

	if (ret)
		return dir ? ck_fail(err, -ret, "-o spool=%s: %s", dir,
				     strerror(-ret)) :
			     0;
	if (ck_opts_add(s->in->opts, "spool", s->spool))
		return ck_no_memory(err);
	return 0;
}

/* One that cannot be used costs speed, and no more. */
static void make_cache(struct sup *s)
{
	const char *dir = ck_opts_get(s->in->opts, "cache");
	int ret;

	if (!dir)
		return;
	fs_passthrough_pair(&s->passthrough, &s->passthrough_fd, NULL);
	if (!strcmp(dir, "memory")) {
		s->cache_fd = spool_in_memory();
		return;
	}
	ret = spool_make(dir, s->cache, sizeof(s->cache), &s->cache_fd);
	if (ret)
		suplog_line(&s->log, "-o cache=%s: %s: nothing is kept", dir,
			    strerror(-ret));
}

/* This process may change its user, the worker may not. */
static int open_askers(struct sup *s, struct ck_err *err)
{
	/* what is written there is made as who asks */
	bool drafts = ck_opts_get(s->in->opts, "rw") && !s->in->img->base;
	const char *how = ck_opts_get(s->in->opts, "sandbox");

	if (!ck_opts_get(s->in->opts, "allow-other"))
		return 0;
	return fs_askers_open(&s->askers, &s->askers_fd,
			      drafts ? s->in->root->real : NULL,
			      !how || strcmp(how, "off"), err);
}

/* Its own pipes for the answer and the log; it is a copy of this process. */
static int start_worker(struct sup *s, struct ck_err *err)
{
	int answer[2], log[2];
	struct worker_in w = {
		.in = s->in,
		.session = s->session,
		.spool = s->spool[0] ? s->spool : NULL,
		.askers_fd = s->askers_fd,
		.spool_fd = s->spool_fd,
		.cache_fd = s->cache_fd,
		.passthrough_fd = s->passthrough_fd,
	};

	if (pipe2(answer, O_CLOEXEC))
		return ck_fail(err, errno, "pipe: %s", strerror(errno));
	s->answer_fd = answer[0];
	w.answer_fd = answer[1];
	if (pipe2(log, O_CLOEXEC)) {
		close(answer[1]);
		return ck_fail(err, errno, "pipe: %s", strerror(errno));
	}
	s->worker_log_fd = log[0];
	w.log_fd = log[1];
	/* The worker must never wait for this process. */
	fcntl(log[1], F_SETFL, O_NONBLOCK);
	s->worker = fork();
	if (!s->worker)
		worker_run(&w);
	close(answer[1]);
	close(log[1]);
	if (s->worker < 0)
		return ck_fail(err, EAGAIN, "fork: %s", strerror(errno));
	return 0;
}

/* From here on only the worker needs these. */
static void let_go(struct sup *s)
{
	fs_session_detach(s->session);
	if (s->askers_fd >= 0)
		close(s->askers_fd);
	if (s->passthrough_fd >= 0)
		close(s->passthrough_fd);
	ck_catalog_unmap(s->in->img);
	ck_root_close(s->in->root);
}

/*
 * Not the caller's group and terminal any more, nor will be those of what is
 * started from here on.  Not sooner: where the mount is made on demand, autofs
 * holds whoever looks at its place until the mount is there, but for the group
 * that makes it.
 */
static void own_group(const struct sup *s)
{
	if (s->result_fd >= 0)
		setsid();
}

static int start(struct sup *s, struct ck_err *err)
{
	int ret = catch_signals(s, err);

	step();
	if (!ret)
		ret = make_spool(s, err);
	if (!ret)
		make_cache(s);
	step();
	if (!ret)
		ret = fs_session_open(&s->session, s->in->src, s->in->mnt,
				      s->in->opts, err);
	step();
	if (!ret)
		own_group(s);
	step();
	if (!ret)
		ret = open_askers(s, err);
	step();
	if (!ret)
		ret = start_worker(s, err);
	step();
	if (ret)
		return ret;
	let_go(s);
	step();
	s->deadline = ck_now_s() + START_SECONDS;
	return 0;
}

/* ---- waiting ---- */

/* Unmounts; the worker ends when no file of the mount is open any more. */
static void end_mount(struct sup *s)
{
	if (s->session)
		fs_session_close(s->session);
	s->session = NULL;
}

static void begin_end(struct sup *s)
{
	s->ending = true;
	s->deadline = ck_now_s() + END_SECONDS;
	notify_line("STOPPING=1\nSTATUS=unmounting");
	end_mount(s);
}

static void asked_to_end(struct sup *s, int sig)
{
	if (s->ending)
		return;
	suplog_line(&s->log, "signal %d: unmounting", sig);
	begin_end(s);
}

/* The worker asks for another when it needs one. */
static void note_asker(struct sup *s, int status)
{
	if (WIFSIGNALED(status) && !s->ending)
		suplog_line(&s->log,
			    "a process that asks for other users ended by "
			    "signal %d",
			    WTERMSIG(status));
}

static void tell_caller(struct sup *s, const struct ck_err *err)
{
	bool heard;

	if (s->result_fd < 0)
		return;
	heard = write(s->result_fd, err, sizeof(*err)) > 0;
	close(s->result_fd);
	s->result_fd = -1;
	/* Who interrupts `unshard mount` wants no mount. */
	if (!heard)
		asked_to_end(s, SIGPIPE);
}

static void take_answer(struct sup *s)
{
	struct ck_err err;
	ssize_t n = read(s->answer_fd, &err, sizeof(err));

	if (n < 0 && errno == EINTR)
		return;
	if (n == (ssize_t)sizeof(err) && !err.code) {
		s->answers = true;
		if (!s->ending)
			s->deadline = 0;
		if (s->lock_fd >= 0)
			close(s->lock_fd);
		s->lock_fd = -1;
		step();
		notify_line("READY=1\nSTATUS=serving %s at %s", s->in->src,
			    s->in->mnt);
		tell_caller(s, &err);
		return;
	}
	if (n == (ssize_t)sizeof(err))
		s->err = err;
	close(s->answer_fd);
	s->answer_fd = -1;
}

static void worker_ended(struct sup *s, int status)
{
	s->worker = 0;
	if (s->err.code)
		return;
	if (WIFSIGNALED(status) && !s->ending)
		ck_fail(&s->err, EIO, "the worker died (signal %d, %s)",
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (WIFEXITED(status) && WEXITSTATUS(status) && !s->ending)
		ck_fail(&s->err, EIO, "the worker failed (exit %d)",
			WEXITSTATUS(status));
}

static void take_signals(struct sup *s)
{
	struct signalfd_siginfo si;
	int status;
	pid_t pid;

	while (read(s->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		if (si.ssi_signo != SIGCHLD)
			asked_to_end(s, (int)si.ssi_signo);
		else if (s->worker &&
			 waitpid(s->worker, &status, WNOHANG) == s->worker)
			worker_ended(s, status);
		while (fs_askers_reap(&s->askers, &pid, &status))
			note_asker(s, status);
	}
}

static void check_deadline(struct sup *s)
{
	if (!s->deadline || ck_now_s() < s->deadline)
		return;
	if (!s->ending)
		ck_fail(&s->err, ETIMEDOUT,
			"the mount did not answer within "
			"%d s",
			START_SECONDS);
	else
		suplog_line(&s->log, "files are still open: ending them");
	s->deadline = 0;
	kill(s->worker, SIGKILL);
}

static void wait_for_end(struct sup *s)
{
	while (s->worker) {
		struct pollfd p[] = {
			{ .fd = s->signal_fd, .events = POLLIN },
			{ .fd = s->answer_fd, .events = POLLIN },
			{ .fd = s->worker_log_fd, .events = POLLIN },
			{ .fd = s->askers.fd, .events = POLLIN },
			{ .fd = s->passthrough, .events = POLLIN },
		};

		poll(p, 5, s->deadline ? 200 : -1);
		if (p[1].revents)
			take_answer(s);
		if (p[2].revents && !suplog_take(&s->log, s->worker_log_fd)) {
			close(s->worker_log_fd);
			s->worker_log_fd = -1;
		}
		if (p[3].revents && !fs_askers_serve(&s->askers)) {
			close(s->askers.fd);
			s->askers.fd = -1;
		}
		if (p[4].revents && !fs_passthrough_serve(s->passthrough)) {
			close(s->passthrough);
			s->passthrough = -1;
		}
		take_signals(s);
		check_deadline(s);
	}
	while (s->worker_log_fd >= 0 && suplog_take(&s->log, s->worker_log_fd))
		;
	if (s->answer_fd >= 0 && !s->answers)
		take_answer(s);
}

/* ---- the whole of it ---- */

static int is_dead(void *ctx, struct ck_err *err)
{
	const struct sup *s = ctx;
	struct statx st;

	/* Not what the kernel remembers. */
	if (statx(AT_FDCWD, s->in->mnt, AT_STATX_FORCE_SYNC, STATX_INO, &st) &&
	    (errno == ENOTCONN || errno == ECONNABORTED))
		return 0;
	return ck_fail(err, EEXIST, "not dead");
}

/*
 * The worker ended.  If by an unmount, a new mount may be there already, with
 * the numbers of ours; so only a mount that answers "dead" is taken away.  One
 * that is not there is not asked: for that moment the place would be busy.
 */
static void tidy_mount(struct sup *s)
{
	const struct ck_child c = {
		.what = "a stat",
		.hint = "",
		.run = is_dead,
		.ctx = s,
		.seconds = 5,
	};
	struct fs_mount_info info;
	struct ck_err err;

	if (s->session && s->started &&
	    (fs_mounts_find(s->in->mnt, &info) || ck_child_call(&c, &err)))
		fs_session_gone(s->session);
	end_mount(s);
}

static int supervise(struct sup *s)
{
	int ret;

	s->answer_fd = s->worker_log_fd = s->signal_fd = s->askers_fd = -1;
	s->spool_fd = s->cache_fd = s->askers.fd = -1;
	s->passthrough = s->passthrough_fd = -1;
	prctl(PR_SET_NAME, FS_SUPER_NAME);
	ret = start(s, &s->err);
	s->started = !ret;
	if (!ret)
		wait_for_end(s);
	tidy_mount(s);
	fs_askers_end(&s->askers);
	if (s->err.code && s->answers)
		suplog_line(&s->log, "%s", s->err.msg);
	if (!s->err.code && !s->answers)
		ck_fail(&s->err, EINTR, "ended before the mount answered");
	notify_line("STOPPING=1\nSTATUS=%s\nERRNO=%d",
		    s->err.code ? s->err.msg : "unmounted", s->err.code);
	tell_caller(s, &s->err);
	if (s->spool[0])
		rmdir(s->spool);
	if (s->cache[0])
		rmdir(s->cache);
	return -s->err.code;
}

static bool log_is_json(const struct supervise_in *in)
{
	const char *form = ck_opts_get(in->opts, "log-format");

	return form && !strcmp(form, "json");
}

int supervise_foreground(const struct supervise_in *in, struct ck_err *err)
{
	struct sup s = {
		.in = in,
		.log = { .fd = in->log_fd >= 0 ? in->log_fd : 2,
			 .json = log_is_json(in),
			 .mnt = in->mnt },
		.result_fd = -1,
		.lock_fd = in->lock_fd,
	};
	int ret = supervise(&s);

	*err = s.err;
	return ret;
}

/* Nothing of the caller's: its terminal, folder, descriptors, who starts it. */
static void detach(const struct supervise_in *in, int *result_fd)
{
	const struct ck_root *root = in->root;
	int null = ck_fds_null();
	unsigned nr = ck_root_fds(root, NULL, 0), n = 0;
	ck_auto_free int *keep = malloc((8 + nr) * sizeof(*keep));

	signal(SIGHUP, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	unsetenv("NOTIFY_SOCKET");
	if (null < 0 || !keep || chdir("/"))
		_exit(EXIT_FAILURE);
	for (int fd = 0; fd < 3; fd++) {
		dup2(null, fd);
		keep[n++] = fd;
	}
	n += ck_root_fds(root, keep + n, nr);
	keep[n++] = in->log_fd;
	keep[n++] = *result_fd;
	ck_fds_close_others(keep, n);
}

static void in_background(const struct supervise_in *in, int result_fd)
{
	struct sup s = {
		.in = in,
		.log = { .fd = in->log_fd,
			 .json = log_is_json(in),
			 .mnt = in->mnt },
		.result_fd = result_fd,
		.lock_fd = -1, /* the caller has it */
	};

	detach(in, &s.result_fd);
	if (in->log_fd < 0)
		openlog("unshard", LOG_PID, LOG_DAEMON);
	end_process(supervise(&s) ? EXIT_FAILURE : EXIT_SUCCESS);
}

static int hear(int fd, struct ck_err *err)
{
	struct ck_err answer;
	size_t got = 0;

	while (got < sizeof(answer)) {
		ssize_t n =
			read(fd, (char *)&answer + got, sizeof(answer) - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return ck_fail(err, EIO,
				       "the supervisor died before "
				       "the mount answered");
		got += (size_t)n;
	}
	if (answer.code)
		*err = answer;
	return -answer.code;
}

/*
 * It was killed, and cannot take away what it had begun: its processes, which
 * are one group since it mounted and were left to us, and the mount, if it is one that was not
 * there before.
 */
static void clear_up(const struct supervise_in *in, pid_t pid, const char *was)
{
	struct fs_mount_info info;

	kill(-pid, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	if (!fs_mounts_find(in->mnt, &info) &&
	    !strcmp(info.type, FS_MOUNT_TYPE) && strcmp(info.dev, was))
		fs_mounts_end(in->mnt, true, NULL);
}

/* After a failure: until everything is tidied away. */
static void await_end(const struct supervise_in *in, pid_t pid, const char *was)
{
	siginfo_t si = { .si_code = CLD_EXITED };

	while (waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT) &&
	       errno == EINTR)
		;
	if (si.si_code == CLD_EXITED)
		waitpid(pid, NULL, 0);
	else
		clear_up(in, pid, was);
}

int supervise_background(const struct supervise_in *in, struct ck_err *err)
{
	struct fs_mount_info below = { .dev = "" };
	ck_auto_fd int from = -1;
	int ends[2];
	pid_t pid;
	int ret;

	if (fs_mounts_find(in->mnt, &below))
		below.dev[0] = '\0';
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	if (pipe2(ends, O_CLOEXEC))
		return ck_fail(err, errno, "pipe: %s", strerror(errno));
	from = ends[0];
	pid = fork();
	if (!pid)
		in_background(in, ends[1]);
	close(ends[1]);
	if (pid < 0)
		return ck_fail(err, EAGAIN, "fork: %s", strerror(errno));
	ret = hear(from, err);
	if (ret)
		await_end(in, pid, below.dev);
	return ret;
}
