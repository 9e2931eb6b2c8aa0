/* SPDX-License-Identifier: Apache-2.0 */
/* values.c - little-endian elements of every dtype -> JSON text */
#include "mount-helpers/values.h"

#include "core/base/check.h"
#include "core/base/le.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* What a float of at most 16 bits is made of. */
struct small {
	uint8_t exp, man;
	int8_t bias;
	uint8_t special;
};
enum {
	SP_IEEE, /* the largest exponent is infinity and NaN */
	SP_FN, /* finite, all bits set but the sign are NaN */
	SP_FNUZ, /* finite, minus zero is NaN */
};

static const struct small smalls[CK_DT_NR] = {
	[CK_DT_F16] = { 5, 10, 15, SP_IEEE },
	[CK_DT_BF16] = { 8, 7, 127, SP_IEEE },
	[CK_DT_C32] = { 5, 10, 15, SP_IEEE },
	[CK_DT_BC32] = { 8, 7, 127, SP_IEEE },
	[CK_DT_F8_E4M3FN] = { 4, 3, 7, SP_FN },
	[CK_DT_F8_E5M2] = { 5, 2, 15, SP_IEEE },
	[CK_DT_F8_E4M3FNUZ] = { 4, 3, 8, SP_FNUZ },
	[CK_DT_F8_E5M2FNUZ] = { 5, 2, 16, SP_FNUZ },
};

static void put_double(struct ck_str *out, double x, int digits)
{
	if (isnan(x))
		ck_str_puts(out, "\"NaN\"");
	else if (isinf(x))
		ck_str_puts(out, x < 0 ? "\"-Infinity\"" : "\"Infinity\"");
	else if (x == 0 && signbit(x)) /* "-0" is an integer to many readers */
		ck_str_puts(out, "-0.0");
	else
		ck_str_fmt(out, "%.*g", digits, x);
}

static double small_value(const struct small *s, uint32_t bits)
{
	uint32_t sign = bits >> (s->exp + s->man) & 1;
	uint32_t exp = bits >> s->man & ((1u << s->exp) - 1);
	uint32_t man = bits & ((1u << s->man) - 1);
	uint32_t top = (1u << s->exp) - 1;
	double x;

	if (s->special == SP_FNUZ && sign && !exp && !man)
		return NAN;
	if (s->special == SP_FN && exp == top && man == (1u << s->man) - 1)
		return NAN;
	if (s->special == SP_IEEE && exp == top)
		x = man ? (double)NAN : (double)INFINITY;
	else if (exp)
		x = ldexp((double)(man | 1u << s->man),
			  (int)exp - s->bias - s->man);
	else
		x = ldexp((double)man, 1 - s->bias - s->man);
	return sign ? -x : x;
}

static void put_small(const struct small *s, const unsigned char *at,
		      struct ck_str *out)
{
	uint32_t bits = s->exp + s->man == 7 ? *at : ck_le16(at);

	put_double(out, small_value(s, bits), 9);
}

static void put_f32(const unsigned char *at, struct ck_str *out)
{
	float x;

	memcpy(&x, at, sizeof(x));
	put_double(out, (double)x, 9);
}

static void put_f64(const unsigned char *at, struct ck_str *out)
{
	double x;

	memcpy(&x, at, sizeof(x));
	put_double(out, x, 17);
}

static void put_hex(const unsigned char *at, size_t len, struct ck_str *out)
{
	ck_str_puts(out, "\"");
	for (size_t i = 0; i < len; i++)
		ck_str_fmt(out, "%02x", at[i]);
	ck_str_puts(out, "\"");
}

static void put_complex(enum ck_dtype dtype, const unsigned char *at,
			struct ck_str *out)
{
	size_t half = ck_dtype_info(dtype)->size / 2u;

	ck_str_puts(out, "[");
	for (unsigned i = 0; i < 2; i++, at += half) {
		if (half == 8)
			put_f64(at, out);
		else if (half == 4)
			put_f32(at, out);
		else
			put_small(&smalls[dtype], at, out);
		if (!i)
			ck_str_puts(out, ", ");
	}
	ck_str_puts(out, "]");
}

static void put_integer(enum ck_dtype dtype, const unsigned char *at,
			struct ck_str *out)
{
	uint64_t x = 0;
	size_t size = ck_dtype_info(dtype)->size;
	unsigned shift = (unsigned)(64 - 8 * size);

	memcpy(&x, at, size);
	if (dtype == CK_DT_U8 || dtype == CK_DT_U16 || dtype == CK_DT_U32 ||
	    dtype == CK_DT_U64)
		ck_str_fmt(out, "%" PRIu64, x);
	else
		ck_str_fmt(out, "%" PRId64, (int64_t)(x << shift) >> shift);
}

void value_text(enum ck_dtype dtype, const void *bytes, struct ck_str *out)
{
	const unsigned char *at = bytes;

	switch (dtype) {
	case CK_DT_BOOL:
		ck_str_puts(out, *at ? "true" : "false");
		break;
	case CK_DT_U8:
	case CK_DT_I8:
	case CK_DT_U16:
	case CK_DT_I16:
	case CK_DT_U32:
	case CK_DT_I32:
	case CK_DT_U64:
	case CK_DT_I64:
	case CK_DT_INT4:
		put_integer(dtype, at, out);
		break;
	case CK_DT_F32:
		put_f32(at, out);
		break;
	case CK_DT_F64:
		put_f64(at, out);
		break;
	case CK_DT_C32:
	case CK_DT_BC32:
	case CK_DT_C64:
	case CK_DT_C128:
		put_complex(dtype, at, out);
		break;
	default:
		if (smalls[dtype].exp)
			put_small(&smalls[dtype], at, out);
		else
			put_hex(at, ck_dtype_info(dtype)->size, out);
	}
}

void values_init(struct values *v, enum ck_dtype dtype, const uint64_t *shape,
		 unsigned rank)
{
	*v = (struct values){ .dtype = dtype, .rank = rank, .nr = 1 };
	for (unsigned d = 0; d < rank; d++) {
		v->shape[d] = shape[d];
		v->nr *= shape[d];
	}
}

/* How many of the innermost lists begin, or have just ended, at @at. */
static unsigned lists_at(const struct values *v, uint64_t at)
{
	uint64_t each = 1;
	unsigned nr = 0;

	for (unsigned d = v->rank; d-- > 0; nr++) {
		each *= v->shape[d];
		if (at % each)
			break;
	}
	return nr;
}

void values_add(struct values *v, const void *bytes, uint64_t nr,
		struct ck_str *out)
{
	const unsigned char *at = bytes;
	size_t size = ck_dtype_info(v->dtype)->size;

	for (; nr; nr--, at += size) {
		if (v->at)
			ck_str_puts(out, ", ");
		for (unsigned n = lists_at(v, v->at); n; n--)
			ck_str_puts(out, "[");
		value_text(v->dtype, at, out);
		v->at++;
		for (unsigned n = lists_at(v, v->at); n; n--)
			ck_str_puts(out, "]");
	}
}
