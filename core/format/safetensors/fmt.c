/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - one .safetensors file, given as such or alone in a
 * folder.  Several are hf/fmt.c's.
 */
#include "core/base/suffix.h"
#include "core/base/auto.h"
#include "core/base/limits.h"
#include "core/container/container.h"
#include "core/format/format.h"
#include "core/assemble/st_folder.h"
#include "core/container/st_file.h"
#include "core/format/slice.h"
#include "core/layout/write.h"

#include <errno.h>
#include <string.h>

static void files_free(struct ck_st_folder *f)
{
	ck_st_folder_free(f);
}

/* A file by another name may be one too: a blob of a hub cache. */
static bool begins_as_header(struct ck_source *s)
{
	unsigned char head[9];
	uint64_t len;

	if (s->st.st_size < (off_t)sizeof(head) ||
	    ck_source_read(s, head, sizeof(head), 0, NULL))
		return false;
	return !ck_st_header_len(head, (uint64_t)s->st.st_size, &len, NULL) &&
	       strchr("{ \t\r\n", head[8]) && head[8];
}

static int probe_file(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	int ret;

	if (ck_has_suffix(dir->only, ".safetensors"))
		return CK_MATCH_INDEX;
	ret = ck_dir_open(dir, dir->only, &s, err);
	if (ret)
		return ret;
	return begins_as_header(s) ? CK_MATCH_FILE : CK_MATCH_NONE;
}

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	__attribute__((cleanup(files_free))) struct ck_st_folder f = { 0 };
	int ret;

	if (dir->only)
		return probe_file(dir, err);
	ret = ck_st_folder_list(&f, dir, err);
	if (ret)
		return ret;
	return f.mode == CK_ST_ONE ? CK_MATCH_FILE : CK_MATCH_NONE;
}

static int add_all(const struct ck_st_file *f, const struct ck_dir *dir,
		   struct ck_builder *b, struct ck_err *err)
{
	int ret = 0;

	if (f->moved || ck_st_is_shard(f->name, NULL))
		ret = ck_builder_report_file(
			b, CK_WARNING, f->name, err,
			"one file of a "
			"sharded save: its tensors are shown "
			"as they lie in it, not whole");
	if (!ret)
		ret = ck_slice_report_metadata(dir, b, f->name, f->h.metadata,
					       err);
	for (size_t i = 0; i < f->tensors.nr && !ret; i++)
		ret = ck_st_file_add(f, &f->tensors.v[i], NULL, NULL, b, err);
	if (!ret)
		ret = ck_st_file_say_faults(f, b, err);
	return ret ? ret : ck_st_file_add_metadata(f, "__metadata__", b, err);
}

static int load_named(const struct ck_dir *dir, const char *name,
		      struct ck_builder *b, struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	struct ck_st_file f = { 0 };
	uint32_t src;
	int ret;

	ret = ck_dir_source(dir, b, name, &src, &s, err);
	if (!ret && !s) /* there is nothing else: why it is lost */
		ret = ck_dir_open(dir, name, &s, err);
	if (ret)
		return ret;
	ret = ck_st_file_read(&f, name, src, s, 0, err);
	if (!ret)
		ret = add_all(&f, dir, b, err);
	ck_st_file_free(&f);
	return ret;
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	__attribute__((cleanup(files_free))) struct ck_st_folder f = { 0 };
	int ret;

	if (dir->only)
		return load_named(dir, dir->only, b, err);
	ret = ck_st_folder_list(&f, dir, err);
	if (ret)
		return ret;
	if (f.mode != CK_ST_ONE)
		return ck_fail(err, EINVAL,
			       "%s: expected exactly one "
			       ".safetensors file; -o format=hf is for "
			       "several",
			       dir->path);
	ret = ck_st_folder_choose(&f, dir, err);
	return ret ? ret : load_named(dir, f.name[0], b, err);
}

static const struct ck_format_sign signs[] = {
	{ "*.safetensors", CK_SIGN_WEIGHTS | CK_SIGN_STRONG },
	{ NULL, 0 },
};

static const struct ck_layout_form form = {
	.name = "safetensors",
	.path = "rank-{rank:05}.safetensors",
	.suffix = ".safetensors",
};

const struct ck_format ck_format_safetensors = {
	.name = "safetensors",
	.summary = "one safetensors file",
	.preferred = true,
	.flat = true,
	.ranks = CK_TELLS_NOTHING,
	.indexed = true,
	.signs = signs,
	.apart = true,
	.form = &form,
	.probe = probe,
	.load = load,
};
