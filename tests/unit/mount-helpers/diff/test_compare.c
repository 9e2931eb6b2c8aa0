/* SPDX-License-Identifier: Apache-2.0 */
/* Differences of elements of every float type, against one after the other. */
#include "core/base/check.h"
#include "core/geom/value.h"
#include "mount-helpers/diff/compare.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NR 5000 /* some blocks, and a part of one */

static unsigned char a[NR * 8], b[NR * 8];
static unsigned seed;

static void naive(struct compare_pair *p, uint64_t first, enum ck_dtype dt)
{
	size_t size = ck_dtype_info(dt)->size;

	for (uint64_t i = 0; i < NR; i++) {
		const void *x = a + i * size, *y = b + i * size;
		double d = fabs(ck_value(dt, x, 0) - ck_value(dt, y, 0));

		if (!memcmp(x, y, size))
			continue;
		if (!p->changed++)
			p->first = first + i;
		p->nans += isnan(d) ? 1 : 0;
		if (d > p->largest) {
			p->largest = d;
			p->at = first + i;
		}
	}
}

static void check(enum ck_dtype dt, const char *what)
{
	struct compare_pair got = { .largest = -1 }, want = { .largest = -1 };

	naive(&want, 100, dt);
	compare_elements(&got, 100, dt, a, dt, b, NR);
	cr_assert(got.changed == want.changed && got.nans == want.nans &&
			  got.largest == want.largest &&
			  got.first == want.first &&
			  (want.largest < 0 || got.at == want.at),
		  "%s, %s: %lu changed from %lu, %lu NaN, %.17g at %lu, not "
		  "%lu from %lu, %lu, %.17g at %lu",
		  ck_dtype_info(dt)->name, what, got.changed, got.first,
		  got.nans, got.largest, got.at, want.changed, want.first,
		  want.nans, want.largest, want.at);
}

static void randomly(unsigned char *to, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] = (unsigned char)(rand_r(&seed) >> 7);
}

/* Any bits: NaN, infinities and subnormals among them. */
static void any_bits(enum ck_dtype dt)
{
	size_t size = ck_dtype_info(dt)->size;

	randomly(a, sizeof(a));
	randomly(b, sizeof(b));
	check(dt, "any bits");
	memcpy(b, a, sizeof(b));
	check(dt, "the same");
	for (int i = 0; i < 20; i++)
		randomly(b + (size_t)rand_r(&seed) % NR * size, size);
	check(dt, "some");
	memset(b, 0, sizeof(b));
	memset(a, 0, sizeof(a));
	for (size_t i = 0; i < NR; i += 3)
		a[i * size + size - 1] = 0x80;
	check(dt, "the sign of 0");
}

Test(compare, elements_of_all_floats)
{
	for (unsigned dt = 0; dt < CK_DT_NR; dt++)
		if (ck_value_kind(dt) == CK_VALUE_FLOAT &&
		    ck_dtype_info(dt)->size <= 8)
			for (seed = 1; seed < 30; seed += 7)
				any_bits(dt);
}

static void put(size_t i, float x, float y)
{
	memcpy(a + i * 4, &x, 4);
	memcpy(b + i * 4, &y, 4);
}

/* Larger by less than a float can say, in a later block; and as large. */
Test(compare, the_first_of_the_largest_exactly)
{
	for (size_t i = 0; i < NR; i++)
		put(i, 1, 1.5f);
	put(500, 16777216, 0);
	put(2500, 16777216, -0.25f);
	put(3500, 16777216, -0.25f);
	check(CK_DT_F32, "closely");
	put(4500, INFINITY, 1);
	check(CK_DT_F32, "infinity");
	put(4900, 3e38f, -3e38f);
	put(4500, 1, 1);
	check(CK_DT_F32, "more than a float holds");
	put(100, NAN, 1);
	put(101, NAN, -NAN);
	check(CK_DT_F32, "NaN");
}

static struct compare_pair pair(enum ck_dtype x_dtype, const void *x,
				enum ck_dtype y_dtype, const void *y)
{
	struct compare_pair p = { .largest = -1 };

	compare_elements(&p, 0, x_dtype, x, y_dtype, y, 1);
	return p;
}

