/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.c - reads the headers, and settles what the index and they disagree
 * about: the headers know what the files hold, so they decide
 */
#include "core/format/hf/set.h"

#include "core/base/auto.h"
#include "core/container/container.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Keeps the file that the index names; else the first that has it. */
static int hold(struct ck_hf_set *s, uint32_t file, uint32_t entry)
{
	const struct ck_st_entry *e = &s->st[file].tensors.v[entry];
	uint32_t at = ck_strmap_put(&s->names, e->name, e->name_len);
	struct ck_hf_held *h;
	const char *says;

	if (at == CK_STRMAP_NONE || !ck_vec_reserve(&s->held, 1))
		return -ENOMEM;
	h = &s->held.v[at];
	if (at == s->held.nr) {
		s->held.nr++;
		*h = (struct ck_hf_held){ file, entry, 1 };
		return 0;
	}
	h->nr++;
	says = json_string_value(
		json_object_getn(s->files.weight_map, e->name, e->name_len));
	if (says && !strcmp(says, s->files.name[file])) {
		h->file = file;
		h->entry = entry;
	}
	return 0;
}

static int read_one(struct ck_hf_set *s, uint32_t i, struct ck_err *err)
{
	ck_auto_source struct ck_source *in = NULL;
	struct ck_st_file *f = &s->st[i];
	const struct ck_problem_in bad = {
		.severity = CK_ERROR,
		.file = s->files.name[i],
	};
	struct ck_err why = { 0 };
	uint32_t src;
	int ret;

	ret = ck_dir_source(s->dir, s->b, s->files.name[i], &src, &in, err);
	s->unusable[i] = !in;
	if (ret || !in)
		return ret;
	ret = ck_st_file_read(f, s->files.name[i], src, in, 0, &why);
	if (ret == -EINVAL) {
		s->unusable[i] = true;
		ck_st_file_free(f);
		f->name = s->files.name[i];
		return ck_builder_problem(s->b, &bad, err, "%s", why.msg);
	}
	if (ret) {
		if (err)
			*err = why;
		return ret;
	}
	for (uint32_t k = 0; k < f->tensors.nr; k++)
		if (hold(s, i, k))
			return ck_no_memory(err);
	return ck_st_file_say_tail(f, s->b, err);
}

int ck_hf_set_read(struct ck_hf_set *s, const struct ck_dir *dir,
		   struct ck_builder *b, struct ck_err *err)
{
	int ret;

	*s = (struct ck_hf_set){ .dir = dir, .b = b };
	ret = ck_st_folder_list(&s->files, dir, err);
	if (!ret && s->files.mode == CK_ST_NONE)
		ret = ck_fail(err, EINVAL, "%s: expected .safetensors files",
			      dir->path);
	if (!ret)
		ret = ck_st_folder_choose(&s->files, dir, err);
	if (ret)
		return ret;
	s->st = calloc(s->files.nr + 1, sizeof(*s->st));
	s->unusable = calloc(s->files.nr + 1, sizeof(*s->unusable));
	s->own = calloc(s->files.nr + 1, sizeof(*s->own));
	if (!s->st || !s->unusable || !s->own)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < s->files.nr && !ret; i++)
		ret = read_one(s, i, err);
	return ret;
}

void ck_hf_set_free(struct ck_hf_set *s)
{
	for (size_t i = 0; s->st && i < s->files.nr; i++)
		ck_st_file_free(&s->st[i]);
	free(s->st);
	free(s->unusable);
	free(s->own);
	free(s->held.v);
	ck_strmap_free(&s->names);
	ck_st_folder_free(&s->files);
}

/* Without an index nothing says which of two is meant. */
static int refuse_twice(const struct ck_hf_set *s, uint32_t at,
			const struct ck_st_entry *e, struct ck_err *err)
{
	const struct ck_hf_held *h = &s->held.v[at];

	for (uint32_t i = h->file + 1; i < s->files.nr; i++)
		for (size_t k = 0; k < s->st[i].tensors.nr; k++) {
			const struct ck_st_entry *o = &s->st[i].tensors.v[k];

			if (o->name_len == e->name_len &&
			    !memcmp(o->name, e->name, e->name_len))
				return ck_fail(err, EINVAL,
					       "%s: tensor %.*s "
					       "is in %s and in %s, and no "
					       "index says which one counts",
					       s->dir->path, (int)e->name_len,
					       e->name, s->files.name[h->file],
					       s->files.name[i]);
		}
	return ck_fail(err, EINVAL, "%s: tensor %.*s is twice in %s",
		       s->dir->path, (int)e->name_len, e->name,
		       s->files.name[h->file]);
}

static int compare_index(struct ck_hf_set *s, const struct ck_hf_held *h,
			 const struct ck_st_entry *e, struct ck_err *err)
{
	const char *file = s->files.name[h->file];
	const char *says = json_string_value(
		json_object_getn(s->files.weight_map, e->name, e->name_len));
	const struct ck_problem_in odd = {
		.severity = CK_WARNING,
		.tensor = e->name,
		.tensor_len = e->name_len,
		.file = s->files.index,
	};

	if (!says)
		return ck_builder_problem(s->b, &odd, err,
					  "the index does "
					  "not list it, %s has it",
					  file);
	if (strcmp(says, file))
		return ck_builder_problem(s->b, &odd, err,
					  "the index says "
					  "%s, it is in %s",
					  says, file);
	s->own[h->file] = true;
	if (h->nr > 1)
		return ck_builder_problem(s->b, &odd, err,
					  "in %u files; the "
					  "index says %s",
					  h->nr, file);
	return 0;
}

/* A name of the index that no header has. */
static int report_absent(struct ck_hf_set *s, const char *name, size_t len,
			 const char *file, struct ck_err *err)
{
	uint32_t i = ck_strmap_get(&s->files.numbers, file, strlen(file));

	if (s->unusable[i])
		return ck_builder_refuse(
			s->b, 0, name, len, err,
			"%s is %s: nothing else tells shape and bytes", file,
			s->st[i].name ? "damaged" : "missing");
	if (!s->own[i]) /* another file in its place, not a stale name */
		return ck_builder_refuse(s->b, 0, name, len, err,
					 "the index says %s, which holds "
					 "nothing of what the index says of it",
					 file);
	return ck_builder_refuse(s->b, 0, name, len, err,
				 "the index says %s, which does not hold it",
				 file);
}

static int add_absent(struct ck_hf_set *s, struct ck_err *err)
{
	const char *name;
	json_t *file;
	int ret = 0;

	json_object_foreach((json_t *)s->files.weight_map, name, file)
	{
		size_t len = strlen(name);

		if (ck_strmap_get(&s->names, name, len) != CK_STRMAP_NONE)
			continue;
		ret = report_absent(s, name, len, json_string_value(file), err);
		if (ret)
			return ret;
	}
	return 0;
}

int ck_hf_set_add_whole(struct ck_hf_set *s, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < s->held.nr && !ret; i++) {
		const struct ck_hf_held *h = &s->held.v[i];
		const struct ck_st_file *f = &s->st[h->file];
		const struct ck_st_entry *e = &f->tensors.v[h->entry];

		if (s->files.weight_map)
			ret = compare_index(s, h, e, err);
		else if (h->nr > 1)
			ret = refuse_twice(s, i, e, err);
		if (!ret)
			ret = ck_st_file_add(f, e, NULL, NULL, s->b, err);
	}
	return ret ? ret : add_absent(s, err);
}
