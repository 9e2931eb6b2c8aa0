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

static const char *file_by_index(const struct ck_hf_set *s,
				 const struct ck_asm_tensor *t)
{
	return json_string_value(
		json_object_getn(s->files.weight_map, t->name, t->len));
}

static int add_pieces(struct ck_hf_set *s, uint32_t file, struct ck_err *err)
{
	const struct ck_st_file *f = &s->st[file];

	for (size_t k = 0; k < f->tensors.nr; k++) {
		const struct ck_st_entry *e = &f->tensors.v[k];
		struct ck_asm_tensor *t =
			ck_asm_tensor(&s->a, 0, e->name, e->name_len);
		struct ck_asm_piece *p =
			t ? ck_asm_piece(&s->a, t, file) : NULL;

		if (!p)
			return ck_no_memory(err);
		p->user = k;
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
	uint32_t src, file = ck_asm_file(&s->a, bad.file, CK_ASM_ANY);
	int ret;

	if (file != i)
		return ck_no_memory(err);
	ret = ck_dir_source(s->a.dir, s->a.b, bad.file, &src, &in, err);
	s->a.files.v[i].usable = in;
	if (ret || !in)
		return ret;
	ret = ck_st_file_read(f, bad.file, src, in, 0, &why);
	if (ret == -EINVAL) {
		s->a.files.v[i].usable = false;
		ck_st_file_free(f);
		f->name = bad.file;
		return ck_builder_problem(s->a.b, &bad, err, "%s", why.msg);
	}
	if (ret) {
		if (err)
			*err = why;
		return ret;
	}
	ret = add_pieces(s, i, err);
	return ret ? ret : ck_st_file_say_faults(f, s->a.b, err);
}

int ck_hf_set_read(struct ck_hf_set *s, const struct ck_dir *dir,
		   struct ck_builder *b, struct ck_err *err)
{
	static const struct ck_asm_reader plain;
	int ret;

	*s = (struct ck_hf_set){ .a = { .dir = dir, .b = b, .how = &plain } };
	ret = ck_st_folder_list(&s->files, dir, err);
	if (!ret && s->files.mode == CK_ST_NONE)
		ret = ck_fail(err, EINVAL, "%s: expected .safetensors files",
			      dir->path);
	if (!ret)
		ret = ck_st_folder_choose(&s->files, dir, err);
	if (ret)
		return ret;
	s->st = calloc(s->files.nr + 1, sizeof(*s->st));
	if (!s->st)
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
	ck_asm_free(&s->a);
	ck_st_folder_free(&s->files);
}

/* Without an index nothing says which of two is meant. */
static int refuse_twice(const struct ck_hf_set *s,
			const struct ck_asm_tensor *t,
			const struct ck_asm_piece *one, struct ck_err *err)
{
	const struct ck_asm_piece *p;

	ck_asm_each_piece(p, &s->a, t)
	{
		if (p->file != one->file)
			return ck_fail(err, EINVAL,
				       "%s: tensor %.*s "
				       "is in %s and in %s, and no "
				       "index says which one counts",
				       s->a.dir->path, (int)t->len, t->name,
				       ck_asm_who(&s->a, one),
				       ck_asm_who(&s->a, p));
	}
	return ck_fail(err, EINVAL, "%s: tensor %.*s is twice in %s",
		       s->a.dir->path, (int)t->len, t->name,
		       ck_asm_who(&s->a, one));
}

static int compare_index(struct ck_hf_set *s, const struct ck_asm_tensor *t,
			 const struct ck_asm_piece *one, unsigned nr,
			 struct ck_err *err)
{
	const char *file = ck_asm_who(&s->a, one), *says = file_by_index(s, t);

	if (!says)
		return ck_builder_report_tensor(s->a.b, CK_WARNING, t->name,
						t->len, s->files.index, err,
						"the index does "
						"not list it, %s has it",
						file);
	if (strcmp(says, file))
		return ck_builder_report_tensor(s->a.b, CK_WARNING, t->name,
						t->len, s->files.index, err,
						"the index says "
						"%s, it is in %s",
						says, file);
	s->a.files.v[one->file].user = 1;
	if (nr > 1)
		return ck_builder_report_tensor(s->a.b, CK_WARNING, t->name,
						t->len, s->files.index, err,
						"in %u files; the "
						"index says %s",
						nr, file);
	return 0;
}

/* A name of the index that no header has. */
static int report_absent(struct ck_hf_set *s, const char *name, size_t len,
			 const char *file, struct ck_err *err)
{
	uint32_t i = ck_strmap_get(&s->files.numbers, file, strlen(file));

	if (!s->a.files.v[i].usable)
		return ck_builder_refuse(
			s->a.b, 0, name, len, err,
			"%s is %s: nothing else tells shape and bytes", file,
			s->st[i].name ? "damaged" : "missing");
	if (!s->a.files.v[i]
		     .user) /* another file in its place, not a stale name */
		return ck_builder_refuse(s->a.b, 0, name, len, err,
					 "the index says %s, which holds "
					 "nothing of what the index says of it",
					 file);
	return ck_builder_refuse(s->a.b, 0, name, len, err,
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

		if (ck_strmap_get(&s->a.names, name, len) != CK_STRMAP_NONE)
			continue;
		ret = report_absent(s, name, len, json_string_value(file), err);
		if (ret)
			return ret;
	}
	return 0;
}

/* From the file that the index names; else from the first that has it. */
static int add_one(struct ck_hf_set *s, const struct ck_asm_tensor *t,
		   struct ck_err *err)
{
	const char *says = file_by_index(s, t);
	const struct ck_asm_piece *p, *one = NULL;
	unsigned nr = 0;
	int ret = 0;

	ck_asm_each_piece(p, &s->a, t)
	{
		nr++;
		if (!one || (says && !strcmp(says, ck_asm_who(&s->a, p))))
			one = p;
	}
	if (s->files.weight_map)
		ret = compare_index(s, t, one, nr, err);
	else if (nr > 1)
		ret = refuse_twice(s, t, one, err);
	return ret ? ret :
		     ck_st_file_add(&s->st[one->file], ck_hf_entry(s, one),
				    NULL, NULL, s->a.b, err);
}

int ck_hf_set_add_whole(struct ck_hf_set *s, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < s->a.tensors.nr && !ret; i++)
		ret = add_one(s, &s->a.tensors.v[i], err);
	return ret ? ret : add_absent(s, err);
}
