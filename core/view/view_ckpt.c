/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_ckpt.c - model.ckpt: all tensors as MindSpore's load_checkpoint opens it
 *
 * The same tensors under the same names as model.safetensors; emit/ckpt_records.h has the
 * bytes.
 */
#include "core/view/merged_set.h"
#include "core/emit/ckpt_records.h"
#include "core/view/single.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define FILE_NAME "model.ckpt"

struct ckpt_view {
	struct ck_single one;
	struct ck_merged_set held;
};

/* How many records it is. */
static uint64_t add_tensor(struct ck_compose *file,
			   const struct ck_catalog *img,
			   const struct ck_merged_tensor *m)
{
	const struct ck_tensor *t = &img->tensors[m->tensor];
	uint64_t at = 0, nr = 0, len;

	do {
		ck_auto_str struct ck_str head = { 0 };

		len = CK_MIN(t->size - at, CK_CKPT_RECORD_MAX);
		ck_ckpt_records_add(&head, m->name, m->name_len, t->dtype,
				    img->dims + t->shape, t->rank, len);
		file->failed |= head.failed;
		ck_compose_bytes(file, head.v, head.len);
		ck_compose_range(file, img, m->tensor, at, len, 0);
		at += len;
		nr++;
	} while (at < t->size);
	return nr;
}

static int make_file(struct ck_compose *file, void *ctx, struct ck_err *err)
{
	struct ckpt_view *v = ctx;
	struct ck_merged_in in = { .img = v->one.base.img,
				   .v = v->held.v,
				   .nr = v->held.nr };
	uint64_t nr = 0;

	ck_merged_sort(&in);
	for (uint32_t i = 0; i < in.nr && nr <= in.nr + CK_CKPT_RECORDS_MAX;
	     i++)
		nr += add_tensor(file, in.img, &in.v[i]);
	if (nr > in.nr + CK_CKPT_RECORDS_MAX)
		return ck_fail(err, E2BIG,
			       FILE_NAME ": over %" PRIu64
					 " records of 512 MiB",
			       CK_CKPT_RECORDS_MAX);
	return ck_compose_done(file, err);
}

static void ckpt_close(struct ck_view *base)
{
	struct ckpt_view *v = (struct ckpt_view *)base;

	ck_lazy_free(&v->one.file);
	ck_merged_set_free(&v->held);
	free(v);
}

static int ckpt_open(struct ck_view **out, const struct ck_view *base,
		     const struct ck_opts *opts, struct ck_err *err)
{
	struct ckpt_view *v = calloc(1, sizeof(*v));
	int ret;

	if (!v)
		return ck_no_memory(err);
	v->one.base = *base;
	ck_lazy_init(&v->one.file, make_file, v);
	ret = ck_merged_set_take(&v->held, base, opts, ck_ckpt_records_refuse,
				 err);
	if (ret)
		ckpt_close(&v->one.base);
	else
		*out = &v->one.base;
	return ret;
}

const struct ck_view_ops ck_view_ckpt = {
	.name = FILE_NAME,
	.is_dir = false,
	.open = ckpt_open,
	.close = ckpt_close,
	.nr = ck_single_nr,
	.file = ck_single_file,
	.label = ck_single_label,
	.find = ck_single_find,
	.at = ck_single_at,
	.made = ck_single_made,
};
