/* SPDX-License-Identifier: Apache-2.0 */
/* parser.c - starts the program that parses, and asks it */
#include "core/lib/parser.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/sandbox/exchange.h"
#include "core/catalog/catalog.h"
#include "core/lib/parser_job.h"
#include "core/load/load.h"
#include "core/sandbox/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "unshard-parser"
#define WHAT "the parser"
#define WATCH_STACK (64 << 10)
#define BY_PIDFD ((idtype_t)3)

/* ---- starting it ---- */

static int fill_actions(posix_spawn_file_actions_t *a, int end)
{
	int ret = posix_spawn_file_actions_adddup2(a, end, CK_PARSER_FD);

	for (int fd = 0; fd < 3 && !ret; fd++)
		ret = posix_spawn_file_actions_addopen(a, fd, "/dev/null",
						       O_RDWR, 0);
	if (!ret)
		ret = posix_spawn_file_actions_addclosefrom_np(a, CK_PARSER_FD +
									  1);
	return ret;
}

/* A session of its own: ^C at a terminal is not for it. */
static int fill_attr(posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int ret;

	sigemptyset(&none);
	sigfillset(&all);
	ret = posix_spawnattr_setsigmask(attr, &none);
	if (!ret)
		ret = posix_spawnattr_setsigdefault(attr, &all);
	return ret ? ret :
		     posix_spawnattr_setflags(attr,
					      POSIX_SPAWN_SETSIGMASK |
						      POSIX_SPAWN_SETSIGDEF |
						      POSIX_SPAWN_SETSID);
}

