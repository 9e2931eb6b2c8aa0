/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_slice.c - what the top of a torch.save file tells of its writer
 *
 *   args.tensor_model_parallel_size > 1, model      Megatron-LM's rank
 *   model: PREFIX.CUBE_EXTRA_STATE                  nnScaler's rank
 *   ds_version, ds_config                           DeepSpeed's rank
 */
#include "core/format/torch_slice.h"

#include "core/base/check.h"
#include "core/format/mg_priv.h"
#include "core/format/nn_priv.h"

static bool is_megatron(const struct ck_pickle *p)
{
	struct ck_mg_args a;
	ck_pv v;

	ck_mg_args_read(&a, p, ck_pickle_root(p));
	return a.there && (a.tp > 1 || a.pp > 1 || a.ep > 1) &&
	       ck_mg_chunk(p, 0, &v);
}

static bool is_nnscaler(const struct ck_pickle *p)
{
	static const char *const keys[] = { "model", "state_dict" };
	ck_pv root = ck_pickle_root(p), model, extra;
	struct ck_nn_identity id = { 0 };
	bool found = ck_nn_extra(p, root, &extra);

	for (size_t i = 0; i < CK_ARRAY_LEN(keys) && !found; i++)
		found = ck_pv_key(p, root, keys[i], &model) &&
			ck_nn_extra(p, model, &extra);
	if (found)
		ck_nn_config_read(p, extra, &id);
	return found && id.world != 1;
}

static bool is_deepspeed(const struct ck_pickle *p)
{
	ck_pv root = ck_pickle_root(p), v;

	return ck_pv_key(p, root, "ds_version", &v) &&
	       ck_pv_key(p, root, "ds_config", &v);
}

int ck_torch_slice_say(const struct ck_dir *dir, struct ck_builder *b,
		       const char *file, const struct ck_pickle *p,
		       struct ck_err *err)
{
	bool asked = dir->only && !dir->entry;
	struct ck_problem_in in = { .severity = asked ? CK_WARNING : CK_ERROR,
				    .file = file };

	if (is_megatron(p))
		return ck_builder_problem(
			b, &in, err,
			"one rank's of Megatron-LM: its tensors are that rank's slices; all ranks are read together from mp_rank_XX/" CK_MG_FILE);
	if (is_nnscaler(p))
		return ck_builder_problem(
			b, &in, err,
			"one rank's of nnScaler: its tensors are that rank's slices; all ranks are read together where they are called 0.ckpt, 1.ckpt and so on");
	if (!is_deepspeed(p))
		return 0;
	in.severity = CK_WARNING; /* one of one rank may have all of a model */
	return ck_builder_problem(
		b, &in, err,
		"one rank's of DeepSpeed: its tensors may be that rank's slices; all ranks are read together under the names that DeepSpeed gave the files");
}
