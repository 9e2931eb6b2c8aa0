/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.h - the number that an element of a tensor is
 *
 * Pure.  All floats of at most 64 bits are exact in a double; integers of 64
 * bits are where they fit, see ck_value_integer().
 */
#ifndef CK_VALUE_H
#define CK_VALUE_H

#include "core/geom/dtype.h"

enum ck_value_kind {
	CK_VALUE_NONE, /* bytes without a number: bits8, quint4x2, str */
	CK_VALUE_BOOL,
	CK_VALUE_UNSIGNED,
	CK_VALUE_SIGNED,
	CK_VALUE_FLOAT,
	CK_VALUE_COMPLEX, /* two floats: real, imaginary */
};

enum ck_value_kind ck_value_kind(enum ck_dtype dtype);
/* Of UNSIGNED, SIGNED (its two's complement) and BOOL elements. */
uint64_t ck_value_integer(enum ck_dtype dtype, const void *element);
/*
 * Of all but NONE; of a complex number part @part: 0 real, 1 imaginary.
 * Integers are rounded to the nearest double.
 */
double ck_value(enum ck_dtype dtype, const void *element, unsigned part);

#endif
