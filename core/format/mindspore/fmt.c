/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - checkpoints of MindSpore, 1.0 to 2.10
 *
 *   one .ckpt file                        ckpt.c
 *   folders of ranks, a strategy beside   find.c, saves.c, doubt.c, merge.c
 *   param_name_map.json and its parts     unified.c
 *
 * Here: how many ranks a strategy is for, and which of them are there.
 */
#include "core/assemble/rank_set.h"
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/format/format.h"
#include "core/format/mindspore/mindspore.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_SHOWN 8

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	struct mindspore_found f;
	int ret = ck_mindspore_find(&f, dir, err);
	int match = CK_MATCH_NONE;

	/* plain safetensors are none of its own */
	if (f.asked && (f.has_ckpt || f.mode >= MINDSPORE_RANKS))
		match = CK_MATCH_USER;
	else if (f.mode == MINDSPORE_UNIFIED ||
		 (f.mode == MINDSPORE_RANKS && f.strategy.nr))
		match = CK_MATCH_INDEX;
	else if (f.mode == MINDSPORE_ONE && f.sums)
		match = CK_MATCH_OWN;
	else if (f.mode == MINDSPORE_RANKS || f.mode == MINDSPORE_MAYBE ||
		 f.has_ckpt)
		match = CK_MATCH_FILE;
	ck_mindspore_found_free(&f);
	return ret ? ret : match;
}

/* ---- strategies ---- */

static int add_strategy(struct mindspore_set *s, const char *name,
			struct ck_err *err)
{
	ck_auto_free char *bytes = NULL;
	size_t len;
	int ret = ck_dir_slurp(s->a.dir, name, MINDSPORE_MAX_STRATEGY, &bytes,
			       &len, err);

	return ret ? ret : ck_strategy_add(&s->strategy, name, bytes, len, err);
}

static int add_given(struct mindspore_set *s, struct ck_err *err)
{
	const char *name, *bytes;
	size_t len;
	int ret = 0;

	for (size_t i = 0;
	     !ret && (name = ck_opts_nth(s->a.dir->opts, "strategy", i)); i++) {
		ret = ck_dir_option(s->a.dir, "strategy", i,
				    MINDSPORE_MAX_STRATEGY, &s->a.mem, &bytes,
				    &len, err);
		if (!ret)
			ret = ck_strategy_add(&s->strategy, name, bytes, len,
					      err);
	}
	return ret;
}

static bool is_given(const struct mindspore_set *s)
{
	return ck_opts_get(s->a.dir->opts, "strategy");
}

static bool are_whole(const struct mindspore_set *s)
{
	return mindspore_integrated_is(s->a.dir, "yes");
}

/* As names have them; files of one folder are called so themselves. */
static int ask_for_strategy(const struct mindspore_set *s, struct ck_err *err)
{
	const struct mindspore_found *f = s->found;
	const char *first = f->file.v[0].name;
	const char *last = f->file.v[f->file.nr - 1].name;
	size_t nr = f->ranks.nr;

	return ck_fail(
		err, EINVAL,
		"%s: pieces of %zu rank%s, by their names (%.*s%s%.*s), and no strategy file beside them says how tensors were cut: give it with -o strategy=FILE; if each rank holds all of each tensor (data parallel), say -o integrated=yes; or mount one rank's file by itself",
		s->a.dir->path, nr, nr > 1 ? "s" : "",
		(int)strcspn(first, f->flat ? "" : "/"), first,
		nr > 1 ? " to " : "",
		nr > 1 ? (int)strcspn(last, f->flat ? "" : "/") : 0, last);
}

static int report_dud(struct mindspore_set *s, const char *name,
		      struct ck_err *err)
{
	return ck_builder_report_file(
		s->a.b, CK_WARNING, name, err,
		"it is called a strategy, and is none: empty or damaged; what it would say is not known");
}

static int add_strategies(struct mindspore_set *s, struct ck_err *err)
{
	const struct mindspore_found *f = s->found;
	int ret = 0;

	if (is_given(s))
		return add_given(s, err);
	for (size_t i = 0; i < f->strategy.nr && !ret; i++)
		ret = add_strategy(s, f->strategy.v[i], err);
	for (size_t i = 0; i < f->dud.nr && !ret; i++)
		ret = report_dud(s, f->dud.v[i], err);
	return ret || f->strategy.nr || are_whole(s) ? ret :
						       ask_for_strategy(s, err);
}

