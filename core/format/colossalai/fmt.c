/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - what ColossalAI writes and nobody else
 *
 *   pytorch_model-meta-dist-00000[.index].json   boxes, one file a rank, of
 *   model[.PREFIX]-dist-00000-shard-00000.safetensors, pytorch_model-....bin
 *   pytorch_optim.bin.index[.PREFIX].json        states of an optimizer
 *   optimizer.safetensors.index[.PREFIX].json    the same, asynchronous
 *   optimizer.bin, optimizer.safetensors         or in one file
 *
 * Its ordinary models are safetensors and torch.save files with an index,
 * which those readers read.
 */
#include "core/format/colossalai/colossalai.h"
#include "core/format/format.h"
#include "core/assemble/numbered.h"

#include <errno.h>
#include <string.h>

#define GROUP "pytorch_optim_group."

static bool has_meta(const struct ck_dir_list *l)
{
	uint64_t dist;

	for (size_t i = 0; i < l->nr; i++)
		if (!l->v[i].is_dir &&
		    ck_colossalai_is_meta(l->v[i].name, &dist))
			return true;
	return false;
}

static bool has_name(const void *ctx, const char *name)
{
	return ck_dir_siblings(ctx, name);
}

/* A file of states by itself, and of no other framework. */
static bool is_states(const struct ck_dir *dir)
{
	return ck_colossalai_optim_is_flat(dir, dir->only) ||
	       (ck_colossalai_part_is_optimizer(dir->only) &&
		ck_colossalai_parts_are_files(has_name, dir));
}

static bool has_optim_index(const struct ck_dir_list *l)
{
	for (size_t i = 0; i < l->nr; i++)
		for (const char *const *b = ck_colossalai_optim_indexes; *b;
		     b++)
			if (!l->v[i].is_dir && ck_index_is(l->v[i].name, *b))
				return true;
	return false;
}

/* pytorch_optim_group[.PREFIX].bin beside shards, whose index is lost. */
static const char *lost_index(const struct ck_dir_list *l)
{
	const char *group = NULL;
	struct ck_numbered n;
	bool shards = false;

	for (size_t i = 0; i < l->nr; i++) {
		const char *name = l->v[i].name;

		if (!strncmp(name, GROUP, strlen(GROUP)))
			group = name;
		shards |= (!strncmp(name, "pytorch_optim", 13) ||
			   !strncmp(name, "optimizer", 9)) &&
			  ck_numbered_is(name, &n);
	}
	return shards ? group : NULL;
}

/* Whether -o file= says that an index of others is read. */
static bool file_of_others(const struct ck_dir *dir)
{
	const char *want = ck_opts_get(dir->opts, "file");

	for (const char *const *b = ck_colossalai_optim_indexes; want && *b;
	     b++)
		if (ck_index_is(want, *b))
			return false;
	return want;
}

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret;

	if (dir->only)
		return is_states(dir) ? CK_MATCH_OWN : CK_MATCH_NONE;
	ret = ck_dir_list(dir, "", &l, err);
	if (ret)
		return ret;
	if (has_meta(&l))
		return CK_MATCH_INDEX;
	if ((has_optim_index(&l) || lost_index(&l)) && !file_of_others(dir))
		return CK_MATCH_INDEX;
	return ck_colossalai_parts_are_files(has_name, dir) ? CK_MATCH_INDEX :
							      CK_MATCH_NONE;
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	const char *index = NULL;
	int ret;

	if (dir->only)
		return ck_colossalai_optim_load_one(dir, dir->only, b, err);
	ret = ck_dir_list(dir, "", &l, err);
	if (ret || has_meta(&l))
		return ret ? ret : ck_colossalai_dist_load(dir, &l, b, err);
	ret = ck_index_choose(dir, &l, ck_colossalai_optim_indexes, &index,
			      err);
	if (ret || index)
		return ret ? ret : ck_colossalai_optim_load(dir, index, b, err);
	if (lost_index(&l))
		return ck_fail(err, EINVAL,
			       "%s: no index (pytorch_optim.bin.index.json, "
			       "optimizer.safetensors.index.json) says which "
			       "shards of the optimizer of %s there were",
			       dir->path, lost_index(&l));
	if (!ck_colossalai_parts_are_files(has_name, dir))
		return ck_fail(
			err, EINVAL,
			"%s: expected pytorch_model-meta-dist-*.json, or "
			"an index of an optimizer; an optimizer in one "
			"file is given as that file",
			dir->path);
	/* no checkpoint, but a folder of some: who mounts shows each */
	return ck_fail(err, ENODATA,
		       "%s: a model and its optimizer, each a checkpoint of "
		       "its own: give one of them",
		       dir->path);
}

/* ENODATA: each part can be read by itself, as an entry of a directory. */
static int check_one(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	unsigned seen = 0;
	int ret = ck_dir_list(dir, "", &l, err);

	for (size_t i = 0; !ret && i < l.nr; i++)
		seen |= ck_colossalai_parts.seen(l.v[i].name);
	if (ret || seen != ck_colossalai_parts.all)
		return ret;
	return ck_fail(err, ENODATA,
		       "%s: a model and an optimizer in one folder: -o "
		       "format=torch or hf, and -o format=colossalai, choose",
		       dir->path);
}

static bool is_piece(const char *name)
{
	uint64_t dist;

	return ck_colossalai_is_weights(name, &dist);
}

static const struct ck_option options[] = {
	{ .name = "fused",
	  .type = CK_OPTION_STRING,
	  .value = "PARTS",
	  .fallback = "such weights are refused",
	  .open = true,
	  .help = "query, key and value in one weight of ColossalAI's: 3 (of "
		  "equal size), 64+16+16 (rows), or no",
	  .place = 9 },
	{ .name = NULL },
};

const struct ck_format ck_format_colossalai = {
	.name = "colossalai",
	.summary = "ColossalAI's distributed model files, and optimizer states",
	.options = options,
	.reads = "file",
	.names_file = true,
	.check_one = check_one,
	.parts = &ck_colossalai_parts,
	.is_piece = is_piece,
	.unfinished = "tmp_index_files",
	.covers = "hf safetensors torch",
	.probe = probe,
	.load = load,
};
