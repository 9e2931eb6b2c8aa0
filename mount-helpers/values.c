/* SPDX-License-Identifier: Apache-2.0 */
/* values.c - little-endian elements of every dtype -> JSON text */
#include "mount-helpers/values.h"

#include "core/geom/value.h"

#include <inttypes.h>
#include <math.h>

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

static void put_hex(const unsigned char *at, size_t len, struct ck_str *out)
{
	ck_str_puts(out, "\"");
	for (size_t i = 0; i < len; i++)
		ck_str_fmt(out, "%02x", at[i]);
	ck_str_puts(out, "\"");
}

void value_text(enum ck_dtype dtype, const void *bytes, struct ck_str *out)
{
	bool wide = dtype == CK_DT_F64 || dtype == CK_DT_C128;

	switch (ck_value_kind(dtype)) {
	case CK_VALUE_NONE:
		put_hex(bytes, ck_dtype_info(dtype)->size, out);
		break;
	case CK_VALUE_BOOL:
		ck_str_puts(out,
			    ck_value_integer(dtype, bytes) ? "true" : "false");
		break;
	case CK_VALUE_UNSIGNED:
		ck_str_fmt(out, "%" PRIu64, ck_value_integer(dtype, bytes));
		break;
	case CK_VALUE_SIGNED:
		ck_str_fmt(out, "%" PRId64,
			   (int64_t)ck_value_integer(dtype, bytes));
		break;
	case CK_VALUE_FLOAT:
		put_double(out, ck_value(dtype, bytes, 0), wide ? 17 : 9);
		break;
	case CK_VALUE_COMPLEX:
		ck_str_puts(out, "[");
		put_double(out, ck_value(dtype, bytes, 0), wide ? 17 : 9);
		ck_str_puts(out, ", ");
		put_double(out, ck_value(dtype, bytes, 1), wide ? 17 : 9);
		ck_str_puts(out, "]");
		break;
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
