/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - files by torch.save (.pt .pth .bin .ckpt), of three kinds
 *
 *   one file                          a state dict, or anything with tensors
 *   pytorch_model.bin.index.json      which file has which tensor; with a
 *                                     prefix, ...index.PREFIX.json (ColossalAI)
 *   ...rank0... ...rank1...           DTensors or ShardedTensors of every rank
 */
#include "core/base/auto.h"
#include "core/base/limits.h"
#include "core/format/format.h"
#include "core/format/slice.h"
#include "core/container/torch_file.h"
#include "core/container/torch_save.h"
#include "core/format/torch/set.h"

#include <errno.h>
#include <string.h>

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	struct ck_torch_set set = { 0 };
	int match = CK_MATCH_NONE, ret;

	ret = ck_torch_set_find(&set, dir, err);
	if (!ret && set.name.nr)
		match = set.indexed ? CK_MATCH_INDEX : CK_MATCH_FILE;
	ck_torch_set_free(&set);
	if (ret == -EINVAL) /* there is an index; what is wrong, load() says */
		return CK_MATCH_INDEX;
	return ret ? ret : match;
}

static bool is_in(const struct ck_torch_set *set, const char *name)
{
	for (size_t i = 0; i < set->name.nr; i++)
		if (!strcmp(set->name.v[i], name))
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

		if (!l.v[i].is_dir && ck_torch_save_is_name(l.v[i].name) &&
		    !is_in(set, l.v[i].name))
			ret = ck_builder_report_file(
				b, CK_NOTE, l.v[i].name, err,
				"left aside: it does not belong to the others");
	}
	if (!ret && set->ranks)
		ret = ck_torch_set_check_ranks(&l, b, err);
	return ret ? ret : ck_torch_set_note_others(set, &l, b, err);
}

struct indexed {
	struct ck_torch_load *ld;
	struct ck_index_map *index;
	uint32_t file;
};

/* An index is of the keys at the top of its files. */
static int pick(void *ctx, const struct ck_pickle *p,
		struct ck_torch_leaf *leaf, bool *take, struct ck_err *err)
{
	const struct indexed *x = ctx;
	int said;

	(void)p;
	if (!leaf->depth || leaf->path[0].index >= 0)
		return 0;
	said = ck_index_say(x->index, x->file, leaf->path[0].key,
			    leaf->path[0].key_len, err);
	*take = said != CK_INDEX_LEAVE; /* the same name twice is refused */
	return said < 0 ? said : 0;
}

static int load_one(void *ctx, uint32_t file, const char *name, bool *usable,
		    struct ck_err *err)
{
	struct indexed *x = ctx;
	int ret;

	x->file = file;
	ret = ck_torch_file_load(x->ld, name, err);
	*usable = x->ld->usable;
	return ret;
}

static int load_indexed(struct ck_torch_load *ld, struct ck_torch_set *set,
			struct ck_err *err)
{
	struct indexed x = { .ld = ld, .index = &set->index };
	int ret;

	ld->pick = pick;
	ld->ctx = &x;
	ret = ck_index_load(x.index, load_one, &x, err);
	return ret ? ret : ck_index_report(x.index, "tensor", ld->b, err);
}

static int load_set(struct ck_torch_load *ld, struct ck_torch_set *set,
		    struct ck_err *err)
{
	int ret = 0;

	ld->ranks = set->ranks;
	ld->several = set->name.nr > 1;
	if (set->indexed)
		return load_indexed(ld, set, err);
	for (size_t i = 0; i < set->name.nr && !ret; i++)
		ret = ck_torch_file_load(ld, set->name.v[i], err);
	return ret;
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	struct ck_torch_load ld = { .dir = dir,
				    .b = b,
				    .check = ck_slice_report };
	struct ck_torch_set set = { 0 };
	int ret = ck_torch_set_find(&set, dir, err);

	if (!ret && !set.name.nr)
		ret = ck_fail(
			err, EINVAL,
			"%s: expected one torch.save file, a set with an index, or one file a rank",
			dir->path);
	if (!ret)
		ret = ck_torch_set_check(&set, err);
	if (!ret)
		ret = load_set(&ld, &set, err);
	if (!ret)
		ret = note_aside(dir, &set, b, err);
	ck_torch_load_free(&ld);
	ck_torch_set_free(&set);
	return ret;
}

static const struct ck_format_sign signs[] = {
	{ "*.pt", CK_SIGN_WEIGHTS },
	{ "*.pth", CK_SIGN_WEIGHTS },
	{ "*.bin", CK_SIGN_WEIGHTS },
	{ "*.ckpt", CK_SIGN_WEIGHTS },
	/* accelerate's, of what a program registers */
	{ "custom_checkpoint_*.pkl", CK_SIGN_WEIGHTS },
	{ "*.bin.index.json", CK_SIGN_STRONG },
	{ "*.bin.index.*.json", CK_SIGN_STRONG },
	{ "model_world_size_*_rank_*.pt", CK_SIGN_STRONG },
	{ NULL, 0 },
};

const struct ck_format ck_format_torch = {
	.name = "torch",
	.summary = "torch.save files: one, an indexed set, or one a rank",
	.reads = "file",
	.names_file = true,
	.flat = true,
	.reports_aside = true,
	.ranks = CK_TELLS_BY_PIECES,
	.signs = signs,
	.probe = probe,
	.load = load,
};
