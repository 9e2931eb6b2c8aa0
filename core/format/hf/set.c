/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.c - reads the headers, and settles what the index and they disagree
 * about: the headers know what the files hold, so they decide
 */
#include "core/format/hf/set.h"

#include "core/base/auto.h"
#include "core/container/container.h"

#include <errno.h>
#include <string.h>

static const char *file_by_index(const struct ck_hf_set *s,
				 const struct ck_asm_tensor *t)
{
	return json_string_value(
		json_object_getn(s->files.weight_map, t->name, t->len));
}

/* Pieces of a sharded save have boxes, of a shape that is known once all are. */
static int set_box(struct ck_hf_set *s, struct ck_asm_piece *p,
		   const struct ck_st_entry *e, struct ck_extent *x)
{
	uint64_t at[CK_MAX_RANK];

	if (x->fault)
		return 0;
	if (!ck_st_file_placed(s->st, e))
		x->fault = "no saved_offsets say where its box begins";
	else if (!ck_st_file_corner(s->st, e, at))
		x->fault = "its saved_offsets are not one number a dimension";
	return x->fault ? 0 :
			  ck_asm_set_box(&s->a, p, at, x->shape, x->shape,
					 x->rank);
}

static int add_piece(struct ck_asm *a, uint32_t file, const struct ck_found *f,
		     struct ck_err *err)
{
	struct ck_hf_set *s = a->ctx;
	struct ck_asm_tensor *t = ck_asm_tensor(a, 0, f->name, f->len);
	struct ck_asm_piece *p = t ? ck_asm_piece(a, t, file) : NULL;
	struct ck_extent x = f->x;
	bool boxed = s->files.mode == CK_ST_SHARDED;

	return !p || (boxed && set_box(s, p, f->entry, &x)) ||
			       ck_asm_set_extent(a, p, &x) ?
		       ck_no_memory(err) :
		       0;
}

static int opened(struct ck_asm *a, uint32_t file, const struct ck_container *c,
		  struct ck_err *why, struct ck_err *err)
{
	struct ck_hf_set *s = a->ctx;
	ck_auto_str struct ck_str name = { 0 };

	(void)why;
	s->st = &c->st;
	ck_str_fmt(&name, "%s/__metadata__", a->files.v[file].name);
	return name.failed ? ck_no_memory(err) :
			     ck_st_file_add_metadata(&c->st, name.v, a->b, err);
}

static const struct ck_asm_reader reader = {
	.is_st = true,
	.opened = opened,
	.key = add_piece,
};

int ck_hf_set_read(struct ck_hf_set *s, const struct ck_dir *dir,
		   struct ck_builder *b, struct ck_err *err)
{
	int ret;

	*s = (struct ck_hf_set){
		.a = { .dir = dir, .b = b, .how = &reader, .ctx = s },
	};
	ret = ck_st_folder_list(&s->files, dir, err);
	if (!ret && s->files.mode == CK_ST_NONE)
		ret = ck_fail(err, EINVAL, "%s: expected .safetensors files",
			      dir->path);
	if (!ret)
		ret = ck_st_folder_choose(&s->files, dir, err);
	for (uint32_t i = 0; i < s->files.nr && !ret; i++)
		ret = ck_asm_file(&s->a, s->files.name[i], CK_ASM_ANY) == i ?
			      ck_asm_read(&s->a, i, err) :
			      ck_no_memory(err);
	return ret;
}

void ck_hf_set_free(struct ck_hf_set *s)
{
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
	const struct ck_asm_file *f =
		&s->a.files.v[ck_strmap_get(&s->a.paths, file, strlen(file))];

	if (!f->usable)
		return ck_builder_refuse(
			s->a.b, 0, name, len, err,
			"%s is %s: nothing else tells shape and bytes", file,
			f->present ? "damaged" : "missing");
	if (!f->user) /* another file in its place, not a stale name */
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
	struct ck_part part;
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
	part = ck_extent_part(&one->x, t->name, t->len);
	if (!ret && one->x.fault)
		return ck_builder_refuse(s->a.b, 0, t->name, t->len, err,
					 "%s: %s", ck_asm_who(&s->a, one),
					 one->x.fault);
	return ret ? ret : ck_builder_add(s->a.b, &part, err);
}

int ck_hf_set_add_whole(struct ck_hf_set *s, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < s->a.tensors.nr && !ret; i++)
		ret = add_one(s, &s->a.tensors.v[i], err);
	return ret ? ret : add_absent(s, err);
}
