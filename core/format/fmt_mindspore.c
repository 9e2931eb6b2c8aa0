/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt_mindspore.c - checkpoints of MindSpore, 1.0 to 2.10
 *
 *   one .ckpt file                        ms_ckpt.c
 *   folders of ranks, a strategy beside   ms_find.c, ms_strategy.c, ms_merge.c
 *   param_name_map.json and its parts     ms_unified.c
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/format/format.h"
#include "core/format/ms_find.h"
#include "core/format/ms_saves.h"
#include "core/format/ms_set.h"
#include "core/format/ms_unified.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_STRATEGY (UINT64_C(64) << 20)
#define MAX_SHOWN 8

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	struct ck_ms_found f;
	int ret = ck_ms_find(&f, dir, err);
	bool strategy = f.strategy.nr || ck_opts_get(dir->opts, "strategy");
	int match = CK_MATCH_NONE;

	if (f.mode == CK_MS_UNIFIED || (f.mode == CK_MS_RANKS && strategy))
		match = CK_MATCH_INDEX;
	else if (f.mode == CK_MS_RANKS || f.has_ckpt)
		match = CK_MATCH_FILE;
	ck_ms_found_free(&f);
	return ret ? ret : match;
}

/* ---- strategies ---- */

static int add_strategy(struct ck_ms_set *s, const char *name,
			struct ck_err *err)
{
	ck_auto_free char *bytes = NULL;
	size_t len;
	int ret = ck_dir_slurp(s->dir, name, MAX_STRATEGY, &bytes, &len, err);

	return ret ? ret :
		     ck_ms_strategy_add(&s->strategy, name, bytes, len, err);
}

/* A name that is no file where the command ran is one of the checkpoint. */
static int add_given(struct ck_ms_set *s, size_t i, const char *name,
		     struct ck_err *err)
{
	size_t len;
	const char *bytes = ck_opts_bytes(s->dir->opts, "strategy", i, &len);
	int ret;

	if (bytes)
		return ck_ms_strategy_add(&s->strategy, name, bytes, len, err);
	ret = ck_dir_name_ok(name, strlen(name)) ? add_strategy(s, name, err) :
						   -ENOENT;
	return ret == -ENOENT ?
		       ck_fail(err, EINVAL,
			       "-o strategy=%s: there is no such file, neither here nor in the checkpoint",
			       name) :
		       ret;
}

static int add_strategies(struct ck_ms_set *s, const struct ck_ms_found *f,
			  struct ck_err *err)
{
	const char *name = ck_opts_nth(s->dir->opts, "strategy", 0);
	int ret = 0;

	for (size_t i = 0; name && !ret;
	     name = ck_opts_nth(s->dir->opts, "strategy", ++i))
		ret = add_given(s, i, name, err);
	if (ck_opts_get(s->dir->opts, "strategy"))
		return ret;
	for (size_t i = 0; i < f->strategy.nr && !ret; i++)
		ret = add_strategy(s, f->strategy.v[i], err);
	if (!ret && !f->strategy.nr)
		ret = ck_fail(
			err, EINVAL,
			"%s: the folders of %zu ranks hold pieces, and no strategy file beside them says how tensors were cut: give it with -o strategy=FILE, or mount one rank's file by itself",
			s->dir->path, f->ranks.nr);
	return ret;
}

/* ---- which ranks there must be ---- */

static bool has_rank(const struct ck_ms_found *f, uint64_t rank)
{
	for (size_t i = 0; i < f->file.nr; i++)
		if (f->file.v[i].chosen && f->file.v[i].rank == rank)
			return true;
	return false;
}

/* Ranks 0..n-1, and n is a number of devices that a run may have. */
static bool is_smaller_world(const struct ck_ms_found *f, uint64_t world)
{
	size_t n = f->ranks.nr;

	for (size_t i = 0; i < n; i++)
		if (f->ranks.v[i] != i)
			return false;
	return n < world && (n == 1 || n == 2 || n == 4 || n % 8 == 0);
}

