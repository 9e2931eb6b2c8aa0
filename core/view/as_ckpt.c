/* SPDX-License-Identifier: Apache-2.0 */
/* as_ckpt.c - files of a view, as those of another checkpoint */
#include "core/view/as_ckpt.h"

#include "core/base/vec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "model.safetensors"

struct over {
	struct ck_view *v;
	CK_VEC(uint32_t) nr; /* of each file, in the view */
	CK_VEC(struct ck_derived_file) file;
	bool owned;
	char what[600];
};

static int read_below(void *ctx, uint32_t file, void *buf, uint64_t len,
		      uint64_t off, struct ck_err *err)
{
	const struct over *o = ctx;

	return ck_view_read(o->v, o->nr.v[file], buf, len, off, err);
}

static void free_over(struct over *o)
{
	for (size_t i = 0; i < o->file.nr; i++)
		free((char *)o->file.v[i].name);
	free(o->file.v);
	free(o->nr.v);
	free(o);
}

static void free_below(void *ctx)
{
	struct over *o = ctx;
	struct ck_ckpt *ck = o->v->ck;

	if (o->owned) {
		ck_view_close(o->v);
		ck_ckpt_close(ck);
	}
	free_over(o);
}

/* What is left out is no file of it. */
static int add(struct over *o, uint32_t nr, struct ck_err *err)
{
	struct ck_derived_file *f;
	char name[CK_VIEW_NAME];
	struct ck_vfile file;
	uint32_t *at;

	if (!o->v->ops->file(o->v, nr, &file))
		return 0;
	o->v->ops->label(o->v, nr, name);
	at = ck_vec_push(&o->nr);
	f = at ? ck_vec_push(&o->file) : NULL;
	if (!f)
		return ck_no_memory(err);
	*at = nr;
	*f = (struct ck_derived_file){ .name = strdup(name),
				       .size = file.size };
	if (file.newest != CK_NONE)
		f->like = &o->v->img->srcs[file.newest];
	return f->name ? 0 : ck_no_memory(err);
}

/* All of folder @d, and what a reshard has and does not list. */
static int add_folder(struct over *o, uint32_t d, struct ck_err *err)
{
	const struct ck_view_folder_ops *ops = o->v->ops->folders;
	uint32_t base = d << CK_VIEW_FOLDER_SHIFT;
	uint32_t nr = ops->nr_files(o->v, d), i;
	int ret = 0;

	for (i = 0; i < nr && !ret; i++)
		ret = add(o, base + i, err);
	if (ret)
		return ret;
	if (!ops->unlisted)
		return 0;
	i = ops->find_file(o->v, d, ops->unlisted, strlen(ops->unlisted));
	return i == CK_NONE || i - base < nr ? 0 : add(o, i, err);
}

int ck_view_folder_called(const struct ck_view *v, const char *name,
			  uint32_t *d, struct ck_err *err)
{
	char folder[256];
	int ret;

	snprintf(folder, sizeof(folder), "%.*s", (int)strcspn(name, "/"), name);
	err->msg[0] = '\0';
	ret = v->ops->folders->find(v, folder, d, err);
	if (ret == -ENOENT && !err->msg[0])
		return ck_fail(err, ENOENT, "%s: has no folder \"%s\"",
			       v->ops->name, folder);
	return ret ? ck_wrap(err, ret, "%s", v->ops->name) : 0;
}

uint32_t ck_view_file_called(const struct ck_view *v, const char *name,
			     struct ck_err *err)
{
	const char *slash = strchr(name, '/');
	uint32_t d, i = CK_NONE;

	if (v->ops->folders) {
		if (slash && ck_view_folder_called(v, name, &d, err))
			return CK_NONE;
		if (slash)
			i = v->ops->folders->find_file(v, d, slash + 1,
						       strlen(slash + 1));
	} else {
		i = v->ops->is_dir ? v->ops->find(v, name, strlen(name)) :
		    *name	   ? CK_NONE :
				     0;
	}
	if (i == CK_NONE && v->ops->folders && slash)
		ck_fail(err, ENOENT, "%s/%.*s: has no file \"%s\"",
			v->ops->name, (int)(slash - name), name, slash + 1);
	else if (i == CK_NONE && !*name)
		ck_fail(err, ENOENT, "%s: is a folder; expected a file of it",
			v->ops->name);
	else if (i == CK_NONE)
		ck_fail(err, ENOENT, "%s: has no file \"%s\"", v->ops->name,
			name);
	return i;
}

static int add_shown(struct over *o, const char *name, struct ck_err *err)
{
	const struct ck_view_ops *ops = o->v->ops;
	uint32_t d, nr = ops->folders ? 0 : ops->nr(o->v);
	int ret = 0;

	if (ops->folders && !strchr(name, '/')) {
		ret = ck_view_folder_called(o->v, name, &d, err);
		return ret ? ret : add_folder(o, d, err);
	}
	if (*name || ops->folders) {
		d = ck_view_file_called(o->v, name, err);
		return d == CK_NONE ? -err->code : add(o, d, err);
	}
	for (uint32_t i = 0; i < nr && !ret; i++)
		ret = add(o, i, err);
	return ret;
}

uint32_t ck_view_as_ckpt_file(const struct ck_view *v, uint32_t d)
{
	return v->ops->folders->find_file(v, d, FILE_NAME, strlen(FILE_NAME));
}

/* Takes @o. */
static int derive(struct ck_ckpt **out, struct over *o, struct ck_err *err)
{
	const struct ck_ckpt_derivation b = {
		.what = o->what,
		.file = o->file.v,
		.nr = (uint32_t)o->file.nr,
		.ck = o->v->ck,
		.read = read_below,
		.ctx = o,
		.free = free_below,
	};
	int ret = ck_ckpt_derive(out, &b, err);

	if (ret)
		free_over(o);
	return ret;
}

static struct over *new_over(struct ck_view *v, bool owned, struct ck_err *err)
{
	struct over *o = calloc(1, sizeof(*o));

	if (!o)
		ck_no_memory(err);
	else
		*o = (struct over){ .v = v, .owned = owned };
	return o;
}

int ck_view_as_ckpt(struct ck_ckpt **out, struct ck_view *v, uint32_t d,
		    bool owned, struct ck_err *err)
{
	struct over *o = new_over(v, owned, err);
	uint32_t file;
	char name[256];
	int ret = 0;

	if (!o)
		return -ENOMEM;
	if (!v->ops->folders->name(v, d, name))
		ret = ck_fail(err, ENOENT, "%s: has no such folder",
			      v->ops->name);
	if (!ret) {
		snprintf(o->what, sizeof(o->what), "%s/%s", v->ops->name, name);
		file = ck_view_as_ckpt_file(v, d);
		ret = file == CK_NONE ? 0 : add(o, file, err);
	}
	if (!ret && !o->file.nr)
		ret = ck_fail(err, ENOENT, "%s: has no " FILE_NAME, o->what);
	if (!ret)
		return derive(out, o, err);
	free_over(o);
	return ret;
}

int ck_view_shown_as_ckpt(struct ck_ckpt **out, struct ck_view *v,
			  const char *name, struct ck_err *err)
{
	struct over *o = new_over(v, true, err);
	int ret;

	if (!o)
		return -ENOMEM;
	snprintf(o->what, sizeof(o->what), "%s%s%s", v->ops->name,
		 *name ? "/" : "", name);
	ret = add_shown(o, name, err);
	if (!ret)
		return derive(out, o, err);
	free_over(o);
	return ret;
}
