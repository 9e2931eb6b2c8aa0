/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parser_main.c - the program that parses for the library
 *
 * A checkpoint's bytes are hostile, and a trainer's memory is no place to read
 * them in; nor is it one to fork.  So this is started instead, is given the
 * descriptors that it needs, confines itself, answers, and ends with the stream
 * (parser_job.h).
 */
#include "core/lib/parser_job.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/publish/recover.h"
#include "core/sandbox/child.h"
#include "core/sandbox/exchange.h"
#include "core/sandbox/child.h"
#include "core/sandbox/sandbox.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int answer(const struct ck_err *err, int ret)
{
	struct ck_child_answer a;

	ck_child_answer(&a, ret, err);
	return ck_exchange_put(CK_PARSER_FD, &a, sizeof(a), NULL) || ret;
}

/* @seconds 0: as much as the caller's own limit allows. */
static int limit_cpu_for_now(unsigned seconds, struct ck_err *err)
{
	struct rlimit r;
	int ret = getrlimit(RLIMIT_CPU, &r);

	r.rlim_cur = r.rlim_max;
	if (seconds && r.rlim_max > seconds)
		r.rlim_cur = seconds;
	else if (r.rlim_max != RLIM_INFINITY && r.rlim_max > 1)
		r.rlim_cur = r.rlim_max - 1; /* SIGXCPU tells it from a crash */
	return ret || setrlimit(RLIMIT_CPU, &r) ?
		       ck_fail(err, errno, "limit of processor time: %s",
			       strerror(errno)) :
		       0;
}

static int describe(const struct ck_parser_job *job, struct ck_err *err)
{
	int ret = ck_child_limit_cpu(job->limits.seconds, err);

	return ret ? ret :
		     ck_ckpt_parse(job->root, job->opts, &job->limits,
				   job->catalog_fd, err);
}

/* ---- items ---- */

static int enter_sandbox(const struct ck_parser_job_in *in, struct ck_err *err)
{
	const char *sandbox = ck_opts_get(&in->opts, "sandbox");
	const struct ck_sandbox_in box = {
		.role = CK_SANDBOX_FINDER,
		.root = &in->root,
		.spool_dir = ck_opts_get(&in->opts, "spool"),
		.mem_max = ck_parser_limits_memory(&in->job.limits),
	};

	return sandbox && !strcmp(sandbox, "off") ?
		       0 :
		       ck_sandbox_enter(&box, NULL, err);
}

/* Confined from the beginning as who finds items is, with limits that end. */
static int describe_first(struct ck_parser_job_in *in, struct ck_err *err)
{
	int ret = limit_cpu_for_now(in->job.limits.seconds, err);

	if (!ret)
		ret = enter_sandbox(in, err);
	return ret ? ret :
		     ck_ckpt_parse(&in->root, &in->opts, NULL,
				   in->job.catalog_fd, err);
}

/* As the command reads them, but by nothing that a sandbox may refuse. */
static int serve(struct ck_parser_job_in *in, struct ck_ckpt **ck,
		 struct ck_err *err)
{
	int ret = 0;

	if (ck_opts_add(&in->opts, "engine", "plain"))
		return ck_no_memory(err);
	if (in->job.kind == CK_PARSER_ITEMS)
		ret = enter_sandbox(in, err);
	else
		ret = limit_cpu_for_now(0, err);
	return ret ? ret :
		     ck_ckpt_serve(ck, &in->root, &in->opts, in->job.catalog_fd,
				   err);
}

static int find(struct ck_ckpt *ck)
{
	uint32_t nr, chunks[CK_PARSER_CHUNKS];
	struct ck_found_item item;
	int ret = ck_exchange_get(CK_PARSER_FD, &nr, sizeof(nr), NULL);

	if (!ret && nr > CK_PARSER_CHUNKS)
		ret = -EINVAL;
	if (!ret)
		ret = ck_exchange_get(CK_PARSER_FD, chunks,
				      nr * sizeof(*chunks), NULL);
	for (uint32_t i = 0; !ret && i < nr; i++) {
		ck_ckpt_find_item(ck, chunks[i], &item);
		ret = ck_exchange_put(CK_PARSER_FD, &item, sizeof(item), NULL);
	}
	return ret;
}

/* Until nobody asks any more: all that it has ends with it. */
static int answer_all(struct ck_parser_job_in *in, struct ck_err *err)
{
	struct ck_ckpt *ck;

	if (answer(err, serve(in, &ck, err)))
		return 1;
	while (!find(ck))
		;
	return 0;
}

/* As the command does it. */
static int publish(const struct ck_parser_job_in *in, struct ck_err *err)
{
	const struct ck_commit_in how = {
		.opts = &in->opts,
		.as = ck_opts_get(&in->opts, CK_PARSER_AS),
		.replace = ck_opts_get(&in->opts, CK_PARSER_REPLACE),
	};
	const char *name = ck_opts_get(&in->opts, CK_PARSER_DRAFT);
	int ret = ck_publish_step(&in->root, name, &how, err);

	return CK_MIN(ret, 0);
}

static int do_job(struct ck_parser_job_in *in, struct ck_err *err)
{
	switch (in->job.kind) {
	case CK_PARSER_BOTH:
		return describe_first(in, err);
	case CK_PARSER_PUBLISH:
		return publish(in, err);
	default:
		return describe(&in->job, err);
	}
}

int main(void)
{
	struct ck_parser_job_in in;
	struct ck_err err = { 0 };
	char go;
	int ret;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a line instead */
	ret = ck_parser_job_receive(CK_PARSER_FD, &in, &err);
	if (!ret && in.job.kind == CK_PARSER_ITEMS)
		return answer_all(&in, &err);
	if (!ret)
		ret = do_job(&in, &err);
	if (answer(&err, ret))
		return 1;
	if (in.job.kind == CK_PARSER_BOTH &&
	    !ck_exchange_get(CK_PARSER_FD, &go, 1, NULL))
		return answer_all(&in, &err);
	return 0;
}
