/* SPDX-License-Identifier: Apache-2.0 */
/* catalog_check.h - whether bytes are a catalog; private to catalog/ */
#ifndef CK_CATALOG_CHECK_H
#define CK_CATALOG_CHECK_H

#include "core/base/err.h"
#include "core/geom/catalog.h"

/*
 * Fills @img with places in @base (aligned to 8, @size bytes, at least a
 * head).  -EINVAL: something in it is not as the builder makes it.
 */
int ck_catalog_check(struct ck_catalog *img, const void *base, size_t size,
		     struct ck_err *err);

/* The tensors, with their chunks: catalog_check_tensor.c. */
int ck_catalog_check_tensors(const struct ck_catalog *img, struct ck_err *err);

static inline bool ck_ref_is_str(const struct ck_catalog *img, uint64_t ref)
{
	uint32_t len;

	if (img->strs_len < 5 || ref > img->strs_len - 5)
		return false;
	__builtin_memcpy(&len, img->strs + ref, sizeof(len));
	return len <= img->strs_len - 5 - ref && !img->strs[ref + 4 + len];
}

static inline bool ck_ref_is_str_or_none(const struct ck_catalog *img,
					 uint64_t ref)
{
	return ref == CK_NONE || ck_ref_is_str(img, ref);
}

static inline bool ck_ref_has_dims(const struct ck_catalog *img, uint32_t ref,
				   uint64_t nr)
{
	return nr <= img->nr_dims && ref <= img->nr_dims - nr;
}

/* A path: how many parts, then each. */
bool ck_ref_is_path(const struct ck_catalog *img, uint32_t ref);

#endif
