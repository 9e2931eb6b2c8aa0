/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_tensors.c - tensors/NAME: each tensor raw, row-major, little endian
 *
 * Keeps nothing per tensor: names and sizes are the catalog's own.
 */
#include "core/view/view.h"

#include "core/catalog/catalog.h"

#include <stdio.h>

static bool tensors_file(const struct ck_view *v, uint32_t i,
			 struct ck_vfile *out)
{
	const struct ck_tensor *t;

	if (i >= v->nr)
		return false;
	t = &v->img->tensors[v->first + i];
	out->size = t->size;
	out->newest = t->newest;
	out->like = NULL;
	out->tensor = v->first + i;
	return true;
}

static void tensors_label(const struct ck_view *v, uint32_t i,
			  char name[CK_VIEW_NAME])
{
	snprintf(name, CK_VIEW_NAME, "%s",
		 ck_catalog_str(v->img, v->img->tensors[v->first + i].file,
				NULL));
}

static uint32_t tensors_find(const struct ck_view *v, const char *name,
			     size_t len)
{
	uint32_t t = ck_catalog_find_file(v->img, v->tree, name, len);

	return t == CK_NONE ? CK_NONE : t - v->first;
}

static void tensors_at(const struct ck_view *v, uint32_t i, uint64_t off,
		       struct ck_span *out)
{
	out->kind = CK_SPAN_TENSOR;
	out->ref = v->first + i;
	out->off = off;
	out->len = v->img->tensors[v->first + i].size - off;
}

const struct ck_view_ops ck_view_tensors = {
	.name = "tensors",
	.is_dir = true,
	.open = ck_view_per_tensor_open,
	.close = ck_view_per_tensor_close,
	.nr = ck_view_per_tensor_nr,
	.file = tensors_file,
	.label = tensors_label,
	.find = tensors_find,
	.at = tensors_at,
};
