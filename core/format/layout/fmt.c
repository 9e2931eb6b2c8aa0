/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmt.c - shards whose sharding a person wrote down
 *
 *   unshard-layout.json      beside the shards, or given by -o layout=FILE
 *
 * It is the user's own word, so it wins over whatever else is there.
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/format/format.h"
#include "core/format/layout/load.h"
#include "core/layout/write.h"

#include <errno.h>
#include <string.h>

/* The last file that -o layout= names, read when it was given; or NULL. */
static const char *given(const struct ck_dir *dir, size_t *len)
{
	const char *bytes = NULL;
	size_t n = 0;

	while (ck_opts_nth(dir->opts, "layout", n))
		bytes = ck_opts_bytes(dir->opts, "layout", n++, len);
	return bytes;
}

/* One that is for new checkpoints only says nothing of those that are there. */
static const char *name_given(const struct ck_dir *dir)
{
	size_t len = 0;
	const char *bytes = given(dir, &len);

	if (bytes && ck_layout_out_only(bytes, len))
		return NULL;
	return ck_opts_get(dir->opts, "layout");
}

/* Whether the file is that of a format which has one of the same name. */
static int is_others(const struct ck_dir *dir, bool *yes, struct ck_err *err)
{
	int ret = 0;

	*yes = false;
	for (size_t i = 0; ck_formats[i] && !ret && !*yes; i++)
		if (ck_formats[i]->is_layout)
			ret = ck_formats[i]->is_layout(dir, yes, err);
	return ret;
}

/*
 * An empty one is none: "unshard layout show X >X/unshard-layout.json" finds
 * the one that the shell just made.
 */
static int probe(const struct ck_dir *dir, struct ck_err *err)
{
	ck_auto_source struct ck_source *s = NULL;
	bool other;
	int ret;

	if (name_given(dir))
		return CK_MATCH_SAID;
	if (dir->only && strcmp(dir->only, CK_LAYOUT_FILE) != 0)
		return CK_MATCH_NONE;
	ret = ck_dir_open(dir, CK_LAYOUT_FILE, &s, NULL);
	if (ret == -ENOENT || (!ret && !s->st.st_size))
		return CK_MATCH_NONE;
	ret = is_others(dir, &other, err);
	return ret ? ret : other ? CK_MATCH_NONE : CK_MATCH_USER;
}

static int parse(struct ck_layout_load *ld, struct ck_err *err)
{
	const char *name = name_given(ld->dir);
	ck_auto_free char *own = NULL;
	size_t len = 0;
	const char *bytes = name ? given(ld->dir, &len) : NULL;
	int ret;

	if (!name && ld->dir->only)
		return ck_fail(err, EINVAL,
			       "%s: is a layout: give the directory that it "
			       "lies in, or that and -o layout=FILE",
			       ld->dir->path);
	if (!name)
		name = CK_LAYOUT_FILE;
	if (bytes)
		return ck_layout_doc_parse(&ld->doc, name, bytes, len, err);
	/* no file outside: the name may mean something in the checkpoint */
	ret = ck_dir_slurp(ld->dir, name, CK_LAYOUT_MAX_BYTES, &own, &len, err);
	return ret ? ret : ck_layout_doc_parse(&ld->doc, name, own, len, err);
}

static int load_all(struct ck_layout_load *ld, struct ck_err *err)
{
	int ret = parse(ld, err);

	if (!ret)
		ret = ck_layout_find_files(ld, err);
	if (!ret)
		ret = ck_layout_read_keys(ld, err);
	if (!ret)
		ret = ck_layout_find_lost(ld, err);
	for (size_t i = 0; i < ld->tensors.nr && !ret; i++)
		ret = ck_layout_check(ld, &ld->tensors.v[i], err);
	return ret ? ret : ck_layout_unused_rules(ld, err);
}

static int load(const struct ck_dir *dir, struct ck_builder *b,
		struct ck_err *err)
{
	struct ck_layout_load ld = { .dir = dir, .b = b };
	int ret;

	ld.index.doc = &ld.doc;
	ret = load_all(&ld, err);
	free(ld.files.v);
	free(ld.tensors.v);
	free(ld.claim.v);
	free(ld.lost.v);
	ck_strmap_free(&ld.paths);
	ck_strmap_free(&ld.names);
	ck_strmap_free(&ld.claims);
	ck_layout_index_free(&ld.index);
	ck_arena_free(&ld.mem);
	ck_layout_doc_free(&ld.doc);
	return ret;
}

static const struct ck_format_sign signs[] = {
	{ CK_LAYOUT_FILE, CK_SIGN_STRONG },
	{ NULL, 0 },
};

const struct ck_format ck_format_layout = {
	.name = "layout",
	.summary = "shards that an unshard-layout.json describes",
	.asked_by = "layout",
	.reports_aside = true,
	.ranks_file = "unshard-layout.json",
	.indexed = true,
	.signs = signs,
	.apart = true,
	.probe = probe,
	.load = load,
};
