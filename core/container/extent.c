/* SPDX-License-Identifier: Apache-2.0 */
/* extent.c - sizes and strides */
#include "core/container/extent.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"

struct ck_part ck_extent_part(const struct ck_extent *x, const char *name,
			      size_t len)
{
	return (struct ck_part){ .name = name,
				 .name_len = len,
				 .src = x->src,
				 .dtype = x->dtype,
				 .xform = x->xform,
				 .rank = x->rank,
				 .shape = x->shape,
				 .stride = x->stride,
				 .off = x->off };
}

bool ck_extent_is_dense(const struct ck_extent *x)
{
	uint64_t step = 1; /* 0: there are no elements */

	for (unsigned d = x->rank; x->stride && step && d-- > 0;) {
		if (x->shape[d] > 1 && (uint64_t)x->stride[d] != step)
			return false;
		step *= x->shape[d];
	}
	return true;
}

bool ck_extent_bytes(const struct ck_extent *x, uint64_t *bytes)
{
	*bytes = ck_dtype_info((enum ck_dtype)x->dtype)->size;
	for (unsigned d = 0; d < x->rank; d++)
		if (!ck_mul_ok(*bytes, x->shape[d], bytes))
			return false;
	return true;
}
