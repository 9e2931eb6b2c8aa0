/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare_elements.c - where elements differ, and by how much
 *
 * Two steps of a run differ in nearly every element, so this is to be as fast
 * as the files can be read.  Floats of up to 32 bits are looked at in blocks, in
 * loops that become vectors: how many differ, and the largest difference as a
 * float; only a block whose largest may be the largest of all is looked at
 * element by element, exactly.  All else goes by value.h.
 */
#include "mount-helpers/diff/compare.h"

#include "core/base/check.h"
#include "core/base/fast.h"
#include "core/geom/cast.h"
#include "core/geom/value.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#define BLOCK 1024

/* What one call found. */
struct found {
	uint64_t changed, nans, first, at;
	double largest; /* < 0: none */
};

static inline void note(struct found *f, uint64_t i, double d)
{
	if (!f->changed++)
		f->first = i;
	if (d > f->largest) {
		f->largest = d;
		f->at = i;
	}
	f->nans += isnan(d) ? 1 : 0;
}

static void loop_f64(struct found *f, const uint64_t *a, const uint64_t *b,
		     uint64_t nr)
{
	for (uint64_t i = 0; i < nr; i++) {
		double x, y;

		memcpy(&x, &a[i], sizeof(x));
		memcpy(&y, &b[i], sizeof(y));
		if (a[i] != b[i])
			note(f, i, fabs(x - y));
	}
}

/* ---- floats of 8, 16 and 32 bits ---- */

struct block {
	const void *a, *b; /* as stored */
	unsigned size; /* of an element */
	const float *x, *y; /* as numbers */
	size_t nr;
};

#define COUNT(name, type)                                                     \
	CK_FAST static unsigned name(const type *a, const type *b, size_t nr) \
	{                                                                     \
		unsigned sum = 0;                                             \
                                                                              \
		for (size_t i = 0; i < nr; i++)                               \
			sum += a[i] != b[i];                                  \
		return sum;                                                   \
	}
COUNT(count_8, uint8_t)
COUNT(count_16, uint16_t)
COUNT(count_32, uint32_t)

static unsigned changed_in(const struct block *b)
{
	return b->size == 1 ? count_8(b->a, b->b, b->nr) :
	       b->size == 2 ? count_16(b->a, b->b, b->nr) :
			      count_32(b->a, b->b, b->nr);
}

/*
 * The largest difference, rounded to a float, whose bits rise as it does;
 * *nans: there are some that are none, which do not count.
 */
static CK_FAST float largest_in(const struct block *b, bool *nans)
{
	const float *x = b->x, *y = b->y;
	int32_t top = 0, beyond = 0;
	size_t nr = b->nr;
	float out;

	for (size_t i = 0; i < nr; i++) {
		float d = x[i] - y[i];
		int32_t u;

		memcpy(&u, &d, sizeof(u));
		u &= 0x7fffffff;
		beyond |= u > 0x7f800000;
		u = u > 0x7f800000 ? 0 : u;
		top = u > top ? u : top;
	}
	*nans = beyond;
	memcpy(&out, &top, sizeof(out));
	return out;
}

static bool differs(const struct block *b, size_t i)
{
	return memcmp((const char *)b->a + i * b->size,
		      (const char *)b->b + i * b->size, b->size) != 0;
}

/* Element by element; @first: of the block in the call. */
static void look_at_all(struct found *f, const struct block *b, uint64_t first)
{
	for (size_t i = 0; i < b->nr; i++)
		if (differs(b, i))
			note(f, first + i,
			     fabs((double)b->x[i] - (double)b->y[i]));
}

static void look_at(struct found *f, const struct block *b, uint64_t first)
{
	unsigned changed = changed_in(b);
	bool nans;
	float top;

	if (!changed)
		return;
	top = largest_in(b, &nans);
	/* what is larger, but by less than a float shows, counts too; and the
	 * first that differ are always looked at */
	if (nans || f->largest < 0 || top >= (float)f->largest)
		look_at_all(f, b, first);
	else
		f->changed += changed;
}

static float f8_table[CK_DT_NR][1 << 8];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static bool is_f8(enum ck_dtype dt)
{
	return ck_dtype_info(dt)->size == 1 &&
	       ck_value_kind(dt) == CK_VALUE_FLOAT;
}

static void make_tables(void)
{
	for (unsigned dt = 0; dt < CK_DT_NR; dt++)
		for (unsigned i = 0; i < 256 && is_f8(dt); i++) {
			uint8_t bits = (uint8_t)i;

			f8_table[dt][i] = (float)ck_value(dt, &bits, 0);
		}
}

/* All of them are floats of 32 bits too. */
static const float *numbers(enum ck_dtype dt, const void *in, float *out,
			    size_t nr)
{
	const uint8_t *bytes = in;

	if (dt == CK_DT_F32)
		return in;
	if (!is_f8(dt))
		ck_cast(dt, in, CK_DT_F32, out, nr);
	for (size_t i = 0; is_f8(dt) && i < nr; i++)
		out[i] = f8_table[dt][bytes[i]];
	return out;
}

