/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Casts against the definition: of all values that the type has, the nearest,
 * of two the one with an even fraction.  UNSHARD_NIGHTLY: all 2^32 patterns.
 */
#include "core/geom/cast.h"

#include "core/base/check.h"
#include "core/geom/value.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The non-negative finite values of a type, rising; their bits are 0, 1, ... */
struct table {
	enum ck_dtype dtype;
	unsigned nr; /* values; one more is where overflow would be */
	double *value;
	uint32_t sign, inf; /* bits of what is too large */
	bool most; /* saturated: the largest number */
	uint32_t last; /* value that was found last: patterns often rise */
};

static struct table table_of(enum ck_dtype dtype, bool most)
{
	struct table t = { .dtype = dtype, .most = most };
	unsigned bits = ck_dtype_info(dtype)->size * 8;

	t.sign = 1u << (bits - 1);
	t.value = calloc(t.sign + 1, sizeof(double));
	while (t.nr < t.sign) {
		uint32_t b = t.nr;
		double x = ck_value(dtype, &b, 0);

		if (!isfinite(x))
			break;
		t.value[t.nr++] = x;
	}
	t.inf = most ? t.nr - 1 : t.nr;
	/* where the next would be, had it not another meaning */
	t.value[t.nr] = 2 * t.value[t.nr - 1] - t.value[t.nr - 2];
	return t;
}

static bool is_between(const struct table *t, uint32_t lo, double a)
{
	return t->value[lo] <= a && a < t->value[lo + 1];
}

static uint32_t nearest(struct table *t, float x)
{
	double a = fabs((double)x);
	uint32_t sign = signbit(x) ? t->sign : 0, lo = 0, hi = t->nr;
	double down, up;

	if (isinf(x))
		return sign | t->inf;
	if (is_between(t, t->last, a)) {
		lo = t->last;
		hi = lo + 1;
	}
	while (hi - lo > 1) { /* value[lo] <= a < value[hi] */
		uint32_t mid = (lo + hi) / 2;

		if (t->value[mid] <= a)
			lo = mid;
		else
			hi = mid;
	}
	t->last = lo;
	down = a - t->value[lo];
	up = t->value[hi] - a;
	if (up < down || (up == down && (lo & 1)))
		lo++;
	return sign | CK_MIN(lo, t->inf);
}

static void cast(const struct table *t, const float *in, void *out, size_t nr)
{
	(t->most ? ck_cast_saturated : ck_cast)(CK_DT_F32, in, t->dtype, out,
						nr);
}

/* What vectors leave over is as what they do. */
static void check_few(const struct table *t, const float *in, const char *out,
		      size_t nr)
{
	size_t size = ck_dtype_info(t->dtype)->size, n;
	uint16_t few[7];

	for (size_t i = 0; i < nr; i += n) {
		n = CK_MIN(nr - i, CK_ARRAY_LEN(few));
		cast(t, in + i, few, n);
		for (size_t k = i; k < i + n; k++)
			if (!isnan(in[k]) &&
			    memcmp((char *)few + (k - i) * size, out + k * size,
				   size) != 0)
				cr_assert(false, "%.9g in few", (double)in[k]);
	}
}

static void check(struct table *t, const uint32_t *bits, size_t nr)
{
	static uint16_t out[1 << 16];
	static float in[1 << 16];
	size_t size = ck_dtype_info(t->dtype)->size;

	memcpy(in, bits, nr * sizeof(*bits));
	cast(t, in, out, nr);
	check_few(t, in, (char *)out, nr);
	for (size_t i = 0; i < nr; i++) {
		uint32_t got = 0, want;

		memcpy(&got, (char *)out + i * size, size);
		if (isnan(in[i])) {
			if (!isnan(ck_value(t->dtype, &got, 0)))
				cr_assert(false, "NaN %08x became %x", bits[i],
					  got);
			continue;
		}
		want = nearest(t, in[i]);
		if (got != want)
			cr_assert(false, "%s: %08x (%.9g) became %x, not %x",
				  ck_dtype_info(t->dtype)->name, bits[i],
				  (double)in[i], got, want);
	}
}

