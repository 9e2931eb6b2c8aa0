/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.c - the sandboxed process that answers the kernel
 *
 * It ends when the mount is gone, and only then: signals that a terminal or
 * systemd sends to the whole group are for the supervisor.
 */
#include "mount-helpers/mount/supervisor_priv.h"

#include "core/base/auto.h"
#include "core/base/fds.h"
#include "core/sandbox/sandbox.h"
#include "core/root/journal.h"
#include "core/run/run_dir.h"
#include "core/view/extras.h"
#include "fs/mount_procs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define FIXED_FDS (8 + FS_SESSION_FDS)

static void answer(int fd, const struct ck_err *err)
{
	/* Nobody to hear it: then nobody would unmount either. */
	if (write(fd, err, sizeof(*err)) != (ssize_t)sizeof(*err))
		_exit(EXIT_FAILURE);
}

static void it_answers(void *ctx)
{
	static const struct ck_err fine;
	const struct worker_in *w = ctx;

	answer(w->answer_fd, &fine);
}

static void own_signals(void)
{
	static const int for_supervisor[] = { SIGTERM, SIGINT, SIGHUP,
					      SIGPIPE };
	sigset_t none;

	for (size_t i = 0; i < sizeof(for_supervisor) / sizeof(int); i++)
		signal(for_supervisor[i], SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static int own_fds(const struct worker_in *w, struct ck_err *err)
{
	const struct ck_root *root = w->in->root;
	int null = ck_fds_null();
	unsigned nr = ck_root_fds(root, NULL, 0), n = 0;
	ck_auto_free int *keep = malloc((FIXED_FDS + nr) * sizeof(*keep));

	if (null < 0 || !keep)
		return ck_fail(err, errno, "worker: %s", strerror(errno));
	dup2(null, 0);
	dup2(null, 1);
	dup2(w->log_fd, 2);
	for (int fd = 0; fd < 3; fd++)
		keep[n++] = fd;
	n += ck_root_fds(root, keep + n, nr);
	keep[n++] = w->answer_fd;
	keep[n++] = w->askers_fd;
	keep[n++] = w->spool_fd;
	keep[n++] = w->cache_fd;
	keep[n++] = w->passthrough_fd;
	fs_session_fds(w->session, keep + n);
	n += FS_SESSION_FDS;
	ck_fds_close_others(keep, n);
	return 0;
}

/* One checkpoint's own folder may hold others, which are parsed later. */
static bool may_parse(const struct worker_in *w)
{
	const struct ck_root *root = w->in->root;
	struct ck_run_dir beside;
	bool any;

	if (!w->in->img->base)
		return true;
	if (root->only || root->save ||
	    ck_run_dir_list_siblings(&beside, root, "", NULL, NULL))
		return false;
	any = beside.nr;
	ck_run_dir_free(&beside);
	return any;
}

static int own_rights(const struct worker_in *w, unsigned *got,
		      struct ck_err *err)
{
	const char *how = ck_opts_get(w->in->opts, "sandbox");
	ck_auto_free char *config = ck_extras_folder(w->in->root, w->in->opts);
	struct ck_sandbox_in in = {
		.role = CK_SANDBOX_WORKER,
		.root = w->in->root,
		.spool_dir = w->spool,
		.config_dir = config,
		.write_dir = ck_opts_get(w->in->opts, "overlay"),
		.writes = ck_opts_get(w->in->opts, "rw") &&
			  !ck_opts_get(w->in->opts, "overlay"),
		.cache_fd = w->cache_fd,
		.caches = ck_opts_get(w->in->opts, "cache"),
		.parses = may_parse(w),
		.asks = w->askers_fd >= 0,
		.hands_over = fs_session_hands_over(w->session),
	};

	if (how && !strcmp(how, "off"))
		return 0;
	ck_journal_boot();
	return ck_sandbox_enter(&in, got, err);
}

static void end(struct ck_ckpt *ck)
{
	struct ck_err err = { 0 };

	if (ck_ckpt_end(ck, &err))
		fprintf(stderr, "%s\n", err.msg); /* the log */
	ck_ckpt_close(ck);
}

static int serve(const struct worker_in *w, struct ck_err *err)
{
	struct fs_serve_in in = {
		.opts = w->in->opts,
		.ready = it_answers,
		.ctx = (void *)w,
		.askers_fd = w->askers_fd,
		.cache_fd = w->cache_fd,
		.passthrough_fd = w->passthrough_fd,
	};
	int ret;

	own_signals();
	ret = own_fds(w, err);
	if (!ret)
		ret = own_rights(w, &in.sandbox, err);
	if (!ret && !w->in->img->base)
		in.steps = w->in->root;
	else if (!ret)
		ret = ck_ckpt_serve_mapped(&in.ck, w->in->root, w->in->opts,
					   w->in->img, err);
	if (ret)
		return ret;
	ret = fs_session_serve(w->session, &in, err);
	if (in.ck)
		end(in.ck);
	return ret;
}

void worker_run(const struct worker_in *w)
{
	struct ck_err err = { 0 };
	int ret;

	prctl(PR_SET_NAME, FS_WORKER_NAME);
	ret = serve(w, &err);
	if (ret)
		answer(w->answer_fd, &err);
	end_process(ret ? EXIT_FAILURE : EXIT_SUCCESS);
}