static void loop_blocks(struct found *f, enum ck_dtype dt, const char *a,
			const char *b, uint64_t nr)
{
	unsigned size = ck_dtype_info(dt)->size;
	float x[BLOCK], y[BLOCK];

	pthread_once(&tables_once, make_tables);
	for (uint64_t i = 0; i < nr; i += BLOCK) {
		struct block block = { .a = a + i * size,
				       .b = b + i * size,
				       .size = size,
				       .nr = CK_MIN(nr - i, (uint64_t)BLOCK) };

		block.x = numbers(dt, block.a, x, block.nr);
		block.y = numbers(dt, block.b, y, block.nr);
		look_at(f, &block, i);
	}
}

/* ---- all others ---- */

static bool is_whole(enum ck_value_kind k)
{
	return k == CK_VALUE_SIGNED || k == CK_VALUE_UNSIGNED ||
	       k == CK_VALUE_BOOL;
}

/* Of up to 64 bits, which a double need not hold. */
struct whole {
	uint64_t size; /* its absolute value */
	bool below; /* 0 */
};

static struct whole whole_of(enum ck_dtype dt, const void *bytes)
{
	uint64_t x = ck_value_integer(dt, bytes);
	bool below = ck_value_kind(dt) == CK_VALUE_SIGNED && (int64_t)x < 0;

	return (struct whole){ below ? 0 - x : x, below };
}

/* The low bit, if it is cut off, still says which way to round. */
static double sum_of(uint64_t x, uint64_t y)
{
	uint64_t sum = x + y;

	if (sum >= x)
		return (double)sum;
	return (double)(sum >> 1 | (sum & 1) | UINT64_C(1) << 63) * 2;
}

static double integer_distance(struct whole x, struct whole y)
{
	if (x.below != y.below)
		return sum_of(x.size, y.size);
	return (double)(x.size < y.size ? y.size - x.size : x.size - y.size);
}

/* Whole parts are compared as integers: 0 only where it is the same number. */
static double mixed_distance(struct whole x, double y)
{
	uint64_t n;
	double rest;

	if (x.below)
		y = -y; /* as far from -x */
	if (y >= 0x1p64) /* what is over that, and what x lacks of it */
		return y - 0x1p64 + (x.size ? (double)(0 - x.size) : 0x1p64);
	if (!(y > -0x1p64)) /* NaN is none of both */
		return (double)x.size - y;
	n = (uint64_t)fabs(y);
	rest = fabs(y) - (double)n;
	if (y < 0)
		return sum_of(x.size, n) + rest;
	return x.size > n ? (double)(x.size - n) - rest :
			    (double)(n - x.size) + rest;
}

/* Part 1 of what is not complex is 0. */
static double part_of(enum ck_dtype dt, const void *bytes, unsigned part)
{
	return part && ck_value_kind(dt) != CK_VALUE_COMPLEX ?
		       0 :
		       ck_value(dt, bytes, part);
}

/* NaN where it is in one of them; 0 where two types have the same number. */
static double part_distance(enum ck_dtype a_dtype, const void *a,
			    enum ck_dtype b_dtype, const void *b, unsigned part)
{
	double x = part_of(a_dtype, a, part), y = part_of(b_dtype, b, part);

	if (!part && is_whole(ck_value_kind(a_dtype)))
		return mixed_distance(whole_of(a_dtype, a), y);
	if (!part && is_whole(ck_value_kind(b_dtype)))
		return mixed_distance(whole_of(b_dtype, b), x);
	if (x == y || (a_dtype != b_dtype && isnan(x) && isnan(y)))
		return 0;
	return fabs(x - y);
}

static double distance(enum ck_dtype a_dtype, const void *a,
		       enum ck_dtype b_dtype, const void *b)
{
	enum ck_value_kind ka = ck_value_kind(a_dtype);
	enum ck_value_kind kb = ck_value_kind(b_dtype);
	double re, im = 0;

	if (is_whole(ka) && is_whole(kb))
		return integer_distance(whole_of(a_dtype, a),
					whole_of(b_dtype, b));
	re = part_distance(a_dtype, a, b_dtype, b, 0);
	if (ka == CK_VALUE_COMPLEX || kb == CK_VALUE_COMPLEX)
		im = part_distance(a_dtype, a, b_dtype, b, 1);
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
		if (a_dtype == b_dtype || d != 0)
			note(f, i, d);
	}
}

static bool in_blocks(enum ck_dtype dt)
{
	return dt == CK_DT_F32 || dt == CK_DT_F16 || dt == CK_DT_BF16 ||
	       is_f8(dt);
}

void compare_elements(struct compare_pair *p, uint64_t first,
		      enum ck_dtype a_dtype, const void *a,
		      enum ck_dtype b_dtype, const void *b, uint64_t nr)
{
	struct found f = { .largest = -1 };

	if (a_dtype == b_dtype && in_blocks(a_dtype))
		loop_blocks(&f, a_dtype, a, b, nr);
	else if (a_dtype == b_dtype && a_dtype == CK_DT_F64)
		loop_f64(&f, a, b, nr);
	else
		loop_any(&f, a_dtype, a, b_dtype, b, nr);
	if (f.changed && (!p->changed || first + f.first < p->first))
		p->first = first + f.first;
	p->changed += f.changed;
	p->nans += f.nans;
	if (f.largest > p->largest ||
	    (f.largest == p->largest && first + f.at < p->at)) {
		p->largest = f.largest;
		p->at = first + f.at;
	}
}
