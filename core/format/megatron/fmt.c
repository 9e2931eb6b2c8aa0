/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - one iteration of Megatron-LM's --ckpt-format torch
 *
 *   mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt   args, weights, states; or
 *   mp_rank_TT[_PPP][_EEE]/model_rng.pt         without states
 *   mp_rank_TT[_PPP][_EEE]/distrib_optim.pt     the distributed optimizer's; or
 *   mp_rank_TT[_PPP]_DDD/optim.pt               each replica's part of it
 *
 * Every file is read twice: for the degrees and layers of all, then for its
 * parts; one is open at a time.
 */
#include "core/base/auto.h"
#include "core/format/megatron/megatron.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULES (UINT64_C(1) << 20) /* bytes of a file of rules */

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	ck_auto_arena struct ck_arena mem = { 0 };
	unsigned at[3], nr;
	int ret;

	if (dir->only)
		return CK_MATCH_NONE;
	ret = ck_dir_list(dir, "", &l, err);
	if (ret)
		return ret;
	for (size_t i = 0; i < l.nr; i++) {
		const char *name;

		if (!l.v[i].is_dir ||
		    !ck_megatron_is_rank(l.v[i].name, at, &nr))
			continue;
		name = ck_megatron_file_of(&mem, dir, l.v[i].name);
		if (!name)
			return ck_no_memory(err);
		if (ck_dir_has(dir, name))
			return CK_MATCH_INDEX;
	}
	return CK_MATCH_NONE;
}

static int read_rules(struct megatron_load *ld, struct ck_err *err)
{
	const char *name = ck_opts_use(ld->dir->opts, "rules"), *bytes;
	const char *own = ck_tp_builtin("megatron");
	size_t len;
	int ret = 0;

	ld->rules_name = name ? name : "the built-in rules";
	if (!name)
		return ck_tp_rules_parse(&ld->rules, ld->rules_name, own,
					 strlen(own), err);
	for (size_t i = 0;
	     !ret && (name = ck_opts_nth(ld->dir->opts, "rules", i)); i++) {
		ret = ck_dir_option(ld->dir, "rules", i, MAX_RULES, &ld->mem,
				    &bytes, &len, err);
		if (!ret)
			ret = ck_tp_rules_parse(&ld->rules, name, bytes, len,
						err);
	}
	return ret;
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	struct megatron_load ld = { .dir = dir, .b = b };
	int ret = read_rules(&ld, err);

	if (!ret)
		ret = ck_megatron_ranks_read(&ld, err);
	if (!ret)
		ret = ck_megatron_offsets(&ld, err);
	for (size_t i = 0; i < ld.ranks.nr && !ret; i++)
		if (ld.ranks.v[i].usable)
			ret = ck_megatron_file_read(&ld, &ld.ranks.v[i], false,
						    err);
	if (!ret)
		ret = ck_megatron_report_gaps(&ld, err);
	if (!ret)
		ret = ck_megatron_optim(&ld, err);
	free(ld.ranks.v);
	free(ld.optims.v);
	ck_arena_free(&ld.mem);
	ck_tp_rules_free(&ld.rules);
	return ret;
}

static enum ck_slice is_slice(const struct ck_pickle *p)
{
	struct megatron_args a;
	ck_pv v;

	ck_megatron_args_read(&a, p, ck_pickle_root(p));
	return a.there && (a.tp > 1 || a.pp > 1 || a.ep > 1) &&
			       ck_megatron_chunk(p, 0, &v) ?
		       CK_SLICE_YES :
		       CK_SLICE_NO;
}

static const struct ck_format_sign signs[] = {
	{ "mp_rank_*", 0 },
	{ NULL, 0 },
};

const struct ck_format ck_format_megatron = {
	.name = "megatron",
	.summary = "Megatron-LM's mp_rank_XX folders (--ckpt-format torch)",
	.reads = "rules",
	.is_slice = is_slice,
	.slice =
		"one rank's of Megatron-LM: its tensors are that rank's slices; all ranks are read together from mp_rank_XX/" MEGATRON_FILE,
	.signs = signs,
	.marker = "latest_checkpointed_iteration.txt",
	.probe = probe,
	.load = load,
};
