/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare_elements.c - where elements differ, and by how much
 *
 * Two steps of a run differ in nearly every element, so these loops are as
 * fast as the files can be read: floats of 8 and 16 bits by a table of their
 * values, of 32 and 64 as they are, all else by value.h.
 */
#include "mount-helpers/compare.h"

#include "core/base/check.h"
#include "core/geom/value.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

/* What one call found, in registers. */
struct found {
	uint64_t changed, nans, at;
	double largest; /* < 0: none */
};

static inline void note(struct found *f, uint64_t i, double d)
{
	f->changed++;
	if (d > f->largest) {
		f->largest = d;
		f->at = i;
	}
	f->nans += isnan(d) ? 1 : 0;
}

#define LOOP(name, type, value)                                              \
	static void name(struct found *f, const void *a, const void *b,      \
			 uint64_t nr, const float *table)                    \
	{                                                                    \
		const type *x = a, *y = b;                                   \
                                                                             \
		(void)table;                                                 \
		for (uint64_t i = 0; i < nr; i++)                            \
			if (x[i] != y[i])                                    \
				note(f, i, fabs(value(x[i]) - value(y[i]))); \
	}

static inline float as_f32(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static inline double as_f64(uint64_t bits)
{
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

#define F32(u) ((double)as_f32(u))
#define BF16(u) ((double)as_f32((uint32_t)(u) << 16))
#define BY_TABLE(u) ((double)table[u])
LOOP(loop_f32, uint32_t, F32)
LOOP(loop_f64, uint64_t, as_f64)
LOOP(loop_bf16, uint16_t, BF16)
LOOP(loop_16, uint16_t, BY_TABLE)
LOOP(loop_8, uint8_t, BY_TABLE)

static float f16_table[1 << 16];
static float f8_table[CK_DT_NR][1 << 8];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static bool is_f8(enum ck_dtype dt)
{
	return ck_dtype_info(dt)->size == 1 &&
	       ck_value_kind(dt) == CK_VALUE_FLOAT;
}

static void make_tables(void)
{
	for (uint32_t i = 0; i < CK_ARRAY_LEN(f16_table); i++) {
		uint16_t bits = (uint16_t)i;

		f16_table[i] = (float)ck_value(CK_DT_F16, &bits, 0);
	}
	for (unsigned dt = 0; dt < CK_DT_NR; dt++)
		for (unsigned i = 0; i < 256 && is_f8(dt); i++) {
			uint8_t bits = (uint8_t)i;

			f8_table[dt][i] = (float)ck_value(dt, &bits, 0);
		}
}

static double integer_distance(enum ck_dtype dt, const void *a, const void *b)
{
	uint64_t x = ck_value_integer(dt, a), y = ck_value_integer(dt, b);
	bool less = ck_value_kind(dt) == CK_VALUE_SIGNED ?
			    (int64_t)x < (int64_t)y :
			    x < y;

	return (double)(less ? y - x : x - y);
}

static double distance(enum ck_dtype a_dtype, const void *a,
		       enum ck_dtype b_dtype, const void *b)
{
	enum ck_value_kind k = ck_value_kind(a_dtype);
	bool complex = k == CK_VALUE_COMPLEX ||
		       ck_value_kind(b_dtype) == CK_VALUE_COMPLEX;
	double re, im = 0;

	if (a_dtype == b_dtype &&
	    (k == CK_VALUE_SIGNED || k == CK_VALUE_UNSIGNED))
		return integer_distance(a_dtype, a, b);
	re = ck_value(a_dtype, a, 0) - ck_value(b_dtype, b, 0);
	if (complex) {
		double x = k == CK_VALUE_COMPLEX ? ck_value(a_dtype, a, 1) : 0;
		double y = ck_value_kind(b_dtype) == CK_VALUE_COMPLEX ?
				   ck_value(b_dtype, b, 1) :
				   0;

		im = x - y;
	}
	re = fabs(re);
	im = fabs(im);
	return isnan(im) || im > re ? im : re;
}

/* Any dtypes; elements of two dtypes are the same where their numbers are. */
static void loop_any(struct found *f, enum ck_dtype a_dtype, const char *a,
		     enum ck_dtype b_dtype, const char *b, uint64_t nr)
{
	size_t a_size = ck_dtype_info(a_dtype)->size;
	size_t b_size = ck_dtype_info(b_dtype)->size;

	for (uint64_t i = 0; i < nr; i++, a += a_size, b += b_size) {
		double d;

		if (a_dtype == b_dtype && !memcmp(a, b, a_size))
			continue;
		d = distance(a_dtype, a, b_dtype, b);
		if (a_dtype == b_dtype || (d != 0 && !isnan(d)) ||
		    (isnan(d) && isnan(ck_value(a_dtype, a, 0)) !=
					 isnan(ck_value(b_dtype, b, 0))))
			note(f, i, d);
	}
}

void compare_elements(struct compare_pair *p, uint64_t first,
		      enum ck_dtype a_dtype, const void *a,
		      enum ck_dtype b_dtype, const void *b, uint64_t nr)
{
	struct found f = { .largest = -1 };

	pthread_once(&tables_once, make_tables);
	if (a_dtype != b_dtype)
		loop_any(&f, a_dtype, a, b_dtype, b, nr);
	else if (a_dtype == CK_DT_F32)
		loop_f32(&f, a, b, nr, NULL);
	else if (a_dtype == CK_DT_F64)
		loop_f64(&f, a, b, nr, NULL);
	else if (a_dtype == CK_DT_BF16)
		loop_bf16(&f, a, b, nr, NULL);
	else if (a_dtype == CK_DT_F16)
		loop_16(&f, a, b, nr, f16_table);
	else if (is_f8(a_dtype))
		loop_8(&f, a, b, nr, f8_table[a_dtype]);
	else
		loop_any(&f, a_dtype, a, b_dtype, b, nr);
	p->changed += f.changed;
	p->nans += f.nans;
	if (f.largest > p->largest ||
	    (f.largest == p->largest && first + f.at < p->at)) {
		p->largest = f.largest;
		p->at = first + f.at;
	}
}