/* ---- which ranks there must be ---- */

/* Ranks 0..n-1, and n is a number of devices that a run may have. */
static bool is_smaller_world(const struct mindspore_found *f, uint64_t world)
{
	size_t n = f->ranks.nr;

	for (size_t i = 0; i < n; i++)
		if (f->ranks.v[i] != i)
			return false;
	return n < world && (n == 1 || n == 2 || n == 4 || n % 8 == 0);
}

static bool has_shapes(const struct ck_strategy *st)
{
	for (size_t i = 0; i < st->item.nr; i++)
		if (!st->item.v[i].l.has_shape && !st->item.v[i].why)
			return false;
	return true;
}

static int report_missing(struct mindspore_set *s, uint64_t world,
			  struct ck_err *err)
{
	const struct mindspore_found *f = s->found;
	ck_auto_rank_set struct ck_rank_set have = { 0 };
	ck_auto_str struct ck_str list = { 0 };

	for (size_t i = 0; i < f->file.nr; i++)
		if (f->file.v[i].chosen &&
		    !ck_rank_set_add(&have, f->file.v[i].rank))
			return ck_no_memory(err);
	ck_rank_set_sort(&have, NULL);
	if (!ck_rank_set_lack(&have, 0, world, "", 0, MAX_SHOWN, &list))
		return 0;
	if (list.failed)
		return ck_no_memory(err);
	s->missing = true;
	return ck_builder_report_file(s->a.b, CK_ERROR, NULL, err,
				      "the strategy is for %" PRIu64
				      " ranks; those without a file of %s: %s",
				      world, f->save->name, list.v);
}

static bool has_layouts(const struct ck_strategy *st, uint32_t stage)
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
static int check_stages(const struct mindspore_set *s, struct ck_err *err)
{
	const struct mindspore_found *f = s->found;
	uint64_t devices = s->strategy.devices;
	uint32_t seen = CK_STRATEGY_NONE;

	for (size_t i = 0; i < f->ranks.nr; i++) {
		uint32_t stage = (uint32_t)(f->ranks.v[i] / devices);

		if (stage != seen && !has_layouts(&s->strategy, stage))
			return ck_fail(
				err, EINVAL,
				"%s: no strategy file describes stage %u (ranks %" PRIu64
				" to %" PRIu64
				"), whose rank %u is there: give the files of all stages with -o strategy=FILE:FILE",
				s->a.dir->path, stage, stage * devices,
				(stage + 1) * devices - 1, f->ranks.v[i]);
		seen = stage;
	}
	return 0;
}

/* A merged file has all stages; others may be of the first ones alone. */
static bool is_merged(const struct ck_strategy *st)
{
	for (size_t i = 1; i < st->item.nr; i++)
		if (st->item.v[i].file == st->item.v[i - 1].file &&
		    st->item.v[i].l.stage != st->item.v[i - 1].l.stage)
			return true;
	return false;
}

static int note_stages(const struct mindspore_set *s, uint64_t world,
		       struct ck_err *err)
{
	if (is_merged(&s->strategy))
		return 0;
	return ck_builder_report_file(
		s->a.b, CK_NOTE, NULL, err,
		"no file says how many stages there were: ranks from %" PRIu64
		" on, without their strategy, would not be missed",
		world);
}

/* Numbers that no word calls ranks must be just those that there are. */
static int check_rank_numbers(const struct mindspore_set *s, uint64_t world,
			      struct ck_err *err)
{
	const struct mindspore_found *f = s->found;
	size_t nr = f->ranks.nr;
	const char *first = f->file.v[0].name;
	const char *last = f->file.v[f->file.nr - 1].name;

	if (!f->weak || (nr == world && f->ranks.v[nr - 1] == world - 1))
		return 0;
	return ck_fail(
		err, EINVAL,
		"%s: the strategy is for %" PRIu64 " ranks (0 to %" PRIu64
		"), and the numbers of %s to %s (%zu) are not these: where they are ranks, call folders rank_N",
		s->a.dir->path, world, world - 1, first, last, nr);
}