/* Around each value, around each middle of two, and patterns by chance. */
static void check_some(struct table *t)
{
	static uint32_t bits[1 << 16];
	uint32_t seed = 1;
	size_t nr = 0;

	for (uint32_t i = 0; i < 2 * t->nr + 2; i++) {
		float x = (float)((t->value[i / 2] +
				   t->value[CK_MIN(i / 2 + (i & 1), t->nr)]) /
				  2);
		uint32_t u;

		memcpy(&u, &x, sizeof(u));
		for (uint32_t k = 0; k < 6; k++)
			bits[nr++] = (u + k / 2 - 1) | (k & 1 ? 1u << 31 : 0);
		if (nr + 6 > CK_ARRAY_LEN(bits)) {
			check(t, bits, nr);
			nr = 0;
		}
	}
	check(t, bits, nr);
	for (unsigned round = 0; round < 16; round++) {
		for (nr = 0; nr < CK_ARRAY_LEN(bits); nr++)
			bits[nr] = seed = seed * 1664525 + 1013904223;
		check(t, bits, nr);
	}
}

static void check_all(struct table *t)
{
	static uint32_t bits[1 << 16];

	for (uint32_t high = 0; high < 1u << 16; high++) {
		for (uint32_t low = 0; low < 1u << 16; low++)
			bits[low] = high << 16 | low;
		check(t, bits, CK_ARRAY_LEN(bits));
	}
}

static void to(enum ck_dtype dtype, bool most)
{
	struct table t = table_of(dtype, most);

	check_some(&t);
	if (getenv("UNSHARD_NIGHTLY"))
		check_all(&t);
	free(t.value);
}

Test(cast, to_bfloat16, .timeout = 3600)
{
	to(CK_DT_BF16, false);
}

Test(cast, to_float16, .timeout = 3600)
{
	to(CK_DT_F16, false);
}

Test(cast, to_float8_e4m3fn, .timeout = 3600)
{
	to(CK_DT_F8_E4M3FN, false);
}

Test(cast, to_float8_e4m3fn_saturated, .timeout = 3600)
{
	to(CK_DT_F8_E4M3FN, true);
}

Test(cast, to_float8_e5m2, .timeout = 3600)
{
	to(CK_DT_F8_E5M2, false);
}

Test(cast, to_float8_e5m2_saturated, .timeout = 3600)
{
	to(CK_DT_F8_E5M2, true);
}

/* From other types, by way of float32; a NaN stays one. */
Test(cast, saturated_is_the_largest_number_of_a_float8_only)
{
	static const double in[] = { 448,  464,	     464.1,    480,
				     1e30, -1e300,   INFINITY, -INFINITY,
				     NAN,  -57345.0, 61439,    61440 };
	static const unsigned char e4m3[] = { 0x7e, 0x7e, 0x7e, 0x7e,
					      0x7e, 0xfe, 0x7e, 0xfe,
					      0x7f, 0xfe, 0x7e, 0x7e };
	static const unsigned char e5m2[] = { 0x5f, 0x5f, 0x5f, 0x60,
					      0x7b, 0xfb, 0x7b, 0xfb,
					      0x7f, 0xfb, 0x7b, 0x7b };
	unsigned char out[CK_ARRAY_LEN(in)];
	uint8_t inf = 0x7c;
	uint16_t half;

	ck_cast_saturated(CK_DT_F64, in, CK_DT_F8_E4M3FN, out, sizeof(out));
	cr_expect_arr_eq(out, e4m3, sizeof(out));
	ck_cast_saturated(CK_DT_F64, in, CK_DT_F8_E5M2, out, sizeof(out));
	cr_expect_arr_eq(out, e5m2, sizeof(out));
	ck_cast_saturated(CK_DT_F8_E5M2, &inf, CK_DT_F8_E4M3FN, out, 1);
	cr_expect_eq(out[0], 0x7e);
	ck_cast_saturated(CK_DT_F8_E5M2, &inf, CK_DT_F8_E5M2, out, 1);
	cr_expect_eq(out[0], 0x7c);
	ck_cast_saturated(CK_DT_F64, in + 4, CK_DT_F16, &half, 1);
	cr_expect_eq(half, 0x7c00);
}

