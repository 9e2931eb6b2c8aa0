/* SPDX-License-Identifier: Apache-2.0 */
/* value.c - little-endian elements of every dtype -> numbers */
#include "core/geom/value.h"

#include "core/base/le.h"

#include <math.h>
#include <string.h>

enum {
	SP_IEEE, /* the largest exponent is infinity and NaN */
	SP_FN, /* finite, all bits set but the sign are NaN */
	SP_FNUZ, /* finite, minus zero is NaN */
};

/* What a float of at most 16 bits is made of; its width is the last field. */
struct small {
	uint8_t exp, man, bias, special, bytes;
};

static const struct small smalls[CK_DT_NR] = {
	[CK_DT_F16] = { 5, 10, 15, SP_IEEE, 2 },
	[CK_DT_BF16] = { 8, 7, 127, SP_IEEE, 2 },
	[CK_DT_C32] = { 5, 10, 15, SP_IEEE, 2 },
	[CK_DT_BC32] = { 8, 7, 127, SP_IEEE, 2 },
	[CK_DT_F8_E4M3FN] = { 4, 3, 7, SP_FN, 1 },
	[CK_DT_F8_E5M2] = { 5, 2, 15, SP_IEEE, 1 },
	[CK_DT_F8_E4M3FNUZ] = { 4, 3, 8, SP_FNUZ, 1 },
	[CK_DT_F8_E5M2FNUZ] = { 5, 2, 16, SP_FNUZ, 1 },
};

enum ck_value_kind ck_value_kind(enum ck_dtype dtype)
{
	switch (dtype) {
	case CK_DT_BOOL:
		return CK_VALUE_BOOL;
	case CK_DT_U8:
	case CK_DT_U16:
	case CK_DT_U32:
	case CK_DT_U64:
		return CK_VALUE_UNSIGNED;
	case CK_DT_I8:
	case CK_DT_I16:
	case CK_DT_I32:
	case CK_DT_I64:
	case CK_DT_INT4:
		return CK_VALUE_SIGNED;
	case CK_DT_C32:
	case CK_DT_BC32:
	case CK_DT_C64:
	case CK_DT_C128:
		return CK_VALUE_COMPLEX;
	case CK_DT_F32:
	case CK_DT_F64:
		return CK_VALUE_FLOAT;
	default:
		return smalls[dtype].bytes ? CK_VALUE_FLOAT : CK_VALUE_NONE;
	}
}

uint64_t ck_value_integer(enum ck_dtype dtype, const void *element)
{
	size_t size = ck_dtype_info(dtype)->size;
	unsigned shift = (unsigned)(64 - 8 * size);
	uint64_t x = 0;

	memcpy(&x, element, size);
	if (ck_value_kind(dtype) == CK_VALUE_SIGNED)
		x = (uint64_t)((int64_t)(x << shift) >> shift);
	return x;
}

static double small_value(const struct small *s, const unsigned char *at)
{
	uint32_t bits = s->bytes == 1 ? *at : ck_le16(at);
	uint32_t sign = bits >> (s->exp + s->man) & 1;
	uint32_t exp = bits >> s->man & ((1u << s->exp) - 1);
	uint32_t man = bits & ((1u << s->man) - 1);
	uint32_t top = (1u << s->exp) - 1;
	double x;

	if (s->special == SP_FNUZ && sign && !exp && !man)
		return (double)NAN;
	if (s->special == SP_FN && exp == top && man == (1u << s->man) - 1)
		return (double)NAN;
	if (s->special == SP_IEEE && exp == top)
		x = man ? (double)NAN : (double)INFINITY;
	else if (exp)
		x = ldexp((double)(man | 1u << s->man),
			  (int)exp - s->bias - s->man);
	else
		x = ldexp((double)man, 1 - s->bias - s->man);
	return sign ? -x : x;
}

static double wide_value(const unsigned char *at, size_t bytes)
{
	double d;
	float f;

	if (bytes == 8) {
		memcpy(&d, at, sizeof(d));
		return d;
	}
	memcpy(&f, at, sizeof(f));
	return (double)f;
}

double ck_value(enum ck_dtype dtype, const void *element, unsigned part)
{
	const unsigned char *at = element;
	size_t size = ck_dtype_info(dtype)->size;

	switch (ck_value_kind(dtype)) {
	case CK_VALUE_BOOL:
		return *at ? 1 : 0;
	case CK_VALUE_UNSIGNED:
		return (double)ck_value_integer(dtype, at);
	case CK_VALUE_SIGNED:
		return (double)(int64_t)ck_value_integer(dtype, at);
	case CK_VALUE_COMPLEX:
		size /= 2;
		at += part * size;
		break;
	case CK_VALUE_FLOAT:
		break;
	case CK_VALUE_NONE:
		return (double)NAN;
	}
	return smalls[dtype].bytes ? small_value(&smalls[dtype], at) :
				     wide_value(at, size);
}
