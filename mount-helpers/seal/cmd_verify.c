/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_verify.c - a checkpoint against its manifest, and against itself
 *
 * An index that is damaged cannot be read, and then the files are compared
 * with the manifest all the same, only nobody can say what they meant.
 */
#include "mount-helpers/health.h"
#include "mount-helpers/progress.h"
#include "mount-helpers/text.h"
#include "mount-helpers/seal/verify_show.h"

#include "core/base/auto.h"
#include "core/catalog/dump.h"
#include "core/sandbox/sandbox.h"
#include "core/publish/sparse_check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

extern const struct cmd cmd_verify;

struct verify {
	const char *path;
	const struct ck_opts *opts;
	struct ck_ckpt *ck; /* NULL: its index cannot be read */
	struct ck_root own; /* then */
	const struct ck_root *root;
	struct ck_manifest m;
	bool sealed;
	struct ck_str out;
	struct verify_show show;
	struct progress bar;
	double seconds; /* that reading the files took */
	uint64_t bytes, nr_damage, nr_quarrels;
	struct ck_err why; /* that the index cannot be read */
	bool ok; /* stdout took all, and there was memory */
	struct ck_err err;
};

static bool json(const struct verify *v)
{
	return ck_opts_get(v->opts, "json");
}

static void flush(struct verify *v)
{
	v->ok = v->ok && text_flush(&v->out);
}

static void tick(void *ctx, uint64_t bytes, uint64_t total)
{
	struct verify *v = ctx;

	progress_at(&v->bar, bytes, total);
}

/* ---- against the manifest ---- */

static int show_damage(struct verify *v, struct ck_corrupt_finder *sp,
		       const struct ck_damage *d)
{
	const struct ck_catalog *img = v->show.img;
	int ret = 0;

	verify_damage(&v->show, d);
	if (img && d->kind != CK_DAMAGE_GROWN)
		ret = ck_corrupt_finder_find(sp, d->file, d->off, d->len,
					     &v->err);
	for (uint32_t i = 0; img && i < img->nr_objects; i++)
		if (ck_corrupt_finder_object(img, i, d->file, d->off, d->len))
			verify_object(&v->show, i);
	verify_damage_end(&v->show, d);
	flush(v);
	return ret;
}

static int show_files(struct verify *v, const struct ck_verify *f)
{
	struct ck_corrupt_finder sp = {
		.img = v->show.img,
		.resolved = v->ck ? ck_ckpt_resolved(v->ck) : NULL,
		.ctx = &v->show,
		.each = verify_corrupt
	};
	int ret = 0;

	verify_list_begin(&v->show, "damage");
	for (size_t i = 0; !ret && i < f->nr_damage; i++)
		ret = show_damage(v, &sp, &f->damage[i]);
	verify_list_end(&v->show);
	verify_list_begin(&v->show, "extra");
	for (size_t i = 0; i < f->now.nr; i++)
		if (f->extra[i])
			verify_extra(&v->show, f->now.v[i].name);
	verify_list_end(&v->show);
	flush(v);
	ck_corrupt_finder_free(&sp);
	return ret;
}

static int files(struct verify *v)
{
	struct ck_verify f = {
		.root = v->root, .m = &v->m, .ctx = v, .tick = tick
	};
	int ret;

	progress_begin(&v->bar, "files");
	ret = ck_verify_files(&f, &v->err);
	v->seconds = progress_end(&v->bar);
	v->bytes = f.bytes;
	v->nr_damage = f.nr_damage;
	if (!ret)
		ret = show_files(v, &f);
	ck_verify_free(&f);
	return ret;
}

/* ---- against itself ---- */

static void quarrel(void *ctx, const struct ck_quarrel *q)
{
	struct verify *v = ctx;

	v->nr_quarrels++;
	verify_quarrel(&v->show, q);
	flush(v);
}

static void duplicate(void *ctx, const char *a, const char *b, uint64_t pieces)
{
	struct verify *v = ctx;

	verify_duplicate(&v->show, a, b, pieces);
	flush(v);
}

/* Ranks that are alike: a warning, for they may have begun so. */
static int duplicates(struct verify *v)
{
	int ret;

	verify_list_begin(&v->show, "twins");
	ret = ck_duplicate_ranks_check(v->ck, duplicate, v, &v->err);
	verify_list_end(&v->show);
	flush(v);
	return ret;
}

