/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - a toy: one tensor a file, for tests/lint/toy-format.sh
 *
 *   NAME.toy     "TOY1", then bytes: the tensor NAME
 */
#include "core/base/auto.h"
#include "core/base/suffix.h"
#include "core/container/container.h"
#include "core/format/format.h"

#include <errno.h>
#include <string.h>

#define SUFFIX ".toy"
#define MAGIC "TOY1"
#define HEAD 4

static bool is_toy(const struct ck_dir *dir, const char *name)
{
	ck_auto_source struct ck_source *s = NULL;
	char head[HEAD];

	return ck_has_suffix(name, SUFFIX) &&
	       !ck_dir_open(dir, name, &s, NULL) && s->st.st_size >= HEAD &&
	       !ck_source_read(s, head, HEAD, 0, NULL) &&
	       !memcmp(head, MAGIC, HEAD);
}

static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = dir->only ? 0 : ck_dir_list(dir, "", &l, err);

	if (ret)
		return ret;
	if (dir->only && is_toy(dir, dir->only))
		return CK_MATCH_FILE;
	for (size_t i = 0; i < l.nr; i++)
		if (!l.v[i].is_dir && is_toy(dir, l.v[i].name))
			return CK_MATCH_FILE;
	return CK_MATCH_NONE;
}

static int add(const struct ck_dir *dir, const char *file, struct ck_builder *b,
	       struct ck_err *err)
{
	const char *name = ck_opts_use(dir->opts, "toy-name");
	ck_auto_source struct ck_source *s = NULL;
	struct ck_part part = { .dtype = CK_DT_U8, .rank = 1, .off = HEAD };
	uint64_t size;
	int ret = ck_dir_source(dir, b, file, &part.src, &s, err);

	if (ret || !s)
		return ret;
	if (s->st.st_size < HEAD)
		return ck_fail(err, EINVAL, "%s: expected " MAGIC, file);
	size = (uint64_t)s->st.st_size - HEAD;
	part.shape = &size;
	part.name = name ? name : file;
	part.name_len = strlen(part.name) - (name ? 0 : strlen(SUFFIX));
	return ck_builder_add(b, &part, err);
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = dir->only ? add(dir, dir->only, b, err) :
			      ck_dir_list(dir, "", &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++)
		if (!l.v[i].is_dir && is_toy(dir, l.v[i].name))
			ret = add(dir, l.v[i].name, b, err);
	return ret;
}

static const struct ck_option options[] = {
	{ .name = "toy-name",
	  .type = CK_OPTION_STRING,
	  .value = "NAME",
	  .fallback = "the file's name",
	  .open = true,
	  .help = "what the toy tensor is called" },
	{ .name = NULL },
};

static const struct ck_format_sign signs[] = {
	{ "*" SUFFIX, CK_SIGN_STRONG },
	{ NULL, 0 },
};

const struct ck_format ck_format_toy = {
	.name = "toy",
	.summary = "toys, a tensor a file",
	.options = options,
	.signs = signs,
	.probe = probe,
	.load = load,
};
