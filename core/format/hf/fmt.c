/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - a folder of several safetensors files
 *
 * What save_pretrained writes (with an index), what DCP's Hugging Face writer
 * makes (full, sharded, consolidated), and adapters beside their base.
 */
#include "core/base/auto.h"
#include "core/format/format.h"
#include "core/format/hf/set.h"

#include <errno.h>
#include <string.h>

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	struct ck_st_folder f = { 0 };
	int match = CK_MATCH_NONE;
	int ret;

	if (dir->only)
		return CK_MATCH_NONE;
	ret = ck_st_folder_list(&f, dir, err);
	if (f.mode == CK_ST_INDEXED)
		match = CK_MATCH_INDEX;
	else if (f.mode == CK_ST_UNION || f.mode == CK_ST_SHARDED)
		match = CK_MATCH_FILE;
	ck_st_folder_free(&f);
	return ret ? ret : match;
}

static int note_aside(struct ck_hf_set *s, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < s->files.nr_aside && !ret; i++) {
		const char *name = s->files.aside[i];

		if (s->files.index)
			ret = ck_builder_report_file(s->a.b, CK_NOTE, name, err,
						     "left aside: %s does not "
						     "name it",
						     s->files.index);
		else
			ret = ck_builder_report_file(
				s->a.b, CK_NOTE, name, err,
				"left aside: it is none of "
				"the shards beside it");
	}
	if (s->files.beside_sharded && !ret) {

		ret = ck_builder_report_file(s->a.b, CK_NOTE, "sharded", err,
					     "left aside: the "
					     "same tensors are beside it, "
					     "consolidated");
	}
	return ret;
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	struct ck_hf_set s;
	int ret;

	ret = ck_hf_set_read(&s, dir, b, err);
	if (!ret)
		ret = note_aside(&s, err);
	if (!ret)
		ret = s.files.mode == CK_ST_SHARDED ?
			      ck_hf_set_add_sharded(&s, err) :
			      ck_hf_set_add_whole(&s, err);
	ck_hf_set_free(&s);
	return ret;
}

static const struct ck_option options[] = {
	{ .name = "shards",
	  .type = CK_OPTION_STRING,
	  .value = "N",
	  .fallback = "as many as there are, where nothing says otherwise",
	  .open = true,
	  .help = "how many files PyTorch's HuggingFaceStorageWriter saved: no "
		  "file has the shapes of its sharded form",
	  .place = 6 },
	{ .name = NULL },
};

static const struct ck_format_sign signs[] = {
	{ "*.safetensors.index.json", CK_SIGN_STRONG },
	{ "*.safetensors.index.*.json", CK_SIGN_STRONG },
	{ NULL, 0 },
};

const struct ck_format ck_format_hf = {
	.name = "hf",
	.summary = "a folder of safetensors files, with an index or without",
	.options = options,
	.reads = "file",
	.names_file = true,
	.preferred = true,
	.flat = true,
	.ranks = CK_TELLS_NOTHING,
	.ranks_file = ".index.json",
	.indexed = true,
	.signs = signs,
	.inner = "sharded",
	.apart = true,
	.probe = probe,
	.load = load,
};
