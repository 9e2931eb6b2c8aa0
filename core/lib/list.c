/* SPDX-License-Identifier: Apache-2.0 */
/* list.c - what is in a checkpoint: tensors, objects */
#include "core/lib/lib.h"

#include "core/base/check.h"
#include "core/catalog/catalog.h"
#include "core/geom/dtype.h"
#include "core/lib/target.h"

#include <errno.h>
#include <string.h>

uint32_t unshard_tensors(const unshard_ckpt *ck)
{
	return ck_lib_is_child(ck->ctx) ? 0 :
					  ck_ckpt_catalog(ck->ck)->nr_tensors;
}

static unshard_str text(const struct ck_catalog *img, uint32_t ref)
{
	unshard_str s;

	s.p = ck_catalog_str(img, ref, &s.len);
	return s;
}

int unshard_tensor_at(const unshard_ckpt *ck, uint32_t i, unshard_tensor *out,
		      size_t size)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck->ck);
	const struct ck_dtype_info *dtype;
	const struct ck_tensor *t;
	unshard_tensor of;

	if (ck_lib_is_child(ck->ctx))
		return -ECHILD;
	if (i >= img->nr_tensors)
		return -EINVAL;
	t = &img->tensors[i];
	dtype = ck_dtype_info(t->dtype);
	of = (unshard_tensor){
		.name = text(img, t->name),
		.tree = text(img, img->trees[t->tree]),
		.dtype = { dtype->name, strlen(dtype->name) },
		.rank = t->rank,
		.state = t->state,
		.shape = img->dims + t->shape,
		.nbytes = t->size,
		.pieces = t->nr,
		.itemsize = dtype->size,
	};
	if (of.state == CK_OK && dtype->size &&
	    t->covered < t->size / dtype->size)
		of.state = UNSHARD_MISSING;
	memset(out, 0, size);
	memcpy(out, &of, CK_MIN(size, sizeof(of)));
	return 0;
}

uint32_t unshard_find(const unshard_ckpt *ck, const char *tree,
		      const char *name, size_t len)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck->ck);
	uint32_t found = CK_NONE;

	if (ck_lib_is_child(ck->ctx))
		return UNSHARD_NONE;
	for (uint32_t i = 0; i < img->nr_trees; i++) {
		const char *at = ck_catalog_str(img, img->trees[i], NULL);
		uint32_t t;

		if (tree && strcmp(tree, at) != 0)
			continue;
		t = ck_catalog_find_name(img, i, name, len);
		if (t != CK_NONE && found != CK_NONE)
			return UNSHARD_NONE;
		found = t != CK_NONE ? t : found;
	}
	return found;
}

static int read_object(unshard_ckpt *ck, const char *name, void *buf,
		       size_t room, size_t *len, struct ck_err *err)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck->ck);
	struct ck_target target;
	int ret = ck_target_find(img, name, &target, err);

	if (ret)
		return ret;
	if (target.tensor != CK_NONE)
		return ck_fail(err, EINVAL, "%s: it is a tensor, no object",
			       name);
	*len = img->objects[target.object].len;
	if (*len > room)
		return ck_fail(err, ENOSPC, "%s: of %zu bytes, into %zu", name,
			       *len, room);
	return ck_ckpt_read_object(ck->ck, target.object, buf, *len, 0, err);
}

int unshard_object(unshard_ckpt *ck, const char *name, void *buf, size_t room,
		   size_t *len, unshard_error *err)
{
	struct ck_err why = { 0 };
	int ret = ck_lib_alive(ck->ctx, err);

	if (ret)
		return ret;
	*len = 0;
	ret = read_object(ck, name, buf, room, len, &why);
	return ret ? ck_lib_failed(err, ret, &why) : 0;
}
