/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_describe.c - from a folder to a catalog in a sealed memfd
 *
 * All parsing of the index happens in a sandboxed process that ends with it.
 * What it leaves is checked again by ck_catalog_map(), for whoever could take
 * over the parser could write any catalog.
 */
#include "core/ckpt/ckpt_index_cache.h"
#include "core/ckpt/ckpt_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/catalog/catalog.h"
#include "core/sandbox/child.h"
#include "core/format/detect.h"
#include "core/root/dir_record.h"
#include "core/format/format.h"
#include "core/sandbox/sandbox.h"
#include "core/manifest/sealed_index.h"
#include "core/reshard/reshard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct job {
	const struct ck_root *root;
	const struct ck_opts *opts;
	const struct ck_parser_limits *limits; /* NULL: none */
	int catalog_fd;
	const struct ck_index_cache *cache; /* NULL: none */
	struct ck_catalog *kept; /* the one of it */
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

uint64_t ck_parser_limits_memory(const struct ck_parser_limits *limits)
{
	uint64_t mapped = mapped_now();

	return mapped ? mapped + limits->memory : 0;
}

static int enter_sandbox(const struct job *job, struct ck_err *err)
{
	const struct ck_sandbox_in in = {
		.role = CK_SANDBOX_PARSER,
		.root = job->root,
		.mem_max = ck_parser_limits_memory(job->limits),
	};

	return ck_sandbox_enter(&in, NULL, err);
}

static int load_recorded(struct ck_dir *dir, const struct job *job,
			 struct ck_err *err)
{
	struct ck_dir_record *r = ck_dir_record_new(dir);
	const char *text;
	size_t len;
	int ret;

	if (!r)
		return ck_no_memory(err);
	ret = ck_detect_load(ck_dir_record_dir(r), job->catalog_fd, err);
	if (!ret && ck_dir_record_text(r, &text, &len))
		ret = ck_index_cache_tell(job->cache, text, len, err);
	ck_dir_record_free(r);
	return ret;
}

/* Nothing is written where what was kept is what would be. */
static int load_cached(struct ck_dir *dir, const struct job *job,
		       struct ck_err *err)
{
	return ck_index_cache_holds(job->cache, dir) ?
		       0 :
		       load_recorded(dir, job, err);
}

/* While the parser asks. */
static void bring_kept(void *ctx)
{
	const struct job *job = ctx;

	ck_index_cache_map(job->cache, job->kept);
}

static int parse(void *ctx, struct ck_err *err)
{
	const struct job *job = ctx;
	struct ck_dir dir;
	int ret = 0;

	if (job->limits && wants_sandbox(job->opts))
		ret = enter_sandbox(job, err);
	if (!ret)
		ret = ck_reshard_check(job->opts, err);
	if (ret)
		return ret;
	ck_dir_root_init(&dir, job->root, job->opts);
	if (job->cache && job->cache->dir_fd >= 0)
		return load_cached(&dir, job, err);
	return ck_opts_get(job->opts, "verify") ?
		       load_verified(&dir, job, err) :
		       ck_detect_load(&dir, job->catalog_fd, err);
}

int ck_ckpt_parse(const struct ck_root *root, const struct ck_opts *opts,
		  const struct ck_parser_limits *limits, int catalog_fd,
		  struct ck_err *err)
{
	struct job job = { .root = root,
			   .opts = opts,
			   .limits = limits,
			   .catalog_fd = catalog_fd };

	return parse(&job, err);
}

static int run_job(const struct job *job, struct ck_err *err)
{
	const struct ck_parser_limits *limits = job->limits;
	const struct ck_root *root = job->root;
	unsigned nr = ck_root_fds(root, NULL, 0);
	ck_auto_free int *keep = calloc(nr + 3, sizeof(*keep));
	struct ck_child c = {
		.what = "the parser",
		.hint = "(-o parse-time=N allows more)",
		.run = parse,
		.meanwhile = job->cache ? bring_kept : NULL,
		.ctx = (void *)(uintptr_t)job,
		.keep = keep,
		.nr_keep = nr + 3,
		.cpu = limits->seconds,
		.seconds = limits->patience,
	};
	int ret;

	if (!keep)
		return ck_no_memory(err);
	ck_root_fds(root, keep, nr);
	keep[nr] = job->catalog_fd;
	keep[nr + 1] = job->cache ? job->cache->file_fd : -1;
	keep[nr + 2] = job->cache ? job->cache->record_fd : -1;
	ret = ck_child_call(&c, err);
	if (ret == -ETIMEDOUT || (ret && strstr(err->msg, c.what) == err->msg))
		return ck_wrap(err, ret, "%s", root->path);
	return ret;
}

int ck_ckpt_describe(const struct ck_root *root, const struct ck_opts *opts,
		     int *catalog_fd, struct ck_err *err)
{
	struct ck_parser_limits limits;
	struct job job = { .root = root, .opts = opts, .limits = &limits };
	ck_auto_fd int fd = -1;
	struct ck_err local;
	int ret = ck_catalog_file(&fd, err);

	if (ret)
		return ret;
	job.catalog_fd = fd;
	ck_parser_limits_guess(root, opts, &limits);
	ret = run_job(&job, err ? err : &local);
	if (!ret)
		ret = ck_catalog_seal(fd, err);
	if (!ret)
		*catalog_fd = ck_steal_fd(fd);
	return ret;
}

static bool is_empty(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && !st.st_size;
}

/* What was kept counts where the parser says so, and all of it is right. */
static int describe(const struct job *job, struct ck_index_cache *cache,
		    struct ck_catalog *out, struct ck_err *err)
{
	int ret = run_job(job, err);
	bool holds = !ret && is_empty(job->catalog_fd);

	if (holds && !job->kept->base) {
		ck_index_cache_forget(cache);
		ret = run_job(job, err);
	} else if (holds) {
		*out = *job->kept;
		*job->kept = (struct ck_catalog){ 0 };
	}
	if (!ret && !out->base)
		ret = ck_catalog_seal(job->catalog_fd, err);
	if (!ret)
		ck_index_cache_keep(cache, job->catalog_fd);
	return ret || out->base ? ret :
				  ck_catalog_map(out, job->catalog_fd, err);
}

int ck_ckpt_describe_kept(const struct ck_root *root,
			  const struct ck_opts *opts,
			  struct ck_index_cache_in *in, struct ck_catalog *out,
			  struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	struct ck_parser_limits limits;
	struct ck_index_cache cache;
	struct ck_catalog kept = { 0 };
	struct job job = { root, opts, &limits, -1, &cache, &kept };
	int ret = ck_catalog_file(&fd, err);

	*out = (struct ck_catalog){ 0 };
	if (ret)
		return ret;
	job.catalog_fd = fd;
	ck_parser_limits_guess(root, opts, &limits);
	ck_index_cache_open(&cache, root, opts, in);
	ret = describe(&job, &cache, out, err);
	ck_catalog_unmap(&kept);
	ck_index_cache_close(&cache);
	return ret;
}