static bool has_shapes(const struct ck_ms_strategy *st)
{
	for (size_t i = 0; i < st->item.nr; i++)
		if (!st->item.v[i].l.has_shape && !st->item.v[i].why)
			return false;
	return true;
}

static int report_missing(struct ck_ms_set *s, const struct ck_ms_found *f,
			  uint64_t world, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR };
	ck_auto_str struct ck_str list = { 0 };
	uint64_t nr = 0;

	for (uint64_t r = 0; r < world; r++) {
		if (has_rank(f, r))
			continue;
		if (++nr <= MAX_SHOWN)
			ck_str_fmt(&list, "%s%" PRIu64, nr > 1 ? ", " : "", r);
	}
	if (!nr)
		return 0;
	if (list.failed)
		return ck_ms_no_memory(err);
	s->missing = true;
	return ck_builder_problem(s->b, &p, err,
				  "the strategy is for %" PRIu64
				  " ranks; those without a file of %s: %s%s",
				  world, f->step ? f->step : "it", list.v,
				  nr > MAX_SHOWN ? " and more" : "");
}

static bool has_layouts(const struct ck_ms_strategy *st, uint32_t stage)
{
	for (size_t i = 0; i < st->item.nr; i++)
		if (st->item.v[i].l.stage == stage)
			return true;
	return false;
}

/*
 * Without its stage's layouts a rank's slices would be taken for copies of
 * whole tensors, and those of one value would pass for such.
 */
static int check_stages(const struct ck_ms_set *s, const struct ck_ms_found *f,
			struct ck_err *err)
{
	uint64_t devices = s->strategy.devices;
	uint32_t seen = CK_MS_NONE;

	for (size_t i = 0; i < f->ranks.nr; i++) {
		uint32_t stage = (uint32_t)(f->ranks.v[i] / devices);

		if (stage != seen && !has_layouts(&s->strategy, stage))
			return ck_fail(
				err, EINVAL,
				"%s: no strategy file describes stage %u (ranks %" PRIu64
				" to %" PRIu64
				"), whose rank %u is there: give the files of all stages with -o strategy=FILE:FILE",
				s->dir->path, stage, stage * devices,
				(stage + 1) * devices - 1, f->ranks.v[i]);
		seen = stage;
	}
	return 0;
}

static int check_world(struct ck_ms_set *s, const struct ck_ms_found *f,
		       struct ck_err *err)
{
	uint64_t devices = s->strategy.devices, world, have;
	uint32_t last = f->ranks.v[f->ranks.nr - 1];

	if (!devices)
		return ck_fail(
			err, EINVAL,
			"%s: no layout of the strategy can be used, so nothing tells how many ranks a stage has",
			s->dir->path);
	world = devices * s->strategy.nr_stages;
	have = (uint64_t)last + 1;
	if (have > world)
		return ck_fail(
			err, EINVAL,
			"%s: rank %u is there, and the strategy files describe %" PRIu64
			" ranks (%u stages of %" PRIu64
			"): give the files of all stages with -o strategy=FILE:FILE",
			s->dir->path, last, world, s->strategy.nr_stages,
			devices);
	if (check_stages(s, f, err))
		return -EINVAL;
	s->smaller = is_smaller_world(f, world);
	if (s->smaller && !has_shapes(&s->strategy))
		return ck_ms_other_world(s, world, f->ranks.nr, NULL, err);
	return world > UINT32_MAX ?
		       ck_fail(err, EINVAL, "%s: %" PRIu64 " ranks",
			       s->dir->path, world) :
		       report_missing(s, f, world, err);
}

/* ---- several saves ---- */

/* Each of them is a checkpoint of its own: none is shown for all of them. */
static int refuse_many(const struct ck_dir *dir, const struct ck_ms_saves *all,
		       struct ck_err *err)
{
	ck_auto_str struct ck_str list = { 0 };
	size_t nr = all->v.nr;

