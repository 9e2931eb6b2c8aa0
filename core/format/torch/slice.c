/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slice.c - what the top of a file tells of its writer
 *
 *   args.tensor_model_parallel_size > 1, model      Megatron-LM's rank
 *   model: PREFIX.CUBE_EXTRA_STATE                  nnScaler's rank
 *   ds_version, ds_config                           DeepSpeed's rank
 *
 * Of safetensors files only nnScaler's have an object, in their __metadata__.
 */
#include "core/format/torch/slice.h"

#include "core/base/check.h"
#include "core/format/megatron/priv.h"
#include "core/format/nnscaler/priv.h"

#include <errno.h>

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

static int say_nnscaler(struct ck_builder *b, const struct ck_problem_in *in,
			struct ck_err *err)
{
	return ck_builder_problem(
		b, in, err,
		"one rank's of nnScaler: its tensors are that rank's slices; all ranks are read together where their names differ in a number only, such as 0.ckpt, 1.ckpt and so on");
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
		return say_nnscaler(b, &in, err);
	if (!is_deepspeed(p))
		return 0;
	in.severity = CK_WARNING; /* one of one rank may have all of a model */
	return ck_builder_problem(
		b, &in, err,
		"one rank's of DeepSpeed: its tensors may be that rank's slices; all ranks are read together under the names that DeepSpeed gave the files");
}

int ck_st_slice_say(const struct ck_dir *dir, struct ck_builder *b,
		    const char *file, const json_t *metadata,
		    struct ck_err *err)
{
	bool asked = dir->only && !dir->entry, ok;
	struct ck_problem_in in = { .severity = asked ? CK_WARNING : CK_ERROR,
				    .file = file };
	ck_auto_nn_file struct ck_nn_file f = { 0 };
	struct ck_err why;
	int ret;

	if (!json_object_get(metadata, "obj") ||
	    !json_object_get(metadata, "nnscaler"))
		return 0;
	ret = ck_nn_file_open(&f, dir, NULL, file, &ok, &why, err);
	return ret == -ENOMEM		      ? ret :
	       !ret && ok && is_nnscaler(f.p) ? say_nnscaler(b, &in, err) :
						0;
}
