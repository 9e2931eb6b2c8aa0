/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt_torch.c - files by torch.save (.pt .pth .bin .ckpt), of three kinds
 *
 *   one file                          a state dict, or anything with tensors
 *   pytorch_model.bin.index.json      which file has which tensor (transformers)
 *   ...rank0... ...rank1...           DTensors or ShardedTensors of every rank
 */
#include "core/base/auto.h"
#include "core/base/limits.h"
#include "core/format/format.h"
#include "core/format/torch_file.h"
#include "core/format/torch_set.h"

#include <errno.h>
#include <string.h>

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	struct ck_torch_set set = { 0 };
	int match = CK_MATCH_NONE, ret;

	ret = ck_torch_set_find(&set, dir, err);
	if (!ret && set.nr)
		match = set.indexed ? CK_MATCH_INDEX : CK_MATCH_FILE;
	ck_torch_set_free(&set);
	return ret ? ret : match;
}

static bool is_in(const struct ck_torch_set *set, const char *name)
{
	for (size_t i = 0; i < set->nr; i++)
		if (!strcmp(set->name[i], name))
			return true;
	return false;
}

/* Says which files of the folder are not read. */
static int note_aside(const struct ck_dir *dir, const struct ck_torch_set *set,
		      struct ck_builder *b, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = dir->only ? 0 : ck_dir_list(dir, "", &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++) {
		const struct ck_problem_in note = { .severity = CK_NOTE,
						    .file = l.v[i].name };

		if (!l.v[i].is_dir && ck_torch_set_is_name(l.v[i].name) &&
		    !is_in(set, l.v[i].name))
			ret = ck_builder_problem(
				b, &note, err,
				"left aside: it does not belong to the others");
	}
	return ret;
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	struct ck_torch_load ld = { .dir = dir, .b = b };
	struct ck_torch_set set = { 0 };
	int ret = ck_torch_set_find(&set, dir, err);

	if (!ret && !set.nr)
		ret = ck_fail(
			err, EINVAL,
			"%s: expected one torch.save file, a set with an index, or one file a rank",
			dir->path);
	ld.ranks = set.ranks;
	ld.several = set.nr > 1;
	for (size_t i = 0; i < set.nr && !ret; i++)
		ret = ck_torch_file_load(&ld, set.name[i], err);
	if (!ret)
		ret = note_aside(dir, &set, b, err);
	ck_torch_load_free(&ld);
	ck_torch_set_free(&set);
	return ret;
}

const struct ck_format ck_format_torch = {
	.name = "torch",
	.summary = "torch.save files: one, an indexed set, or one a rank",
	.probe = probe,
	.load = load,
};