	for (size_t i = 0; i < nr && i < MAX_SHOWN; i++)
		ck_str_fmt(&list, "%s%s", i ? ", " : "", all->v.v[i]);
	if (list.failed)
		return ck_ms_no_memory(err);
	return ck_fail(err, ENODATA,
		       "%s: holds %zu saves (%s%s); choose one with -o file=%s",
		       dir->path, nr, list.v, nr > MAX_SHOWN ? " and more" : "",
		       all->v.v[nr - 1]);
}

static int check_one(const struct ck_dir *dir, const struct ck_ms_found *f,
		     struct ck_err *err)
{
	struct ck_ms_saves all;
	int ret;

	if (dir->only || dir->save || ck_opts_get(dir->opts, "file") ||
	    (f->mode != CK_MS_RANKS && f->mode != CK_MS_ONE) ||
	    f->file.nr < 2 ||
	    /* without it nothing can be shown, which is the thing to say */
	    (f->mode == CK_MS_RANKS && !f->strategy.nr &&
	     !ck_opts_get(dir->opts, "strategy")))
		return 0;
	ret = ck_ms_saves_find(&all, dir, "", err);
	if (!ret && all.v.nr)
		ret = refuse_many(dir, &all, err);
	ck_ms_saves_free(&all);
	return ret;
}

/* ---- loading ---- */

static int note_steps(struct ck_ms_set *s, const struct ck_ms_found *f,
		      struct ck_err *err)
{
	const struct ck_problem_in note = { .severity = CK_NOTE };
	const struct ck_problem_in odd = { .severity = CK_WARNING };
	int ret = 0;

	if (f->newer)
		ret = ck_builder_problem(
			s->b, &odd, err,
			"%s is newer than %s, but rank %u has none; -o file=%s shows what there is of it",
			f->newer, f->step, f->newer_lacks, f->newer);
	if (!ret && f->others)
		ret = ck_builder_problem(
			s->b, &note, err,
			"%s is shown%s; there %s %s too (-o file=NAME shows one)",
			f->step,
			ck_opts_get(s->dir->opts, "file") ? "" : ", the newest",
			f->nr_others > 1 ? "are" : "is", f->others);
	return ret;
}

static int load_found(struct ck_ms_set *s, struct ck_ms_found *f,
		      struct ck_err *err)
{
	int ret = ck_ms_choose(f, s->dir, err);

	s->compares = f->mode == CK_MS_RANKS;
	if (!ret && f->mode == CK_MS_RANKS)
		ret = add_strategies(s, f, err);
	if (!ret && f->mode == CK_MS_RANKS)
		ret = check_world(s, f, err);
	if (!ret)
		ret = note_steps(s, f, err);
	for (size_t i = 0; i < f->file.nr && !ret; i++)
		if (f->file.v[i].chosen)
			ret = ck_ms_read_file(s, f->file.v[i].name,
					      f->file.v[i].rank, err);
	return ret ? ret : ck_ms_merge(s, err);
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	struct ck_ms_set s = { .dir = dir, .b = b };
	struct ck_ms_found f;
	int ret = ck_ms_find(&f, dir, err);

	if (!ret && f.mode == CK_MS_NOTHING)
		ret = ck_fail(
			err, EINVAL,
			"%s: expected a .ckpt file of MindSpore, folders of ranks that hold some, or param_name_map.json",
			dir->path);
	if (!ret)
		ret = ck_ms_twice(&f, dir, err);
	if (!ret)
		ret = check_one(dir, &f, err);
	if (!ret)
		ret = f.mode == CK_MS_UNIFIED ?
			      ck_ms_unified_load(dir, b, err) :
			      load_found(&s, &f, err);
	ck_ms_found_free(&f);
	ck_ms_set_free(&s);
	return ret;
}

const struct ck_format ck_format_mindspore = {
	.name = "mindspore",
	.summary = "MindSpore's .ckpt files, folders of ranks with a strategy "
		   "file, unified safetensors",
	.covers = "hf safetensors",
	.compares = true,
	.probe = probe,
	.load = load,
};
