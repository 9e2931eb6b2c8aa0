/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - arithmetic on sizes that come from a file
 *
 * Each function returns false, and leaves *out alone, where the true result
 * does not fit.  CK_SIZE_MAX bounds every size and offset of the project, so
 * that sums of two of them fit into uint64_t and each fits into off_t.
 */
#ifndef CK_CHECK_H
#define CK_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#define CK_SIZE_MAX (UINT64_C(1) << 62)

static inline bool ck_add_ok(uint64_t a, uint64_t b, uint64_t *out)
{
	uint64_t sum;

	if (__builtin_add_overflow(a, b, &sum) || sum > CK_SIZE_MAX)
		return false;
	*out = sum;
	return true;
}

static inline bool ck_mul_ok(uint64_t a, uint64_t b, uint64_t *out)
{
	uint64_t product;

	if (__builtin_mul_overflow(a, b, &product) || product > CK_SIZE_MAX)
		return false;
	*out = product;
	return true;
}

/* Whether [off, off + len) lies in [0, size). */
static inline bool ck_range_ok(uint64_t off, uint64_t len, uint64_t size)
{
	return off <= size && len <= size - off;
}

/* How far a stride goes, whichever way. */
static inline uint64_t ck_stride_size(int64_t step)
{
	return step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
}

#define CK_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CK_MAX(a, b) ((a) > (b) ? (a) : (b))
#define CK_DIV_UP(a, b) (((a) + (b)-1) / (b))
#define CK_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