static int spawn(const char *program, int end, pid_t *pid)
{
	char *const argv[] = { (char *)NAME, NULL };
	char *const env[] = { (char *)"LC_ALL=C", NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int ret = posix_spawn_file_actions_init(&actions);

	if (ret)
		return ret;
	ret = posix_spawnattr_init(&attr);
	if (!ret) {
		ret = fill_actions(&actions, end);
		if (!ret)
			ret = fill_attr(&attr);
		if (!ret)
			ret = posix_spawn(pid, program, &actions, &attr, argv,
					  env);
		posix_spawnattr_destroy(&attr);
	}
	posix_spawn_file_actions_destroy(&actions);
	return ret;
}

/* ---- a process ---- */

struct ck_parser_proc {
	struct ck_child_id id; /* of who is not awaited any more: fd -1 */
	int sock;
	bool serves; /* items; else it has described */
	bool watched;
	pthread_t watcher;
};

/*
 * Who stays may end at any time, and be a zombie from then on, for all that this
 * process has of it is a descriptor.
 */
static void *watch(void *arg)
{
	const struct ck_parser_proc *proc = arg;
	siginfo_t how;

	while (waitid(BY_PIDFD, (id_t)proc->id.fd, &how, WEXITED) &&
	       errno == EINTR)
		;
	return NULL;
}

/* Without a thread to be had it is a zombie until it is asked, no more. */
static void start_watch(struct ck_parser_proc *proc)
{
	pthread_attr_t attr;
	sigset_t all, was;

	if (proc->id.fd < 0 || pthread_attr_init(&attr))
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	pthread_attr_setstacksize(&attr, WATCH_STACK);
	proc->watched = !pthread_create(&proc->watcher, &attr, watch, proc);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	pthread_attr_destroy(&attr);
}

void ck_parser_proc_free(struct ck_parser_proc *proc)
{
	if (!proc)
		return;
	close(proc->sock);
	if (proc->watched) {
		ck_child_kill(&proc->id);
		pthread_join(proc->watcher, NULL);
		close(proc->id.fd);
	} else {
		ck_child_end(&proc->id, true);
	}
	free(proc);
}

/* Starts it and says what to do; it is not watched yet. */
static int start(const char *program, const struct ck_parser_job *job,
		 struct ck_parser_proc **out, struct ck_err *err)
{
	ck_auto_free struct ck_parser_proc *proc = calloc(1, sizeof(*proc));
	ck_auto_fd int ours = -1, its = -1;
	pid_t pid;
	int ends[2], ret;

	if (!proc)
		return ck_no_memory(err);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return ck_fail(err, errno, "socketpair: %s", strerror(errno));
	ours = ends[0];
	its = ends[1];
	if (its == CK_PARSER_FD) /* which dup2() would leave to be closed */
		its = fcntl(ends[1], F_DUPFD_CLOEXEC, CK_PARSER_FD + 1);
	if (its != ends[1])
		close(ends[1]);
	if (its < 0)
		return ck_fail(err, errno, "dup: %s", strerror(errno));
	ret = ck_parser_job_send(ours, job, err);
	if (ret)
		return ret;
	ret = spawn(program, its, &pid);
	if (ret)
		return ck_fail(err, ret == ENOENT ? ENOEXEC : ret,
			       "%s, which parses checkpoints: %s", program,
			       strerror(ret));
	proc->id = ck_child_id(pid);
	proc->sock = ck_steal_fd(ours);
	*out = ck_steal(proc);
	return 0;
}

bool ck_parser_is_cancelled(int cancel_fd)
{
	struct pollfd p = { .fd = cancel_fd, .events = POLLIN };

	return cancel_fd > 0 && poll(&p, 1, 0) > 0;
}

static bool is_cancelled(void *ctx)
{
	return ck_parser_is_cancelled(*(const int *)ctx);
}

/* What it answers first; @proc is gone where that is an error. */
static int await(struct ck_parser_proc *proc,
		 const struct ck_parser_limits *limits, int *cancel_fd,
		 struct ck_err *err)
{
	const struct ck_child c = {
		.what = WHAT,
		.hint = "(-o parse-time=N allows more)",
		.cpu = limits->seconds,
		.seconds = limits->patience,
		.stopped = is_cancelled,
		.stop_ctx = cancel_fd,
	};
	int ret = ck_child_await(&c, &proc->id, proc->sock, true, err);

	if (!ret) {
		start_watch(proc);
		return 0;
	}
	close(proc->sock);
	free(proc);
	return ret;
}

/* ---- describing ---- */

int ck_parser_describe(const struct ck_parser_by *by,
		       const struct ck_root *root, const struct ck_opts *opts,
		       int *catalog_fd, struct ck_err *err)
{
	struct ck_parser_job job = {
		.kind = by->stays ? CK_PARSER_BOTH : CK_PARSER_DESCRIBE,
		.opts = opts,
		.root = root,
	};
	struct ck_parser_proc *proc;
	ck_auto_fd int fd = -1;
	int ret = ck_catalog_file(&fd, err), cancel_fd = by->cancel_fd;

	if (ret)
		return ret;
	job.catalog_fd = fd;
	ck_parser_limits_guess(root, opts, &job.limits);
	ret = start(by->program, &job, &proc, err);
	if (ret)
		return ret;
	ret = await(proc, &job.limits, &cancel_fd, err);
	if (ret && strstr(err->msg, WHAT) == err->msg)
		return ck_wrap(err, ret, "%s", root->path);
	if (ret)
		return ret;
	ret = ck_catalog_seal(fd, err);
	if (!ret)
		*catalog_fd = ck_steal_fd(fd);
	if (ret || !by->stays) {
		ck_parser_proc_free(proc);
		return ret;
	}
	ck_parser_proc_free(*by->stays);
	*by->stays = proc;
	return 0;
}

/* ---- publishing ---- */

#define PUBLISH_SECONDS (7 * 24 * 3600) /* it takes what it takes */

static int publish_opts(struct ck_opts *out, const struct ck_opts *from,
			const char *name, const char *as)
{
	int ret = ck_opts_add(out, CK_PARSER_DRAFT, name);

	if (!ret && as)
		ret = ck_opts_add(out, CK_PARSER_AS, as);
	if (!ret && as)
		ret = ck_opts_add(out, CK_PARSER_REPLACE, "");
	for (size_t i = 0; i < from->nr && !ret; i++)
		ret = ck_opts_add(out, from->v[i].name, from->v[i].value);
	return ret;
}

int ck_parser_publish(const struct ck_parser_by *by, const struct ck_root *root,
		      const struct ck_opts *from, const char *name,
		      const char *as, struct ck_err *err)
{
	struct ck_opts opts = { 0 };
	struct ck_parser_job job = {
		.kind = CK_PARSER_PUBLISH,
		.opts = &opts,
		.limits.patience = PUBLISH_SECONDS,
		.root = root,
		.catalog_fd = -1,
	};
	struct ck_parser_proc *proc;
	int ret = publish_opts(&opts, from, name, as), cancel_fd = 0;

	ret = ret ? ck_no_memory(err) : start(by->program, &job, &proc, err);
	ck_opts_free(&opts);
	if (!ret)
		ret = await(proc, &job.limits, &cancel_fd, err);
	if (!ret)
		ck_parser_proc_free(proc);
	return ret;
}

/* ---- finding items ---- */

struct ck_parser {
	const char *program;
	struct ck_ckpt *ck;
	const struct ck_opts *opts;
	int catalog_fd;
	int cancel_fd; /* while it is opened; or 0 */
	struct ck_parser_limits limits;
	pthread_mutex_t lock;
	struct ck_parser_proc *proc; /* NULL: it does not run */
	unsigned deaths; /* it is started again, but not for ever */
};

#define DEATHS_MAX 8

struct ck_parser *ck_parser_new(const struct ck_parser_by *by,
				struct ck_ckpt *ck, const struct ck_opts *opts,
				int catalog_fd)
{
	struct ck_parser *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->program = by->program;
	p->cancel_fd = by->cancel_fd;
	p->ck = ck;
	p->opts = opts;
	p->catalog_fd = catalog_fd;
	p->proc = *by->stays;
	*by->stays = NULL;
	ck_parser_limits_guess(ck_ckpt_root(ck), opts, &p->limits);
	pthread_mutex_init(&p->lock, NULL);
	return p;
}

void ck_parser_opened(struct ck_parser *p)
{
	if (p)
		p->cancel_fd = 0;
}

static void stop(struct ck_parser *p)
{
	ck_parser_proc_free(p->proc);
	p->proc = NULL;
}

void ck_parser_free(struct ck_parser *p)
{
	if (!p)
		return;
	stop(p);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* Whether who asks for an item has no use for it any more. */
static bool asker_gave_up(void *ctx)
{
	const struct ck_parser *p = ctx;

	return ck_load_is_cancelled() || ck_parser_is_cancelled(p->cancel_fd);
}

static struct ck_patience patience(struct ck_parser *p)
{
	struct ck_patience wait = ck_patience(p->limits.patience);

	wait.stopped = asker_gave_up;
	wait.ctx = p;
	return wait;
}

/* Who described is to go on. */
static int go_on(struct ck_parser *p, struct ck_err *err)
{
	const struct ck_patience wait = patience(p);
	struct ck_child_answer answer;
	char go = 0;
	int ret = ck_exchange_put(p->proc->sock, &go, 1, &wait);

	if (!ret)
		ret = ck_exchange_get(p->proc->sock, &answer, sizeof(answer),
				      &wait);
	if (!ret && !answer.code) {
		p->proc->serves = true;
		return 0;
	}
	stop(p);
	return ret ? ret : ck_fail(err, EIO, "it cannot go on");
}

static int start_new(struct ck_parser *p, struct ck_err *err)
{
	struct ck_parser_job job = {
		.kind = CK_PARSER_ITEMS,
		.opts = p->opts,
		.limits = p->limits,
		.root = ck_ckpt_root(p->ck),
		.catalog_fd = p->catalog_fd,
	};
	struct ck_parser_proc *proc;
	int ret;

	if (p->deaths >= DEATHS_MAX)
		return ck_fail(err, EIO, "%s: the parser died %u times",
			       job.root->path, p->deaths);
	ret = start(p->program, &job, &proc, err);
	if (ret)
		return ret;
	ret = await(proc, &p->limits, &p->cancel_fd, err);
	if (ret) {
		p->deaths += ret != -ECANCELED;
		return ck_wrap(err, ret, "%s", job.root->path);
	}
	proc->serves = true;
	p->proc = proc;
	return 0;
}

/* That it is there; one that ended since it described is started anew. */
static int run(struct ck_parser *p, struct ck_err *err)
{
	if (p->proc && (p->proc->serves || !go_on(p, err)))
		return 0;
	return start_new(p, err);
}

/* @ret, which @why is about. */
static int fail_by(struct ck_err *err, int ret, const struct ck_err *why)
{
	*err = *why;
	err->code = -ret;
	return ret;
}

static int receive(struct ck_parser *p, const uint32_t *chunks, uint32_t nr,
		   int *first, struct ck_err *err)
{
	struct ck_found_item item;

	for (uint32_t i = 0; i < nr; i++) {
		const struct ck_patience wait = patience(p);
		struct ck_err why;
		int ret = ck_exchange_get(p->proc->sock, &item, sizeof(item),
					  &wait);

		if (!ret && item.chunk != chunks[i])
			ret = -EPROTO;
		if (ret)
			return ret;
		item.why[sizeof(item.why) - 1] = '\0';
		ret = ck_ckpt_put_item(p->ck, &item, &why);
		if (ret && !*first)
			*first = fail_by(err, ret, &why);
	}
	return 0;
}

static int failed(struct ck_parser *p, int ret, struct ck_err *err)
{
	const char *path = ck_ckpt_root(p->ck)->path;

	stop(p);
	if (ret == -EINTR)
		return ck_fail(err, ECANCELED,
			       "%s: the parser was stopped: cancelled", path);
	p->deaths++;
	if (ret == -ETIMEDOUT)
		return ck_fail(
			err, EIO,
			"%s: the parser, asked for items, took more than "
			"%u s (-o parse-time=N allows more)",
			path, p->limits.patience);
	return ck_fail(err, EIO, "%s: the parser, asked for items, %s", path,
		       ret == -EPROTO ? "gave others" : "died");
}

/* 0, or what is wrong with an item; all others are known then. */
static int ask(struct ck_parser *p, const uint32_t *chunks, uint32_t nr,
	       struct ck_err *err)
{
	int first = 0, ret = asker_gave_up(p) ? -EINTR : run(p, err);
	struct ck_patience wait = patience(p);

	if (ret == -EINTR)
		return failed(p, ret, err);
	if (ret)
		return ret;
	ret = ck_exchange_put(p->proc->sock, &nr, sizeof(nr), &wait);
	if (!ret)
		ret = ck_exchange_put(p->proc->sock, chunks,
				      nr * sizeof(*chunks), &wait);
	if (!ret)
		ret = receive(p, chunks, nr, &first, err);
	return ret ? failed(p, ret, err) : first;
}

static bool unknown(const struct ck_parser *p, uint32_t chunk)
{
	const struct ck_catalog *img = ck_ckpt_catalog(p->ck);
	const struct ck_chunk *c = &img->chunks[chunk];
	struct ck_place place;

	return (img->layouts[c->layout].flags & CK_LAYOUT_DEFERRED) &&
	       c->state == CK_OK &&
	       ck_resolved_get(ck_ckpt_resolved(p->ck), chunk, &place) ==
		       CK_RESOLVED_UNKNOWN;
}

static int find_range(struct ck_parser *p, uint32_t from, uint32_t to,
		      struct ck_err *err)
{
	uint32_t chunks[CK_PARSER_CHUNKS], nr = 0;
	int first = 0;

	for (uint32_t c = from; c <= to; c++) {
		struct ck_err why;
		int ret;

		if (c < to && unknown(p, c))
			chunks[nr++] = c;
		if (nr < CK_PARSER_CHUNKS && (c < to || !nr))
			continue;
		ret = ask(p, chunks, nr, &why);
		if (ret && !first)
			first = fail_by(err, ret, &why);
		nr = 0;
	}
	return first;
}

int ck_parser_find_all(struct ck_parser *p, struct ck_err *err)
{
	int ret;

	pthread_mutex_lock(&p->lock);
	ret = find_range(p, 0, ck_ckpt_catalog(p->ck)->nr_chunks, err);
	pthread_mutex_unlock(&p->lock);
	return ret;
}

int ck_parser_find_chunk(void *ctx, uint32_t chunk, struct ck_err *err)
{
	struct ck_parser *p = ctx;
	const struct ck_catalog *img = ck_ckpt_catalog(p->ck);
	const struct ck_tensor *t =
		&img->tensors[ck_ckpt_tensor_of(img, chunk)];
	struct ck_place place;
	struct ck_err why;
	int ret;

	pthread_mutex_lock(&p->lock);
	find_range(p, t->first, t->first + t->nr_all, &why);
	pthread_mutex_unlock(&p->lock);
	if (ck_resolved_get(ck_ckpt_resolved(p->ck), chunk, &place) !=
	    CK_RESOLVED_UNKNOWN)
		return 0;
	/* Torn, or not now: then the line is wanted that says so. */
	pthread_mutex_lock(&p->lock);
	ret = ask(p, &chunk, 1, err);
	pthread_mutex_unlock(&p->lock);
	return ret;
}
