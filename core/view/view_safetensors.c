/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_safetensors.c - model.safetensors: all tensors in one file
 *
 * Every tensor of the tree, optimizer state included, under its true name; hf/
 * is the view that leaves out what a model does not need.  Of weights that are
 * kept twice (DeepSpeed) it shows the copy that hf/ shows, and nothing else.
 */
#include "core/view/merged.h"
#include "core/view/metadata.h"
#include "core/view/model_names.h"
#include "core/view/single.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "model.safetensors"

struct st_view {
	struct ck_single one;
	struct ck_merged_tensor *held;
	uint32_t nr_held;
	struct ck_model_names names; /* of weights that are kept twice */
};

static int make_file(struct ck_compose *file, void *ctx, struct ck_err *err)
{
	ck_auto_str struct ck_str metadata = { 0 };
	struct st_view *v = ctx;
	struct ck_merged_in in = { .img = v->one.base.img,
				   .v = v->held,
				   .nr = v->nr_held };
	int ret = ck_metadata_make(v->one.base.ck, v->one.base.tree, &metadata,
				   err);

	if (ret)
		return ret;
	in.metadata = metadata.v;
	in.metadata_len = metadata.len;
	ck_merged_sort(&in);
	return ck_merged_make(file, &in, err);
}

static void st_close(struct ck_view *base)
{
	struct st_view *v = (struct st_view *)base;

	ck_lazy_free(&v->one.file);
	ck_model_names_free(&v->names);
	free(v->held);
	free(v);
}

static void take(struct st_view *v, const struct ck_merged_tensor *m)
{
	const char *why = ck_merged_refuses(v->one.base.img, m->tensor, m->name,
					    m->name_len);

	if (why)
		ck_view_leave_out(&v->one.base, m->tensor, why);
	else
		v->held[v->nr_held++] = *m;
}

static int take_copy(struct st_view *v, const struct ck_opts *opts,
		     struct ck_err *err)
{
	const struct ck_view *base = &v->one.base;
	int ret = ck_model_names_make(&v->names, base->img, base->first,
				      base->nr, opts, err);

	for (uint32_t i = 0; !ret && i < v->names.nr; i++)
		take(v, &v->names.v[i]);
	return ret;
}

static void take_tensors(struct st_view *v)
{
	const struct ck_image *img = v->one.base.img;

	for (uint32_t t = v->one.base.first;
	     t < v->one.base.first + v->one.base.nr; t++) {
		struct ck_merged_tensor m = { .tensor = t };

		m.name = ck_image_str(img, img->tensors[t].name, &m.name_len);
		take(v, &m);
	}
}

/* Whether the header fits; it is written out only where that is in doubt. */
static bool fits(const struct st_view *v)
{
	const struct ck_image *img = v->one.base.img;
	const struct ck_merged_in in = { .img = img,
					 .v = v->held,
					 .nr = v->nr_held };
	uint64_t most = 0, len;
	char why[128];

	for (uint32_t i = 0; i < v->nr_held; i++)
		most += ck_merged_entry_max(img, &v->held[i]);
	if (most <= CK_MERGED_ROOM)
		return true;
	len = ck_merged_header_len(&in);
	if (len <= CK_MERGED_ROOM)
		return true;
	snprintf(why, sizeof(why),
		 "its header would have %" PRIu64
		 " bytes, the format allows %" PRIu64,
		 len, CK_MAX_HEADER);
	ck_view_leave_out(&v->one.base, CK_NONE, why);
	return false;
}

static int st_open(struct ck_view **out, const struct ck_view *base,
		   const struct ck_opts *opts, struct ck_err *err)
{
	struct st_view *v = calloc(1, sizeof(*v));
	int ret = 0;

	if (!v)
		return ck_fail(err, ENOMEM, "no memory for " FILE_NAME);
	v->one.base = *base;
	ck_lazy_init(&v->one.file, make_file, v);
	v->held = calloc((size_t)base->nr + 1, sizeof(*v->held));
	if (!v->held) {
		st_close(&v->one.base);
		return ck_fail(err, ENOMEM, "no memory for " FILE_NAME);
	}
	if (ck_model_names_twice(base->img))
		ret = take_copy(v, opts, err);
	if (!ret && !v->names.nr)
		take_tensors(v);
	if (ret) {
		st_close(&v->one.base);
		return ret;
	}
	if (fits(v))
		*out = &v->one.base;
	else
		st_close(&v->one.base);
	return 0;
}

const struct ck_view_ops ck_view_safetensors = {
	.name = FILE_NAME,
	.is_dir = false,
	.open = st_open,
	.close = st_close,
	.nr = ck_single_nr,
	.file = ck_single_file,
	.find = ck_single_find,
	.at = ck_single_at,
	.made = ck_single_made,
};