static bool is_itself(double want, double got)
{
	return isnan(want) ? isnan(got) :
			     got == want && !signbit(got) == !signbit(want);
}

/*
 * Every element of a narrow type is itself in a wider one: all of them in one
 * call, and one by one, as what vectors leave over is.
 */
Test(cast, widening_is_exact)
{
	static const enum ck_dtype from[] = { CK_DT_BF16, CK_DT_F16,
					      CK_DT_F8_E4M3FN, CK_DT_F8_E5M2 };
	static unsigned char in[2 << 16];
	static float got[1 << 16];
	static double wide[1 << 16];

	for (size_t k = 0; k < CK_ARRAY_LEN(from); k++) {
		const char *name = ck_dtype_info(from[k])->name;
		unsigned size = ck_dtype_info(from[k])->size;
		uint32_t nr = 1u << (8 * size);

		for (uint32_t i = 0; i < nr; i++)
			memcpy(in + i * size, &i, size);
		ck_cast(from[k], in, CK_DT_F32, got, nr);
		ck_cast(from[k], in, CK_DT_F64, wide, nr);
		for (uint32_t i = 0; i < nr; i++) {
			double want = ck_value(from[k], &i, 0);
			float one;

			ck_cast(from[k], &i, CK_DT_F32, &one, 1);
			cr_assert(is_itself(want, (double)got[i]) &&
					  is_itself(want, wide[i]) &&
					  is_itself(want, (double)one),
				  "%s %x", name, i);
		}
	}
}

static uint16_t f16_of(uint32_t bits, size_t nr, uint16_t *all)
{
	uint32_t in[8];

	for (size_t i = 0; i < nr; i++)
		in[i] = bits;
	ck_cast(CK_DT_F32, in, CK_DT_F16, all, nr);
	return all[0];
}

static uint32_t f32_of(uint16_t bits, size_t nr, uint32_t *all)
{
	uint16_t in[8];

	for (size_t i = 0; i < nr; i++)
		in[i] = bits;
	ck_cast(CK_DT_F16, in, CK_DT_F32, all, nr);
	return all[0];
}

/* Its bits are the same whether it is read alone or with seven others. */
Test(cast, a_nan_of_float16_has_the_same_bits_in_any_read)
{
	uint16_t narrow[8];
	uint32_t wide[8];

	for (uint32_t i = 1; i < 1 << 10; i++) {
		uint32_t f32 = 0xff800000 | i << 13 | (i & 1 ? 0x1fff : 0);
		uint16_t f16 = (uint16_t)(0xfc00 | i);
		uint16_t quiet = (uint16_t)(f16 | 0x200);

		cr_assert_eq(f16_of(f32, 1, narrow), quiet, "%x", f32);
		cr_assert_eq(f16_of(f32, 8, narrow), quiet, "%x", f32);
		f32 = 0xffc00000 | i << 13;
		cr_assert_eq(f32_of(f16, 1, wide), f32, "%x", f16);
		cr_assert_eq(f32_of(f16, 8, wide), f32, "%x", f16);
	}
	cr_assert_eq(f16_of(0x7f800001, 1, narrow), 0x7e00);
	cr_assert_eq(f16_of(0x7f800001, 8, narrow), 0x7e00);
	cr_assert_eq(f32_of(0x7c00, 1, wide), 0x7f800000);
}

