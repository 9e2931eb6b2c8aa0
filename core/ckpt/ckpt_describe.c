/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_describe.c - from a folder to a catalog in a sealed memfd
 *
 * All parsing of the index happens in a sandboxed process that ends with it.
 * What it leaves is checked again by ck_catalog_map(), for whoever could take
 * over the parser could write any catalog.
 */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/catalog/catalog.h"
#include "core/sandbox/child.h"
#include "core/format/detect.h"
#include "core/root/dir.h"
#include "core/format/format.h"
#include "core/sandbox/sandbox.h"
#include "core/manifest/sealed_index.h"
#include "core/reshard/reshard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * Its limit is of processor time, for on a busy machine a good checkpoint takes
 * many times as long; this is for what hangs.
 */
#define PATIENCE 10
#define SECONDS_MAX 100000000u

struct job {
	const struct ck_root *root;
	const struct ck_opts *opts;
	int catalog_fd;
	bool sandbox;
	struct ck_sandbox_in in;
};

static bool is_apart(const struct ck_catalog *img)
{
	const struct ck_format *f = ck_format_of(img);

	return f && f->apart;
}

static int end_verified(const struct ck_sealed_index *x, const struct job *job,
			bool loaded, struct ck_err *err)
{
	struct ck_catalog img;
	int ret;

	if (!loaded || ck_catalog_map(&img, job->catalog_fd, NULL))
		return ck_sealed_index_end(x, NULL, false, err);
	ret = ck_sealed_index_end(x, &img, is_apart(&img), err);
	ck_catalog_unmap(&img);
	return ret;
}

/*
 * A folder of checkpoints has no manifest of its own, and is none: that it is
 * not sealed is only said of what can be read.
 */
static int load_verified(struct ck_dir *dir, const struct job *job,
			 struct ck_err *err)
{
	struct ck_sealed_index *x = NULL;
	struct ck_err why = { 0 };
	int sealed = ck_sealed_index_open(&x, job->root, &why), ret, bad;

	if (sealed && sealed != -ENOENT)
		return ck_fail(err, -sealed, "%s: %s", job->root->path,
			       why.msg);
	dir->wrap = x ? ck_sealed_index_wrap(x) : NULL;
	ret = ck_detect_load(dir, job->catalog_fd, err);
	bad = x ? end_verified(x, job, !ret, &why) : 0;
	ck_sealed_index_free(x);
	if (bad)
		return ck_fail(err, -bad, "%s: %s", job->root->path, why.msg);
	return ret || !sealed ? ret : ck_ckpt_unsealed(job->root, err);
}

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
	return ck_opts_get(job->opts, "verify") ?
		       load_verified(&dir, job, err) :
		       ck_detect_load(&dir, job->catalog_fd, err);
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

static int run_job(struct job *job, const struct ck_parser_limits *limits,
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
		.cpu = limits->seconds,
		.seconds = CK_MIN(limits->seconds, SECONDS_MAX) * PATIENCE,
	};
	int ret;

	if (!keep)
		return ck_no_memory(err);
	ck_root_fds(root, keep, nr);
	keep[nr] = job->catalog_fd;
	ret = ck_child_call(&c, err);
	if (ret == -ETIMEDOUT || (ret && strstr(err->msg, c.what) == err->msg))
		return ck_wrap(err, ret, "%s", root->path);
	return ret;
}

int ck_ckpt_describe(const struct ck_root *root, const struct ck_opts *opts,
		     int *catalog_fd, struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	struct job job = { .root = root, .opts = opts };
	struct ck_parser_limits limits;
	struct ck_err local;
	uint64_t mapped = mapped_now();
	int ret = ck_catalog_file(&fd, err);

	if (ret)
		return ret;
	job.catalog_fd = fd;
	ck_parser_limits_guess(root, opts, &limits);
	job.sandbox = wants_sandbox(opts);
	job.in = (struct ck_sandbox_in){
		.role = CK_SANDBOX_PARSER,
		.root = root,
		.mem_max = mapped ? mapped + limits.memory : 0,
	};
	ret = run_job(&job, &limits, err ? err : &local);
	if (ret)
		return ret;
	ret = ck_catalog_seal(fd, err);
	if (!ret)
		*catalog_fd = ck_steal_fd(fd);
	return ret;
}
