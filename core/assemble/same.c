/* SPDX-License-Identifier: Apache-2.0 */
/* same.c - tensors of a catalog are sorted by name, so this is a walk */
#include "core/assemble/same.h"

#include "core/catalog/catalog.h"

#include <string.h>

static bool same_tensor(const struct ck_catalog *a, const struct ck_tensor *x,
			const struct ck_catalog *b, const struct ck_tensor *y)
{
	size_t x_len, y_len;
	const char *x_name = ck_catalog_str(a, x->name, &x_len);
	const char *y_name = ck_catalog_str(b, y->name, &y_len);

	return x_len == y_len && !memcmp(x_name, y_name, x_len) &&
	       x->dtype == y->dtype && x->rank == y->rank &&
	       !memcmp(a->dims + x->shape, b->dims + y->shape,
		       x->rank * sizeof(*a->dims));
}

static bool same_images(const struct ck_catalog *a, const struct ck_catalog *b)
{
	if (a->nr_tensors != b->nr_tensors)
		return false;
	for (uint32_t i = 0; i < a->nr_tensors; i++)
		if (!same_tensor(a, &a->tensors[i], b, &b->tensors[i]))
			return false;
	return true;
}

int ck_same_tensors(int a_fd, int b_fd, bool *same, struct ck_err *err)
{
	struct ck_catalog a, b;
	int ret;

	ret = ck_catalog_map(&a, a_fd, err);
	if (ret)
		return ret;
	ret = ck_catalog_map(&b, b_fd, err);
	if (!ret) {
		*same = same_images(&a, &b);
		ck_catalog_unmap(&b);
	}
	ck_catalog_unmap(&a);
	return ret;
}