static int check_world(struct mindspore_set *s, struct ck_err *err)
{
	const struct mindspore_found *f = s->found;
	uint64_t devices = s->strategy.devices, world, have;
	uint32_t last = f->ranks.v[f->ranks.nr - 1];
	int ret;

	if (!devices)
		return ck_fail(
			err, EINVAL,
			"%s: no layout of the strategy can be used, so nothing tells how many ranks a stage has",
			s->a.dir->path);
	world = devices * s->strategy.nr_stages;
	have = (uint64_t)last + 1;
	ret = check_rank_numbers(s, world, err);
	if (ret)
		return ret;
	if (have > world)
		return ck_fail(
			err, EINVAL,
			"%s: rank %u is there, and the strategy files describe %" PRIu64
			" ranks (%u stages of %" PRIu64
			"): give the files of all stages with -o strategy=FILE:FILE",
			s->a.dir->path, last, world, s->strategy.nr_stages,
			devices);
	ret = check_stages(s, err);
	if (ret)
		return ret;
	s->smaller = is_smaller_world(f, world);
	if (s->smaller && !has_shapes(&s->strategy))
		return ck_mindspore_other_world(s, f->ranks.nr, NULL, err);
	if (world > UINT32_MAX)
		return ck_fail(err, EINVAL, "%s: %" PRIu64 " ranks",
			       s->a.dir->path, world);
	ret = report_missing(s, world, err);
	return ret ? ret : note_stages(s, world, err);
}

/* ---- one file, or several that are of no ranks ---- */

static uint64_t world_of(const struct mindspore_set *s)
{
	return s->strategy.devices * s->strategy.nr_stages;
}

static int check_single(const struct mindspore_set *s, struct ck_err *err)
{
	const struct mindspore_found *f = s->found;
	uint64_t world = world_of(s);

	if (world == 1 || are_whole(s))
		return 0;
	return ck_fail(
		err, EINVAL,
		"%s: -o strategy= is for %" PRIu64
		" ranks, and no name says which of them %s%s of: expected a folder for each (rank_0/, node0/, device0/, 0/), or files whose names differ in the rank only (net_rank_0.ckpt, net-0.ckpt)",
		s->a.dir->path, world, f->file.v[0].base,
		f->file.nr > 1 ? " and others are" : " is");
}

/* Who mounts one rank's folder by itself may not know that it is one. */
static int warn_single(struct mindspore_set *s, struct ck_err *err)
{
	const struct mindspore_found *f = s->found;
	struct ck_err why;
	int ret = add_strategies(s, &why);
	uint64_t world = ret ? 0 : world_of(s);

	ck_strategy_free(&s->strategy);
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	if (are_whole(s))
		return 0;
	if (ret)
		return ck_builder_report_file(
			s->a.b, CK_WARNING, NULL, err,
			"%s; for how many ranks it is, is not known: tensors may be one rank's pieces (-o integrated=yes: they are whole)",
			why.msg);
	if (world < 2)
		return 0;
	return ck_builder_report_file(
		s->a.b, CK_WARNING, f->strategy.v[0], err,
		"it is for %" PRIu64
		" ranks, of which no others are here: tensors may be one rank's pieces (-o integrated=yes: they are whole)",
		world);
}

static int read_strategies(struct mindspore_set *s, struct ck_err *err)
{
	const struct mindspore_found *f = s->found;
	int ret;

	if (f->mode == MINDSPORE_RANKS || f->strategy.nr || is_given(s))
		ck_opts_use(s->a.dir->opts, "integrated");
	ck_opts_use(s->a.dir->opts, "strategy");
	if (f->mode != MINDSPORE_RANKS && !is_given(s))
		return f->strategy.nr ? warn_single(s, err) : 0;
	ret = add_strategies(s, err);
	if (ret || !s->strategy.files.nr)
		return ret;
	return f->mode == MINDSPORE_RANKS ? check_world(s, err) :
					    check_single(s, err);
}

/* ---- loading ---- */

static int note_temporary(struct mindspore_set *s, struct ck_err *err)
{
	const struct mindspore_found *f = s->found;
	char more[48] = "";

	if (f->nr_temporary > 1)
		snprintf(more, sizeof(more), " (and %zu more)",
			 f->nr_temporary - 1);
	return !f->nr_temporary ?
		       0 :
		       ck_builder_report_file(
			       s->a.b, CK_NOTE, f->temporary, err,
			       "left aside%s: a temporary file of a save that was interrupted, or goes on",
			       more);
}

