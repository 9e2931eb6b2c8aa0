/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - checkpoints of MindSpore, 1.0 to 2.10
 *
 *   one .ckpt file                        ckpt.c
 *   folders of ranks, a strategy beside   find.c, world.c, merge.c
 *   param_name_map.json and its parts     unified.c
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/format/format.h"
#include "core/format/mindspore/find.h"
#include "core/format/mindspore/saves.h"
#include "core/format/mindspore/set.h"
#include "core/format/mindspore/unified.h"
#include "core/format/mindspore/world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_SHOWN 8

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	struct ck_ms_found f;
	int ret = ck_ms_find(&f, dir, err);
	int match = CK_MATCH_NONE;

	/* plain safetensors are none of its own */
	if (f.asked && (f.has_ckpt || f.mode >= CK_MS_RANKS))
		match = CK_MATCH_USER;
	else if (f.mode == CK_MS_UNIFIED ||
		 (f.mode == CK_MS_RANKS && f.strategy.nr))
		match = CK_MATCH_INDEX;
	else if (f.mode == CK_MS_ONE && f.sums)
		match = CK_MATCH_OWN;
	else if (f.mode == CK_MS_RANKS || f.mode == CK_MS_MAYBE || f.has_ckpt)
		match = CK_MATCH_FILE;
	ck_ms_found_free(&f);
	return ret ? ret : match;
}

/* ---- several saves ---- */

/* Each of them is a checkpoint of its own: none is shown for all of them. */
static int refuse_many(const struct ck_dir *dir, const struct ck_saves *all,
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
	struct ck_saves all;
	int ret;

	if (dir->only || dir->save || ck_opts_get(dir->opts, "file") ||
	    (f->mode != CK_MS_RANKS && f->mode != CK_MS_ONE) ||
	    f->file.nr < 2 || f->flat || f->weak ||
	    /* without it nothing can be shown, which is the thing to say */
	    (f->mode == CK_MS_RANKS && !f->strategy.nr && !f->asked))
		return 0;
	ret = ck_ms_saves.find(&all, dir, "", err);
	if (!ret && all.v.nr)
		ret = refuse_many(dir, &all, err);
	ck_saves_free(&all);
	return ret;
}

/* Of a file that a few ranks have nobody knows that the others should. */
static int say_partial(struct ck_ms_set *s, const struct ck_ms_found *f,
		       struct ck_err *err)
{
	const struct ck_problem_in p = {
		.severity =
			2 * f->nr_partial < f->ranks.nr ? CK_WARNING : CK_ERROR
	};

	if (!f->partial)
		return 0;
	return ck_builder_problem(
		s->b, &p, err,
		"rank %u has no %s, and %zu of %zu ranks have; %s is shown "
		"(-o file=%s shows what there is of it)",
		f->partial_lacks, f->partial, f->nr_partial, f->ranks.nr,
		f->step, f->partial);
}

/* ---- loading ---- */

static int note_steps(struct ck_ms_set *s, const struct ck_ms_found *f,
		      struct ck_err *err)
{
	bool chosen = ck_opts_get(s->dir->opts, "file");
	/* who chose none may miss what the others hold */
	const struct ck_problem_in note = { .severity = chosen ? CK_NOTE :
								 CK_WARNING };
	const struct ck_problem_in odd = { .severity = CK_WARNING };
	int ret = chosen ? 0 : say_partial(s, f, err);

	if (!ret && f->newer)
		ret = ck_builder_problem(
			s->b, &odd, err,
			"%s is newer than %s, but rank %u has none; -o file=%s shows what there is of it",
			f->newer, f->step, f->newer_lacks, f->newer);
	if (!ret && f->others)
		ret = ck_builder_problem(
			s->b, &note, err,
			"%s is shown%s; there %s %s too (-o file=NAME shows one)",
			f->step, chosen ? "" : ", the last by name",
			f->nr_others > 1 ? "are" : "is", f->others);
	return ret;
}

static int note_temporary(struct ck_ms_set *s, const struct ck_ms_found *f,
			  struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_NOTE, .file = f->tmp };
	char more[48] = "";

	if (f->nr_tmp > 1)
		snprintf(more, sizeof(more), " (and %zu more)", f->nr_tmp - 1);
	return !f->nr_tmp ?
		       0 :
		       ck_builder_problem(
			       s->b, &p, err,
			       "left aside%s: a temporary file of a save that was interrupted, or goes on",
			       more);
}

static int load_found(struct ck_ms_set *s, struct ck_ms_found *f,
		      struct ck_err *err)
{
	int ret = ck_ms_choose(f, s->dir, err);

	s->compares = f->mode == CK_MS_RANKS;
	if (!ret)
		ret = ck_ms_world(s, f, err);
	if (!ret)
		ret = note_steps(s, f, err);
	if (!ret)
		ret = note_temporary(s, f, err);
	for (size_t i = 0; i < f->file.nr && !ret; i++)
		if (f->file.v[i].chosen)
			ret = ck_ms_read_file(s, f->file.v[i].name,
					      f->file.v[i].rank, err);
	return ret ? ret : ck_ms_merge(s, err);
}

/* Its tensors are whole; -o strategy= is of no use, and must exist. */
static int load_unified(const struct ck_dir *dir, struct ck_builder *b,
			struct ck_err *err)
{
	int ret = ck_ms_check_given(dir, err);

	return ret ? ret : ck_ms_unified_load(dir, b, err);
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
	if (!ret && f.mode == CK_MS_UNIFIED)
		ret = load_unified(dir, b, err);
	else if (!ret)
		ret = f.mode == CK_MS_MAYBE ? ck_ms_maybe(&f, dir, err) :
					      load_found(&s, &f, err);
	ck_ms_found_free(&f);
	ck_ms_set_free(&s);
	return ret;
}

static bool is_rank_dir(const char *name)
{
	uint32_t rank;

	return ck_ms_folder_rank(name, &rank);
}

static const struct ck_format_join join = {
	.option = "strategy",
	.whose = "MindSpore's",
};

static const char *aux_is(const struct ck_dir *dir, const char *name)
{
	return ck_ms_kind(dir, name, NULL) == CK_MS_STRATEGY ?
		       "a strategy file of MindSpore, without ranks beside "
		       "it" :
		       NULL;
}

static const struct ck_option options[] = {
	{ .name = "strategy",
	  .type = CK_OPTION_FILES,
	  .value = "FILE",
	  .fallback = "those beside the ranks",
	  .open = true,
	  .folder = true,
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
	.join = &join,
	.aux_is = aux_is,
	.aux = "strategy",
	.covers = "hf safetensors",
	.ranks = CK_TELLS_NOTHING,
	.ranks_file = "strategy",
	.sums = true,
	.signs = signs,
	.is_rank_dir = is_rank_dir,
	.saves = &ck_ms_saves,
	.compares = true,
	.probe = probe,
	.load = load,
};
