/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_safetensors.c - model.safetensors: all tensors in one file
 *
 * Every tensor of the tree, optimizer state included, under its true name; hf/
 * is the view that leaves out what a model does not need.  Of weights that are
 * kept twice (DeepSpeed) it shows the copy that hf/ shows, and nothing else.
 */
#include "core/view/merged_set.h"
#include "core/view/merged.h"
#include "core/view/metadata.h"
#include "core/view/single.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "model.safetensors"

struct st_view {
	struct ck_single one;
	struct ck_merged_set held;
};

static int make_file(struct ck_compose *file, void *ctx, struct ck_err *err)
{
	ck_auto_str struct ck_str metadata = { 0 };
	struct st_view *v = ctx;
	struct ck_merged_in in = { .img = v->one.base.img,
				   .v = v->held.v,
				   .nr = v->held.nr };
	int ret = ck_metadata_of_view(&v->one.base, &metadata, err);

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
	ck_merged_set_free(&v->held);
	free(v);
}

/* Whether the header fits; it is written out only where that is in doubt. */
static bool fits(const struct st_view *v)
{
	const struct ck_catalog *img = v->one.base.img;
	const struct ck_merged_in in = { .img = img,
					 .v = v->held.v,
					 .nr = v->held.nr };
	uint64_t most = 0, len;
	char why[128];

	for (uint32_t i = 0; i < v->held.nr; i++)
		most += ck_merged_entry_max(img, &v->held.v[i]);
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
	int ret;

	if (!v)
		return ck_no_memory(err);
	v->one.base = *base;
	ck_lazy_init(&v->one.file, make_file, v);
	ret = ck_merged_set_take(&v->held, base, opts, ck_merged_refuses, err);
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
	.label = ck_single_label,
	.find = ck_single_find,
	.at = ck_single_at,
	.made = ck_single_made,
};
