/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.c - compares the small ones among copies of the same part
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/format/oneflow/set.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <string.h>

#define MAX_ONE (UINT64_C(1) << 20)
#define MAX_ALL (UINT64_C(64) << 20) /* what a mount reads for it */

static bool size_of(const struct ck_of_item *item, const struct ck_of_part *p,
		    uint64_t *size)
{
	*size = ck_dtype_info((enum ck_dtype)p->dtype)->size;
	for (unsigned d = 0; d < item->rank; d++)
		if (!ck_mul_ok(*size, p->dims[d], size))
			return false;
	return true;
}

/* What cannot be read is not compared: reading it will say so. */
static int bytes_of(struct ck_of_set *s, const struct ck_of_part *p,
		    uint64_t size, void *to, struct ck_err *err)
{
	ck_auto_source struct ck_source *src = NULL;
	int ret;

	if (p->bytes) {
		memcpy(to, p->bytes, size);
		return 0;
	}
	ret = ck_dir_open(s->dir, p->file, &src, err);
	return ret ? ret : ck_source_read(src, to, size, p->off, err);
}

int ck_of_same_bytes(struct ck_of_set *s, const struct ck_of_item *item,
		     const struct ck_of_part *a, const struct ck_of_part *b,
		     bool *compared, uint64_t *differ, struct ck_err *err)
{
	ck_auto_free char *bytes = NULL;
	struct ck_err why = { 0 };
	uint64_t size, i = 0;
	int ret;

	*compared = false;
	*differ = UINT64_MAX;
	if (a->xform != b->xform || !size_of(item, a, &size) ||
	    size > MAX_ONE || s->compared + size > MAX_ALL ||
	    memcmp(a->dims, b->dims, 2 * item->rank * sizeof(*a->dims)) != 0)
		return 0;
	s->compared += size;
	bytes = malloc(2 * size + 1);
	if (!bytes)
		return ck_fail(err, ENOMEM, "no memory to compare copies");
	ret = bytes_of(s, a, size, bytes, &why);
	if (!ret)
		ret = bytes_of(s, b, size, bytes + size, &why);
	if (ret)
		return ret == -ENOMEM ? ck_fail(err, ENOMEM, "%s", why.msg) : 0;
	*compared = true;
	while (i < size && bytes[i] == bytes[size + i])
		i++;
	*differ = i < size ? i : UINT64_MAX;
	return 0;
}
