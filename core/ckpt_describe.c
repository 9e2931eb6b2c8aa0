/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_describe.c - from a folder to an image in a sealed memfd
 *
 * All parsing of the index happens in a sandboxed process that ends with it.
 * What it leaves is checked again by ck_image_map(), for whoever could take
 * over the parser could write any image.
 */
#include "core/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/catalog/image.h"
#include "core/child.h"
#include "core/format/detect.h"
#include "core/format/dir.h"
#include "core/io/sandbox.h"
#include "core/reshard/reshard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct job {
	const struct ck_root *root;
	const struct ck_opts *opts;
	int image_fd;
	bool sandbox;
	struct ck_sandbox_in in;
};

static int parse(void *ctx, struct ck_err *err)
{
	struct job *job = ctx;
	struct ck_dir dir;
	int ret;

	if (job->sandbox) {
		ret = ck_sandbox_enter(&job->in, NULL, err);
		if (ret)
			return ret;
	}
	ret = ck_reshard_check(job->opts, err);
	if (ret)
		return ret;
	ck_dir_root_init(&dir, job->root, job->opts);
	return ck_detect_load(&dir, job->image_fd, err);
}

static bool wants_sandbox(const struct ck_opts *opts)
{
	const char *how = ck_opts_get(opts, "sandbox");

	return !how || strcmp(how, "off") != 0;
}

/* RLIMIT_AS counts what the program has mapped already. */
static uint64_t mapped_now(void)
{
	ck_auto_file FILE *f = fopen("/proc/self/statm", "re");
	unsigned long pages;

	if (!f || fscanf(f, "%lu", &pages) != 1)
		return 0;
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int run_job(struct job *job, const struct ck_effort *effort,
		   struct ck_err *err)
{
	const struct ck_root *root = job->root;
	unsigned nr = ck_root_fds(root, NULL, 0);
	ck_auto_free int *keep = calloc(nr + 1, sizeof(*keep));
	struct ck_child c = {
		.what = "the parser",
		.hint = "(-o parse-time=N allows more)",
		.run = parse,
		.ctx = job,
		.keep = keep,
		.nr_keep = nr + 1,
		.seconds = effort->seconds,
	};
	int ret;

	if (!keep)
		return ck_fail(err, ENOMEM, "out of memory");
	ck_root_fds(root, keep, nr);
	keep[nr] = job->image_fd;
	ret = ck_child_call(&c, err);
	if (ret == -ETIMEDOUT || (ret && strstr(err->msg, c.what) == err->msg))
		return ck_wrap(err, ret, "%s", root->path);
	return ret;
}

int ck_ckpt_describe(const struct ck_root *root, const struct ck_opts *opts,
		     int *image_fd, struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	struct job job = { .root = root, .opts = opts };
	struct ck_effort effort;
	struct ck_err local;
	uint64_t mapped = mapped_now();
	int ret = ck_image_file(&fd, err);

	if (ret)
		return ret;
	job.image_fd = fd;
	ck_effort_guess(root, opts, &effort);
	job.sandbox = wants_sandbox(opts);
	job.in = (struct ck_sandbox_in){
		.role = CK_SANDBOX_PARSER,
		.root = root,
		.mem_max = mapped ? mapped + effort.memory : 0,
		.cpu_seconds = effort.seconds,
	};
	ret = run_job(&job, &effort, err ? err : &local);
	if (ret)
		return ret;
	ret = ck_image_seal(fd, err);
	if (!ret)
		*image_fd = ck_steal_fd(fd);
	return ret;
}