/* What was refused, perhaps because its replicas differ, was not compared. */
static void report_alike(struct verify *v, uint64_t nr)
{
	uint64_t out = health_left_out(v->show.img);

	if (nr)
		ck_str_fmt(&v->out, "%" PRIu64 " tensor%s replicas, all alike",
			   nr, nr == 1 ? " has" : "s have");
	else
		ck_str_fmt(&v->out, "no tensor%s has replicas",
			   out ? " that is shown" : "");
	if (out)
		ck_str_fmt(&v->out, "; %" PRIu64 " left out %s not compared",
			   out, out == 1 ? "was" : "were");
	ck_str_puts(&v->out, "\n");
}

static int replicas(struct verify *v)
{
	struct ck_replicas in = {
		.ck = v->ck, .ctx = v, .each = quarrel, .tick = tick
	};
	int ret;

	verify_list_begin(&v->show, "replicas");
	progress_begin(&v->bar, "replicas");
	ret = ck_replicas_compare(&in, &v->err);
	progress_end(&v->bar);
	verify_list_end(&v->show);
	if (!json(v) && !v->nr_quarrels && !ret)
		report_alike(v, in.nr);
	flush(v);
	return ret;
}

/* One line a file. */
static int hole(void *ctx, const struct ck_hole *h, struct ck_err *err)
{
	struct verify *v = ctx;

	(void)err;
	verify_hole(&v->show, h);
	return 1;
}

/* What nobody sealed may be short of what was never written. */
static int holes(struct verify *v)
{
	int ret;

	verify_list_begin(&v->show, "holes");
	ret = ck_sparse_each(v->ck, hole, v, &v->err);
	verify_list_end(&v->show);
	flush(v);
	return ret;
}

static void problems(struct verify *v)
{
	const struct ck_catalog *img = v->show.img;
	struct ck_dump_pos pos = { 0 };
	struct ck_err err;

	for (uint32_t i = 0; i < img->nr_tensors; i++)
		ck_ckpt_resolve(v->ck, i, &err);
	if (json(v))
		return;
	while (v->ok &&
	       ck_dump_next(img, CK_DUMP_PROBLEMS_TEXT, 1, &pos, &v->out))
		flush(v);
	ck_ckpt_runtime_problems(v->ck, false, &v->out);
	flush(v);
}

/* ---- all of it ---- */

static int compare(struct verify *v)
{
	int ret = 0;

	if (json(v))
		ck_str_fmt(&v->out, "{\"sealed\": %s",
			   v->sealed ? "true" : "false");
	if (v->ck)
		problems(v);
	if (v->sealed)
		ret = files(v);
	else
		ret = holes(v);
	if (!ret && v->ck && ck_opts_get(v->opts, "replicas"))
		ret = replicas(v);
	if (!ret && v->ck && ck_opts_get(v->opts, "replicas"))
		ret = duplicates(v);
	return ret;
}

static void sum_up(struct verify *v)
{
	uint64_t rate =
		v->seconds > 0 ? (uint64_t)((double)v->bytes / v->seconds) : 0;

	if (json(v)) {
		ck_str_fmt(&v->out,
			   ", \"files\": %" PRIu64 ", \"bytes\": %" PRIu64
			   ", \"bytes_per_second\": %" PRIu64 "}\n",
			   v->m.nr_files, v->bytes, rate);
		return;
	}
	ck_str_plain(&v->out, v->path, strlen(v->path));
	if (!v->sealed) {
		ck_str_puts(&v->out, ": is not sealed: what its bytes should "
				     "be is not known (unshard seal)\n");
		return;
	}
	ck_str_puts(&v->out, ": ");
	text_count(&v->out, v->m.nr_files, "file");
	ck_str_puts(&v->out, ", ");
	text_size(&v->out, v->bytes);
	ck_str_puts(&v->out, " read, ");
	text_size(&v->out, rate);
	ck_str_puts(&v->out,
		    v->nr_damage ? "/s\n" : "/s: as they were sealed\n");
}

