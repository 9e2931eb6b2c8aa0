/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta.c - the records
 *
 *	{"metadata": {NAME: {"offsets": [4, 0], "lengths": [4, 8],
 *	                     "global_shape": [8, 8], "file": "...", "rank": 1}}}
 */
#include "core/format/colossalai/colossalai.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/suffix.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_blank(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!memchr(" \t\r\n", text[i], 4))
			return false;
	return true;
}

static bool leads_out(const char *path)
{
	return *path != '/' && !ck_dir_name_ok(path, strlen(path));
}

static int find_file(struct ck_asm *a, const char *meta, const char *path,
		     uint32_t *file, struct ck_err *err)
{
	/* unsharded saves record where it was on the saving machine */
	const char *name = ck_base_name(path);
	size_t before = a->files.nr;

	if (!ck_dir_name_ok(name, strlen(name)))
		return ck_fail(err, EINVAL, "%s: \"file\" is %.200s", meta,
			       path);
	*file = ck_colossalai_file(a, name);
	if (*file == CK_NONE)
		return ck_no_memory(err);
	if (a->files.nr == before || !leads_out(path))
		return 0;
	return ck_builder_report_file(
		a->b, CK_WARNING, meta, err,
		"\"file\" is %.200s, which leads out of the "
		"checkpoint: %s in it is read",
		path, name);
}

static bool dims(const json_t *record, const char *key, uint64_t *out,
		 unsigned *nr)
{
	return ck_json_dims(json_object_get(record, key), out, CK_MAX_RANK, nr);
}

static int take_record(struct ck_asm *a, const char *meta, const char *name,
		       size_t len, const json_t *record, struct ck_err *err)
{
	uint64_t v[3 * CK_MAX_RANK];
	const char *path = json_string_value(json_object_get(record, "file"));
	unsigned offs, lens, rank;
	struct ck_asm_tensor *t;
	struct ck_asm_piece *p;
	uint32_t file = 0;
	int ret;

	if (!path || !dims(record, "global_shape", v, &rank) ||
	    !dims(record, "offsets", v, &offs) || offs != rank ||
	    !dims(record, "lengths", v + rank, &lens) || lens != rank ||
	    !dims(record, "global_shape", v + 2 * rank, &rank))
		return ck_fail(err, EINVAL,
			       "%s: %.100s: expected file, and offsets, "
			       "lengths and global_shape of as many numbers",
			       meta, name);
	ret = find_file(a, meta, path, &file, err);
	if (ret)
		return ret;
	t = ck_asm_tensor(a, 0, name, len);
	p = t ? ck_asm_piece(a, t, file) : NULL;
	return p && !ck_asm_set_box(a, p, v, v + rank, v + 2 * rank, rank) ?
		       0 :
		       ck_no_memory(err);
}

static int take_all(struct ck_asm *a, const char *meta, json_t *j,
		    struct ck_err *err)
{
	json_t *all = json_object_get(j, "metadata"), *record;
	const char *name;
	size_t len;
	int ret = 0;

	if (!json_is_object(all))
		return ck_fail(err, EINVAL,
			       "%s: expected an object \"metadata\"", meta);
	json_object_keylen_foreach(all, name, len, record)
	{
		ret = take_record(a, meta, name, len, record, err);
		if (ret)
			return ret;
	}
	return 0;
}

static int read_one(struct ck_asm *a, const char *name, struct ck_err *err)
{
	ck_auto_free char *text = NULL;
	ck_auto_json json_t *j = NULL;
	size_t len, end;
	int ret = ck_dir_slurp(a->dir, name, CK_MAX_INDEX, &text, &len, err);

	if (ret)
		return ret;
	end = ck_json_end(text, len, 0); /* two writers may have raced */
	ret = ck_json_parse(&j, text, end, err);
	if (ret)
		return ck_wrap(err, ret, "%s", name);
	if (!is_blank(text + end, len - end)) {
		ret = ck_builder_report_file(
			a->b, CK_WARNING, name, err,
			"%zu bytes follow its end at byte "
			"%zu: two processes may have written "
			"it at once",
			len - end, end);
		if (ret)
			return ret;
	}
	return take_all(a, name, j, err);
}

int ck_colossalai_read_meta(struct ck_asm *a, const struct ck_dir_list *l,
			    struct ck_err *err)
{
	uint64_t dist;
	int ret = 0;

	for (size_t i = 0; !ret && i < l->nr; i++)
		if (!l->v[i].is_dir &&
		    ck_colossalai_is_meta(l->v[i].name, &dist))
			ret = read_one(a, l->v[i].name, err);
	return ret;
}
