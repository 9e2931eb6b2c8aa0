/* SPDX-License-Identifier: Apache-2.0 */
/* rounded.c - whether weights are the master copy that a step left behind */
#include "core/audit/audit.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/cast.h"

#include <errno.h>
#include <string.h>

bool ck_audit_can_round(const struct ck_audit_run *master,
			const struct ck_audit_run *weights)
{
	return master->dtype == CK_DT_F32 && !master->xform &&
	       !weights->xform &&
	       (weights->dtype == CK_DT_F32 ||
		ck_cast_has(CK_DT_F32, weights->dtype));
}

/* Elements that differ; NaNs do not. */
static bool differ(enum ck_dtype dt, const float *full, const void *weights,
		   void *rounded, size_t nr)
{
	size_t size = ck_dtype_info(dt)->size;

	if (dt == CK_DT_F32)
		memcpy(rounded, full, nr * size);
	else
		ck_cast(CK_DT_F32, full, dt, rounded, nr);
	for (size_t i = 0; i < nr; i++)
		if (full[i] <= full[i] &&
		    memcmp((char *)rounded + i * size,
			   (const char *)weights + i * size, size) != 0)
			return true;
	return false;
}

int ck_audit_rounded(const struct ck_audit_run *master,
		     const struct ck_audit_run *weights, uint64_t nr,
		     struct ck_audit_budget *b)
{
	size_t size = ck_dtype_info(weights->dtype)->size;
	size_t n = (size_t)CK_MIN(nr, CK_MIN(b->each, b->left));
	ck_auto_free float *full = malloc(n * sizeof(*full) + 1);
	ck_auto_free char *have = malloc(n * size + 1);
	ck_auto_free char *want = malloc(n * size + 1);

	if (!ck_audit_can_round(master, weights))
		return 0;
	if (!full || !have || !want)
		return -ENOMEM;
	b->left -= n;
	if (ck_source_read(master->s, full, n * sizeof(*full), master->off,
			   NULL) ||
	    ck_source_read(weights->s, have, n * size, weights->off, NULL))
		return 0;
	return differ(weights->dtype, full, have, want, n);
}