/* The one line on stderr, and the exit code. */
static int verdict(struct verify *v)
{
	if (v->nr_damage)
		return cmd_fail(&cmd_verify, CMD_BAD_CKPT,
				"%s: damaged in %" PRIu64 " place%s%s%s",
				v->path, v->nr_damage,
				v->nr_damage == 1 ? "" : "s",
				v->ck ? "" : ", and no index: ", v->why.msg);
	if (v->nr_quarrels)
		return cmd_fail(&cmd_verify, CMD_BAD_CKPT,
				"%s: replicas differ in %" PRIu64 " place%s",
				v->path, v->nr_quarrels,
				v->nr_quarrels == 1 ? "" : "s");
	if (!v->ck)
		return cmd_fail(
			&cmd_verify, CMD_BAD_CKPT,
			"%s: all files are as they were sealed, but: %s",
			v->path, v->why.msg);
	return health_report(&cmd_verify, v->path, v->show.img,
			     ck_ckpt_runtime_errors(v->ck));
}

static int verify(struct verify *v)
{
	int ret;

	v->root = v->ck ? ck_ckpt_root(v->ck) : &v->own;
	v->ok = true;
	v->show = (struct verify_show){
		.img = v->ck ? ck_ckpt_catalog(v->ck) : NULL,
		.json = json(v),
		.out = &v->out,
	};
	ret = compare(v);
	if (ret)
		return cmd_err(&cmd_verify, &v->err);
	sum_up(v);
	flush(v);
	ret = cmd_flush(&cmd_verify);
	if (!ret && !v->ok)
		ret = cmd_fail(&cmd_verify, CMD_SYSTEM, "no memory");
	return ret ? ret : verdict(v);
}

/* Without the index: only the files, in the sandbox that cmd_open() enters. */
static bool open_bare(struct verify *v)
{
	const char *sandbox = ck_opts_get(v->opts, "sandbox");
	struct ck_sandbox_in in = { .role = CK_SANDBOX_WORKER,
				    .root = &v->own };
	struct ck_err err;

	if (ck_root_open(&v->own, v->path, v->opts, &err))
		return false;
	if ((!sandbox || strcmp(sandbox, "off")) &&
	    ck_sandbox_enter(&in, NULL, &err))
		return false;
	v->sealed = !ck_manifest_load(&v->m, &v->own, &err);
	return v->sealed;
}

static int open_all(struct verify *v)
{
	struct ck_err err;
	int ret;

	if (cmd_open(&v->ck, v->path, v->opts, &v->err)) {
		if (!open_bare(v))
			return cmd_err(&cmd_verify, &v->err);
		v->why = v->err;
		return CMD_OK;
	}
	ret = ck_manifest_load(&v->m, ck_ckpt_root(v->ck), &err);
	v->sealed = !ret;
	if (!ret || ret == -ENOENT)
		return CMD_OK;
	return cmd_fail(&cmd_verify, ret == -EINVAL ? CMD_BAD_CKPT : CMD_SYSTEM,
			"%s: %s", v->path, err.msg);
}

static int run(int argc, char **argv)
{
	struct ck_opts opts = { 0 };
	struct verify v = { .opts = &opts };
	int ret = CMD_USAGE;

	v.own = (struct ck_root){ .fd = -1, .blobs_fd = -1 };
	if (cmd_parse(&cmd_verify, argc, argv, &opts) >= 0) {
		v.path = argv[1];
		ret = open_all(&v);
		if (!ret)
			ret = verify(&v);
		ck_ckpt_close(v.ck);
		ck_root_close(&v.own);
	}
	ck_manifest_free(&v.m);
	ck_str_free(&v.out);
	ck_opts_free(&opts);
	return ret;
}

static const struct cmd_flag flags[] = {
	{ 'r', "replicas", "also compare what is stored more than once" },
	{ 0, NULL, NULL },
};

const struct cmd cmd_verify = {
	.name = "verify",
	.group = CMD_KEEP,
	.args = "CKPT",
	.summary = "check all files, and say which elements are damaged",
	.help = "Compares every block of every file with what unshard seal, or "
		"a publish,\nwrote down, and names the tensors and elements "
		"that are hit.\n",
	.flags = flags,
	.min_words = 1,
	.max_words = 1,
	.run = run,
};