static int load_found(struct mindspore_set *s, struct mindspore_found *f,
		      struct ck_err *err)
{
	int ret = ck_mindspore_choose(f, err);

	s->compares = f->mode == MINDSPORE_RANKS;
	if (!ret)
		ret = read_strategies(s, err);
	if (!ret)
		ret = ck_mindspore_report_saves(f, s->a.b, err);
	if (!ret)
		ret = note_temporary(s, err);
	for (size_t i = 0; i < f->file.nr && !ret; i++)
		if (f->file.v[i].chosen)
			ret = ck_mindspore_read(s, &f->file.v[i], err);
	return ret ? ret : ck_mindspore_merge(s, err);
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	struct mindspore_set s;
	struct mindspore_found f;
	int ret = ck_mindspore_find(&f, dir, err);

	ck_mindspore_begin(&s, dir, &f, b);
	if (!ret && f.mode == MINDSPORE_NOTHING)
		ret = ck_fail(
			err, EINVAL,
			"%s: expected a .ckpt file of MindSpore, folders of ranks that hold some, or param_name_map.json",
			dir->path);
	if (!ret)
		ret = ck_mindspore_check_found(&f, err);
	if (!ret && f.mode != MINDSPORE_UNIFIED)
		ret = load_found(&s, &f, err);
	else if (!ret) /* -o strategy= is of no use, and must exist */
		ret = add_given(&s, err);
	if (!ret && f.mode == MINDSPORE_UNIFIED)
		ret = ck_mindspore_unified(dir, b, err);
	ck_mindspore_found_free(&f);
	ck_mindspore_end(&s);
	return ret;
}

static bool is_rank_dir(const char *name)
{
	uint32_t rank;

	return ck_mindspore_folder_rank(name, &rank);
}

static const struct ck_format_join join = {
	.option = "strategy",
	.whose = "MindSpore's",
};

static const char *aux_is(const struct ck_dir *dir, const char *name)
{
	return ck_mindspore_kind(dir, name, NULL) == MINDSPORE_STRATEGY ?
		       "a strategy file of MindSpore, without ranks beside "
		       "it" :
		       NULL;
}

static const struct ck_option options[] = {
	{ .name = "strategy",
	  .type = CK_OPTION_FILES,
	  .value = "FILE",
	  .fallback = "those beside the ranks, or in ../strategy",
	  .open = true,
	  .folder = true,
	  .beside = "../strategy",
	  .help = "MindSpore's strategy files, one or one a stage, or the "
		  "folder of them; FILE may lie outside of the checkpoint",
	  .place = 2 },
	{ .name = "integrated",
	  .type = CK_OPTION_CHOICE,
	  .value = "HOW",
	  .choices = "auto|yes|no",
	  .fallback = "auto",
	  .open = true,
	  .help = "whether MindSpore's rank files hold whole tensors (yes: "
		  "copies that must agree, also without a strategy) or "
		  "slices (no)",
	  .place = 7 },
	{ .name = "crc",
	  .type = CK_OPTION_CHOICE,
	  .value = "HOW",
	  .choices = "auto|check|ignore",
	  .fallback = "auto",
	  .open = true,
	  .help = "MindSpore's checksums: auto (up to 256 MiB of files), "
		  "check all, or ignore",
	  .place = 8 },
	{ .name = NULL },
};

static const struct ck_format_saves saves = {
	.find = ck_mindspore_saves_find,
	.each = ck_mindspore_save_each,
	.hides = ck_mindspore_save_hides,
};

static const struct ck_format_sign signs[] = {
	{ "rank_*", 0 },
	{ "*.ckpt", CK_SIGN_RANK },
	{ NULL, 0 },
};

const struct ck_format ck_format_mindspore = {
	.name = "mindspore",
	.summary = "MindSpore's .ckpt files, folders of ranks with a strategy "
		   "file, unified safetensors",
	.options = options,
	.reads = "file",
	.files = "MindSpore's files in each rank's folder",
	.join = &join,
	.aux_is = aux_is,
	.aux = "strategy",
	.covers = "hf safetensors",
	.ranks = CK_TELLS_NOTHING,
	.ranks_file = "strategy",
	.sums = true,
	.signs = signs,
	.is_rank_dir = is_rank_dir,
	.saves = &saves,
	.probe = probe,
	.load = load,
};
