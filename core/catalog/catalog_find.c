/* SPDX-License-Identifier: Apache-2.0 */
/* catalog_find.c - a tensor by its file name, or by its true name */
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/base/search.h"
#include "core/catalog/catalog.h"
#include "core/catalog/catalog_priv.h"
#include "core/catalog/names.h"

#include <string.h>

static int compare(const struct ck_catalog *img, const struct ck_tensor *t,
		   uint32_t tree, const char *file, size_t len)
{
	size_t have;
	const char *s = ck_catalog_str(img, t->file, &have);
	int c = (t->tree > tree) - (t->tree < tree);

	return c ? c : ck_text_order(s, have, file, len);
}

uint32_t ck_catalog_find_file(const struct ck_catalog *img, uint32_t tree,
			      const char *file, size_t len)
{
	uint32_t at =
		CK_FIRST(i, 0, img->nr_tensors,
			 compare(img, &img->tensors[i], tree, file, len) >= 0);

	if (at < img->nr_tensors &&
	    !compare(img, &img->tensors[at], tree, file, len))
		return at;
	return CK_NONE;
}

static bool has_name(const struct ck_catalog *img, uint32_t tensor,
		     const char *name, size_t len)
{
	size_t have;
	const char *s;

	if (tensor == CK_NONE)
		return false;
	s = ck_catalog_str(img, img->tensors[tensor].name, &have);
	return have == len && !memcmp(s, name, len);
}

uint32_t ck_catalog_find_name(const struct ck_catalog *img, uint32_t tree,
			      const char *name, size_t len)
{
	char file[CK_FILE_NAME_MAX + 1];
	size_t n = ck_name_encode(name, len, file);
	uint32_t found = ck_catalog_find_file(img, tree, file, n);

	/* one whose plain form was taken has a hashed one */
	for (unsigned seed = 0;
	     seed < CK_NAME_SEEDS && !has_name(img, found, name, len); seed++) {
		n = ck_name_encode_hashed(name, len, seed, file);
		found = ck_catalog_find_file(img, tree, file, n);
	}
	return has_name(img, found, name, len) ? found : CK_NONE;
}
