/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.h - floats of one type as floats of another
 *
 * Rounded to the nearest, ties to even, as IEEE 754, NumPy and PyTorch do.  A
 * NaN stays one (its payload may change), infinities and subnormals are kept;
 * what is too large becomes infinity, in float8_e4m3fn, which has none, NaN.
 * Saturated, it and infinity become the largest number of a float8, as what
 * NVIDIA calls SATFINITE; nothing else is saturated.
 * float64 is rounded to float32 first, as PyTorch does.
 *
 * Pure; any thread.
 */
#ifndef CK_CAST_H
#define CK_CAST_H

#include "core/geom/dtype.h"

/* Whether there is a cast: between the floats that have 8, 16, 32, 64 bits. */
bool ck_cast_has(enum ck_dtype from, enum ck_dtype to);
/* @nr elements; @in and @out do not overlap. */
void ck_cast(enum ck_dtype from, const void *in, enum ck_dtype to, void *out,
	     size_t nr);
void ck_cast_saturated(enum ck_dtype from, const void *in, enum ck_dtype to,
		       void *out, size_t nr);

/* As PyTorch 2.15 by Tensor.to(): float8_e4m3fn saturated, the others not. */
void ck_cast_as_torch(enum ck_dtype from, const void *in, enum ck_dtype to,
		      void *out, size_t nr);

#endif