/* A read may begin anywhere in an element: nothing is aligned then. */
Test(cast, from_and_to_any_address)
{
	static const enum ck_dtype types[] = { CK_DT_F64,	CK_DT_F32,
					       CK_DT_F16,	CK_DT_BF16,
					       CK_DT_F8_E4M3FN, CK_DT_F8_E5M2 };
	unsigned char in[8 * 40 + 8], out[8 * 40 + 8], want[8 * 40];
	float small[40];

	for (unsigned i = 0; i < CK_ARRAY_LEN(small); i++)
		small[i] = (float)(i % 8);
	for (size_t k = 0; k < 36; k++) {
		enum ck_dtype from = types[k / 6], to = types[k % 6];
		size_t bytes = 40u * ck_dtype_info(to)->size;

		ck_cast(CK_DT_F32, small, to, want, 40);
		for (unsigned shift = 0; shift < 64; shift++) {
			ck_cast(CK_DT_F32, small, from, in + shift % 8, 40);
			ck_cast(from, in + shift % 8, to, out + shift / 8, 40);
			cr_assert(!memcmp(out + shift / 8, want, bytes),
				  "%s to %s, shift %u",
				  ck_dtype_info(from)->name,
				  ck_dtype_info(to)->name, shift);
		}
	}
}

/* Lengths that no vector divides, next to bytes that must stay. */
Test(cast, touches_its_elements_only)
{
	float in[64];
	uint16_t out[66];

	for (unsigned i = 0; i < CK_ARRAY_LEN(in); i++)
		in[i] = (float)i;
	for (size_t nr = 0; nr <= CK_ARRAY_LEN(in); nr++) {
		memset(out, 0xaa, sizeof(out));
		ck_cast(CK_DT_F32, in, CK_DT_F16, out + 1, nr);
		cr_assert(out[0] == 0xaaaa && out[nr + 1] == 0xaaaa);
		for (uint16_t i = 0; i < nr; i++)
			cr_assert(ck_value(CK_DT_F16, &out[i + 1], 0) == i);
	}
}

Test(cast, which_there_are)
{
	cr_expect(ck_cast_has(CK_DT_F32, CK_DT_BF16));
	cr_expect(ck_cast_has(CK_DT_F8_E5M2, CK_DT_F64));
	cr_expect_not(ck_cast_has(CK_DT_I32, CK_DT_BF16));
	cr_expect_not(ck_cast_has(CK_DT_F32, CK_DT_I8));
	cr_expect_not(ck_cast_has(CK_DT_F32, CK_DT_C64));
}

/* The element of @to that is nearest to @x, by looking at all of them. */
static uint32_t nearest_of_all(enum ck_dtype to, double x)
{
	uint32_t best = 0;
	double off = INFINITY;

	for (uint32_t i = 0; i < 256; i++) {
		double v = ck_value(to, &i, 0);
		double d = fabs(v - x);

		if (!isfinite(v) || signbit(v) != signbit(x))
			continue;
		if (d < off || (d == off && !(i & 1)))
			best = i;
		off = d < off ? d : off;
	}
	return best;
}

/* float8_e5m2 has an infinity, from halfway behind its largest number on. */
static uint32_t torchs(enum ck_dtype to, double x)
{
	if (to == CK_DT_F8_E5M2 && fabs(x) >= 61440)
		return signbit(x) ? 0xfc : 0x7c;
	if (to == CK_DT_F8_E4M3FN && fabs(x) > 448)
		return signbit(x) ? 0xfe : 0x7e;
	return nearest_of_all(to, x);
}

/* What Tensor.to() of PyTorch 2.15 does, for all of them. */
Test(cast, all_16_bit_floats_as_torch_casts_them, .timeout = 60)
{
	static const enum ck_dtype from[] = { CK_DT_BF16, CK_DT_F16 };
	static const enum ck_dtype to[] = { CK_DT_F8_E4M3FN, CK_DT_F8_E5M2 };
	static unsigned char got[1 << 16];
	static uint16_t in[1 << 16];

	for (uint32_t i = 0; i < 1 << 16; i++)
		in[i] = (uint16_t)i;
	for (unsigned k = 0; k < 4; k++) {
		enum ck_dtype a = from[k / 2], b = to[k % 2];

		ck_cast_as_torch(a, in, b, got, 1 << 16);
		for (uint32_t i = 0; i < 1 << 16; i++) {
			double x = ck_value(a, &in[i], 0);
			uint32_t is = got[i];

			if (isnan(x))
				cr_assert(isnan(ck_value(b, &is, 0)), "%x", i);
			else
				cr_assert_eq(is, torchs(b, x), "%s %x: %x",
					     ck_dtype_info(b)->name, i, is);
		}
	}
}
