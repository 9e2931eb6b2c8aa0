/* SPDX-License-Identifier: Apache-2.0 */
/*
 * values.h - elements of a tensor as JSON
 *
 * Integers are exact; floats have as many digits as give the same float32, or
 * float64, back; what JSON has no number for is "NaN", "Infinity" or "-Infinity"; a complex
 * number is [re, im]; an element without a value (bits8, quint4x2) is its bytes
 * in hexadecimal, first byte first.
 */
#ifndef VALUES_H
#define VALUES_H

#include "core/base/limits.h"
#include "core/base/str.h"
#include "core/geom/dtype.h"

/* Elements that come in row-major order -> lists in lists. */
struct values {
	enum ck_dtype dtype;
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
	uint64_t nr, at; /* elements in all, and so far */
};

void values_init(struct values *v, enum ck_dtype dtype, const uint64_t *shape,
		 unsigned rank);
/* The next @nr elements, at @bytes.  With the last one every list is closed. */
void values_add(struct values *v, const void *bytes, uint64_t nr,
		struct ck_str *out);
/* One element. */
void value_text(enum ck_dtype dtype, const void *bytes, struct ck_str *out);

#endif