Test(compare, numbers_of_two_types)
{
	uint64_t big = (UINT64_C(1) << 53) + 1, most = UINT64_MAX;
	int64_t less = INT64_C(1) << 53, below = -1;
	uint32_t one = 1;
	float c[2] = { 1, NAN }, f = INFINITY;
	double d[2] = { INFINITY, 2 }, same[2] = { INFINITY, NAN };
	float e[2] = { INFINITY, 1 };

	cr_expect_eq(pair(CK_DT_U64, &big, CK_DT_I64, &less).changed, 1);
	cr_expect_eq(pair(CK_DT_U64, &big, CK_DT_I64, &less).largest, 1);
	cr_expect_eq(pair(CK_DT_U64, &most, CK_DT_I64, &below).largest, 0x1p64);
	cr_expect_eq(pair(CK_DT_I64, &below, CK_DT_U32, &one).largest, 2);
	/* only one part of a complex number says that they differ */
	cr_expect_eq(pair(CK_DT_U32, &one, CK_DT_C64, c).nans, 1);
	cr_expect_eq(pair(CK_DT_C64, e, CK_DT_C128, d).largest, 1);
	c[0] = INFINITY;
	cr_expect_eq(pair(CK_DT_C64, c, CK_DT_C128, same).changed, 0);
	cr_expect_eq(pair(CK_DT_F32, &f, CK_DT_F64, d).changed, 0);
}

/* Known answers, both ways round. */
static void apart(enum ck_dtype dt, uint64_t x, double y, double want)
{
	struct compare_pair p = pair(dt, &x, CK_DT_F64, &y);
	struct compare_pair q = pair(CK_DT_F64, &y, dt, &x);

	cr_expect(p.largest == (want == 0 ? -1 : want) &&
			  p.changed == (want != 0) && p.largest == q.largest &&
			  p.changed == q.changed,
		  "%s %lx and %a: %a, %a, not %a", ck_dtype_info(dt)->name, x,
		  y, p.largest, q.largest, want);
}

Test(compare, integers_that_no_float_holds)
{
	uint64_t odd = (UINT64_C(1) << 53) + 1, top = INT64_MAX;
	float f = 0x1p63f, c[2] = { 0x1p63f, 0 };

	apart(CK_DT_I64, odd, 0x1p53, 1);
	apart(CK_DT_I64, odd, 0x1p53 + 2, 1);
	apart(CK_DT_I64, 0 - odd, -0x1p53, 1);
	apart(CK_DT_I64, odd, -1, 0x1p53 + 2);
	apart(CK_DT_I64, odd - 1, 0x1p53, 0);
	apart(CK_DT_I64, odd, 0.25, 0x1p53);
	apart(CK_DT_I64, 2, 2.5, 0.5);
	apart(CK_DT_I64, 3, 2.5, 0.5);
	apart(CK_DT_I64, (uint64_t)-3, -2.5, 0.5);
	apart(CK_DT_I64, (uint64_t)-3, 2.5, 5.5);
	apart(CK_DT_I64, 0, -0.0, 0);
	apart(CK_DT_I64, top, 0x1p63, 1);
	apart(CK_DT_I64, top + 1, -0x1p63, 0);
	apart(CK_DT_I64, top + 1, 0x1p63, 0x1p64);
	apart(CK_DT_I64, top + 1, -0x1p64, 0x1p63);
	apart(CK_DT_U64, top + 1, 0x1p63, 0);
	apart(CK_DT_U64, UINT64_MAX, 0x1p64, 1);
	apart(CK_DT_U64, UINT64_MAX, 0x1p64 + 4096, 4097);
	apart(CK_DT_U64, UINT64_MAX, -1, 0x1p64);
	apart(CK_DT_U64, 0, 0x1p64, 0x1p64);
	apart(CK_DT_U64, 7, -INFINITY, INFINITY);
	apart(CK_DT_U64, UINT64_MAX, INFINITY, INFINITY);
	cr_expect_eq(pair(CK_DT_I64, &top, CK_DT_F32, &f).largest, 1);
	cr_expect_eq(pair(CK_DT_C64, c, CK_DT_I64, &top).largest, 1);
	f = NAN;
	cr_expect_eq(pair(CK_DT_I64, &top, CK_DT_F32, &f).nans, 1);
}
