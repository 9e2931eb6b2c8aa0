/* SPDX-License-Identifier: Apache-2.0 */
/* as_ckpt.c - the file of a folder of a view, below another checkpoint */
#include "core/view/as_ckpt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "model.safetensors"

struct over {
	struct ck_view *v;
	uint32_t file;
	bool owned;
	char what[300];
};

static int read_below(void *ctx, void *buf, uint64_t len, uint64_t off,
		      struct ck_err *err)
{
	const struct over *o = ctx;

	return ck_view_read(o->v, o->file, buf, len, off, err);
}

static void free_below(void *ctx)
{
	struct over *o = ctx;
	struct ck_ckpt *ck = o->v->ck;

	if (o->owned) {
		ck_view_close(o->v);
		ck_ckpt_close(ck);
	}
	free(o);
}

uint32_t ck_view_as_ckpt_file(const struct ck_view *v, uint32_t d)
{
	return v->ops->folders->find_file(v, d, FILE_NAME, strlen(FILE_NAME));
}

static int open_over(struct ck_ckpt **out, struct over *o, uint32_t d,
		     struct ck_err *err)
{
	const struct ck_view_folder_ops *folders = o->v->ops->folders;
	struct ck_ckpt_derivation b = {
		.what = o->what,
		.name = FILE_NAME,
		.ck = o->v->ck,
		.made = { o, read_below },
		.free = free_below,
	};
	struct ck_vfile file;
	char name[256];

	if (!folders->name(o->v, d, name))
		return ck_fail(err, ENOENT, "%s: has no such folder",
			       o->v->ops->name);
	snprintf(o->what, sizeof(o->what), "%s/%s", o->v->ops->name, name);
	o->file = ck_view_as_ckpt_file(o->v, d);
	if (o->file == CK_NONE || !o->v->ops->file(o->v, o->file, &file))
		return ck_fail(err, ENOENT, "%s: has no " FILE_NAME, o->what);
	b.size = file.size;
	if (file.newest != CK_NONE)
		b.like = &o->v->img->srcs[file.newest];
	return ck_ckpt_derive(out, &b, err);
}

int ck_view_as_ckpt(struct ck_ckpt **out, struct ck_view *v, uint32_t d,
		    bool owned, struct ck_err *err)
{
	struct over *o = calloc(1, sizeof(*o));
	int ret;

	if (!o)
		return ck_no_memory(err);
	o->v = v;
	o->owned = owned;
	ret = open_over(out, o, d, err);
	if (ret)
		free(o);
	return ret;
}
