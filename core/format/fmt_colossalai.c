/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt_colossalai.c - ColossalAI's distributed model checkpoints
 *
 *   pytorch_model-meta-dist-00000[.index].json   boxes, one file a rank
 *   model[.PREFIX]-dist-00000-shard-00000.safetensors, pytorch_model-....bin
 *
 * Its ordinary checkpoints are safetensors and torch.save files with an index,
 * which those readers read.
 */
#include "core/format/ca_set.h"
#include "core/format/format.h"

#include <errno.h>

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = dir->only ? 0 : ck_dir_list(dir, "", &l, err);

	for (size_t i = 0; !ret && i < l.nr; i++)
		if (!l.v[i].is_dir && ck_ca_is_meta(l.v[i].name))
			return CK_MATCH_INDEX;
	return ret ? ret : CK_MATCH_NONE;
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	struct ck_ca_set s = { .dir = dir, .b = b };
	int ret = ck_dir_list(dir, "", &l, err);

	if (!ret)
		ret = ck_ca_read_meta(&s, &l, err);
	if (!ret && !s.tensors.nr)
		ret = ck_fail(err, EINVAL,
			      "%s: no record in its "
			      "pytorch_model-meta-dist-*.json",
			      dir->path);
	if (!ret)
		ret = ck_ca_read_files(&s, &l, err);
	if (!ret)
		ret = ck_ca_join(&s, err);
	ck_ca_set_free(&s);
	return ret;
}

const struct ck_format ck_format_colossalai = {
	.name = "colossalai",
	.summary = "ColossalAI's distributed model files, with metadata a rank",
	.probe = probe,
	.load = load,
};
