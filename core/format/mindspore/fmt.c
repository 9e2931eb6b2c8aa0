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
#include "core/format/mindspore/mindspore.h"
#include "core/format/mindspore/set.h"
#include "core/format/mindspore/unified.h"
#include "core/format/mindspore/world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

static int note_temporary(struct ck_ms_set *s, const struct mindspore_found *f,
			  struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_NOTE,
					 .file = f->temporary };
	char more[48] = "";

	if (f->nr_temporary > 1)
		snprintf(more, sizeof(more), " (and %zu more)",
			 f->nr_temporary - 1);
	return !f->nr_temporary ?
		       0 :
		       ck_builder_problem(
			       s->b, &p, err,
			       "left aside%s: a temporary file of a save that was interrupted, or goes on",
			       more);
}

static int load_found(struct ck_ms_set *s, struct mindspore_found *f,
		      struct ck_err *err)
{
	int ret = ck_mindspore_choose(f, s->dir, err);

	s->compares = f->mode == MINDSPORE_RANKS;
	if (!ret)
		ret = ck_ms_world(s, f, err);
	if (!ret)
		ret = ck_mindspore_report_saves(f, s->dir, s->b, err);
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
	struct mindspore_found f;
	int ret = ck_mindspore_find(&f, dir, err);

	if (!ret && f.mode == MINDSPORE_NOTHING)
		ret = ck_fail(
			err, EINVAL,
			"%s: expected a .ckpt file of MindSpore, folders of ranks that hold some, or param_name_map.json",
			dir->path);
	if (!ret)
		ret = ck_mindspore_check_found(&f, dir, err);
	if (!ret)
		ret = f.mode == MINDSPORE_UNIFIED ? load_unified(dir, b, err) :
						    load_found(&s, &f, err);
	ck_mindspore_found_free(&f);
	ck_ms_set_free(&s);
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
	.compares = true,
	.probe = probe,
	.load = load,
};
