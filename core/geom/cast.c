/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.c - blocks of floats by way of float32
 *
 * All of at most 32 bits are exact in float32.  Loops over whole blocks are
 * plain, so that the compiler uses vectors where it may; what a processor has
 * of its own for float16 is asked for at run time.
 */
#include "core/geom/cast.h"

#include "core/base/check.h"
#include "core/base/fast.h"

#include <math.h>
#include <string.h>

#define BLOCK 1024

/* One loop for every processor, and once more for those with wider vectors. */
#if defined(__x86_64__)
#define LOOP(name, type_in, type_out, value)                               \
	CK_FAST static void name##_plain(const type_in *in, type_out *out, \
					 size_t nr)                        \
	{                                                                  \
		for (size_t i = 0; i < nr; i++)                            \
			out[i] = (type_out)(value(in[i]));                 \
	}                                                                  \
	CK_FAST __attribute__((target("avx2"))) static void name##_avx2(   \
		const type_in *in, type_out *out, size_t nr)               \
	{                                                                  \
		for (size_t i = 0; i < nr; i++)                            \
			out[i] = (type_out)(value(in[i]));                 \
	}                                                                  \
	static void name(const type_in *in, type_out *out, size_t nr)      \
	{                                                                  \
		if (__builtin_cpu_supports("avx2"))                        \
			name##_avx2(in, out, nr);                          \
		else                                                       \
			name##_plain(in, out, nr);                         \
	}
#else
#define LOOP(name, type_in, type_out, value)                                  \
	CK_FAST static void name(const type_in *in, type_out *out, size_t nr) \
	{                                                                     \
		for (size_t i = 0; i < nr; i++)                               \
			out[i] = (type_out)(value(in[i]));                    \
	}
#endif
#define INLINE inline __attribute__((always_inline))

static INLINE uint32_t bits_of(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof(u));
	return u;
}

static INLINE float of_bits(uint32_t u)
{
	float x;

	memcpy(&x, &u, sizeof(x));
	return x;
}

/* ---- to float32: exact ---- */

static INLINE float bf16_value(uint16_t u)
{
	return of_bits((uint32_t)u << 16);
}
LOOP(from_bf16, uint16_t, float, bf16_value)

/*
 * @bits without the sign, of which @man are the fraction: moved to where
 * float32 has them, and the exponent with them.  Subnormals are the multiples of
 * the least; a processor is slow where it meets them as floats.
 */
static INLINE uint32_t from_small(uint32_t bits, unsigned man, uint32_t bias)
{
	float least = of_bits((127 + 1 - bias - man) << 23);
	uint32_t tiny = bits_of((float)(int32_t)bits * least);
	uint32_t normal = (bits << (23 - man)) + ((127 - bias) << 23);

	return bits >> man ? normal : tiny;
}

static INLINE float f16_value(uint16_t in)
{
	uint32_t sign = (uint32_t)(in & 0x8000) << 16;
	uint32_t rest = in & 0x7fff;
	uint32_t u = from_small(rest, 10, 15);

	u = rest >= 0x7c00 ? rest << 13 | 0x7f800000 : u;
	u |= rest > 0x7c00 ? 0x400000 : 0; /* quiet, as F16C has it */
	return of_bits(u | sign);
}
LOOP(from_f16_soft, uint16_t, float, f16_value)

static INLINE float e4m3fn_value(uint8_t in)
{
	uint32_t sign = (uint32_t)(in & 0x80) << 24;
	uint32_t rest = in & 0x7f;
	uint32_t u = from_small(rest, 3, 7);

	u = rest == 0x7f ? 0x7fc00000 : u;
	return of_bits(u | sign);
}
LOOP(from_e4m3fn, uint8_t, float, e4m3fn_value)

static INLINE float e5m2_value(uint8_t in)
{
	uint32_t sign = (uint32_t)(in & 0x80) << 24;
	uint32_t rest = in & 0x7f;
	uint32_t u = from_small(rest, 2, 15);

	u = rest >= 0x7c ? rest << 21 | 0x7f800000 : u;
	return of_bits(u | sign);
}
LOOP(from_e5m2, uint8_t, float, e5m2_value)

static void from_f64(const double *in, float *out, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		out[i] = (float)in[i];
}

/* ---- from float32: rounded ---- */

static INLINE uint32_t as_bf16(float x)
{
	uint32_t u = bits_of(x);
	uint32_t even = (u + 0x7fff + (u >> 16 & 1)) >> 16;

	return (u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40 : even;
}
LOOP(to_bf16, float, uint16_t, as_bf16)

/*
 * @man bits of fraction, exponents down to 2^@low (of the least normal): below
 * that, adding a number whose last place is the least subnormal rounds.
 * @inf: the bits of infinity, or of what overflow is; from @over on.
 */
static INLINE uint32_t to_small(float x, unsigned man, int low, uint32_t over,
				uint32_t inf, uint32_t nan)
{
	uint32_t u = bits_of(x), sign = u & 0x80000000;
	uint32_t normal, tiny, half;
	unsigned drop = 23 - man;
	float magic = of_bits((uint32_t)(127 + low + (int)drop) << 23);

	u ^= sign;
	half = (1u << (drop - 1)) - 1 + (u >> drop & 1);
	normal = (u - ((uint32_t)(126 + low) << 23) + half) >> drop;
	tiny = bits_of(of_bits(u) + magic) - bits_of(magic);
	if (u > 0x7f800000)
		normal = nan;
	else if (u >= over)
		normal = inf;
	return u < (uint32_t)(127 + low) << 23 ? tiny : normal;
}

static INLINE uint32_t sign_of(float x, unsigned bits)
{
	return bits_of(x) >> 31 << (bits - 1);
}

/*
 * Overflow begins halfway to what would be the next: 65520, 61440; 480.  A NaN
 * is as F16C makes it, which does only eight at a time.
 */
static INLINE uint32_t as_f16(float x)
{
	uint32_t nan = 0x7e00 | (bits_of(x) >> 13 & 0x1ff);

	return to_small(x, 10, -14, 0x477ff000, 0x7c00, nan) | sign_of(x, 16);
}
LOOP(to_f16_soft, float, uint16_t, as_f16)

static INLINE uint32_t as_e5m2(float x)
{
	return to_small(x, 2, -14, 0x47700000, 0x7c, 0x7f) | sign_of(x, 8);
}
LOOP(to_e5m2, float, uint8_t, as_e5m2)

static INLINE uint32_t as_e5m2_most(float x)
{
	return to_small(x, 2, -14, 0x47700000, 0x7b, 0x7f) | sign_of(x, 8);
}
LOOP(to_e5m2_most, float, uint8_t, as_e5m2_most)

/* 448 is the largest; halfway to 480, which is NaN, ties to the even 448. */
static INLINE uint32_t as_e4m3fn(float x)
{
	return to_small(x, 3, -6, 0x43e80001, 0x7f, 0x7f) | sign_of(x, 8);
}
LOOP(to_e4m3fn, float, uint8_t, as_e4m3fn)

static INLINE uint32_t as_e4m3fn_most(float x)
{
	return to_small(x, 3, -6, 0x43e80001, 0x7e, 0x7f) | sign_of(x, 8);
}
LOOP(to_e4m3fn_most, float, uint8_t, as_e4m3fn_most)

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

__attribute__((target("avx,f16c"))) static void to_f16_f16c(const float *in,
							    uint16_t *out,
							    size_t nr)
{
	size_t i = 0;

	for (; i + 8 <= nr; i += 8)
		_mm_storeu_si128((__m128i *)(void *)(out + i),
				 _mm256_cvtps_ph(_mm256_loadu_ps(in + i),
						 _MM_FROUND_TO_NEAREST_INT));
	to_f16_soft(in + i, out + i, nr - i);
}

__attribute__((target("avx,f16c"))) static void from_f16_f16c(
	const uint16_t *in, float *out, size_t nr)
{
	size_t i = 0;

	for (; i + 8 <= nr; i += 8)
		_mm256_storeu_ps(
			out + i,
			_mm256_cvtph_ps(_mm_loadu_si128(
				(const __m128i *)(const void *)(in + i))));
	from_f16_soft(in + i, out + i, nr - i);
}

/* Asked once: in a virtual machine the question takes microseconds. */
static bool has_f16c(void)
{
	static _Atomic int known; /* 0: not yet; 1: no; 2: yes */
	unsigned a, b, c = 0, d;
	int was = known;

	if (!was) {
		was = 1 + (__builtin_cpu_supports("avx") &&
			   __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C));
		known = was;
	}
	return was == 2;
}

static void to_f16(const float *in, uint16_t *out, size_t nr)
{
	if (has_f16c())
		to_f16_f16c(in, out, nr);
	else
		to_f16_soft(in, out, nr);
}

static void from_f16(const uint16_t *in, float *out, size_t nr)
{
	if (has_f16c())
		from_f16_f16c(in, out, nr);
	else
		from_f16_soft(in, out, nr);
}
#else
#define to_f16 to_f16_soft
#define from_f16 from_f16_soft
#endif

/* ---- both ---- */

static bool castable(enum ck_dtype dt)
{
	return dt == CK_DT_F64 || dt == CK_DT_F32 || dt == CK_DT_F16 ||
	       dt == CK_DT_BF16 || dt == CK_DT_F8_E4M3FN || dt == CK_DT_F8_E5M2;
}

bool ck_cast_has(enum ck_dtype from, enum ck_dtype to)
{
	return castable(from) && castable(to);
}

static void widen(enum ck_dtype from, const void *in, float *out, size_t nr)
{
	switch (from) {
	case CK_DT_F64:
		from_f64(in, out, nr);
		break;
	case CK_DT_F16:
		from_f16(in, out, nr);
		break;
	case CK_DT_BF16:
		from_bf16(in, out, nr);
		break;
	case CK_DT_F8_E4M3FN:
		from_e4m3fn(in, out, nr);
		break;
	case CK_DT_F8_E5M2:
		from_e5m2(in, out, nr);
		break;
	default:
		memcpy(out, in, nr * sizeof(*out));
	}
}

static void narrow(const float *in, enum ck_dtype to, bool most, void *out,
		   size_t nr)
{
	switch (to) {
	case CK_DT_F64:
		for (size_t i = 0; i < nr; i++)
			((double *)out)[i] = (double)in[i];
		break;
	case CK_DT_F16:
		to_f16(in, out, nr);
		break;
	case CK_DT_BF16:
		to_bf16(in, out, nr);
		break;
	case CK_DT_F8_E4M3FN:
		(most ? to_e4m3fn_most : to_e4m3fn)(in, out, nr);
		break;
	case CK_DT_F8_E5M2:
		(most ? to_e5m2_most : to_e5m2)(in, out, nr);
		break;
	default:
		memcpy(out, in, nr * sizeof(*in));
	}
}

static bool is_aligned(const void *at, size_t size)
{
	return (uintptr_t)at % size == 0;
}

/* @nr of at most BLOCK; what is float32 and lies well is not copied first. */
static void cast_block(enum ck_dtype from, const void *in, enum ck_dtype to,
		       bool most, void *out, size_t nr)
{
	size_t a = ck_dtype_info(from)->size, b = ck_dtype_info(to)->size;
	double there[BLOCK]; /* room for any of the types, and aligned */
	float wide[BLOCK];
	void *end = is_aligned(out, b) ? out : there;

	if (!is_aligned(in, a))
		in = memcpy(there, in, nr * a);
	if (from != CK_DT_F32) {
		widen(from, in, wide, nr);
		in = wide;
	} else if (in == end) {
		in = memcpy(wide, in, nr * a);
	}
	narrow(in, to, most, end, nr);
	if (end != out)
		memcpy(out, end, nr * b);
}

/* @most: what is too large is the largest number. */
static void cast(enum ck_dtype from, const void *in, enum ck_dtype to,
		 bool most, void *out, size_t nr)
{
	size_t a = ck_dtype_info(from)->size, b = ck_dtype_info(to)->size, n;

	if (from == to) {
		memcpy(out, in, nr * a);
		return;
	}
	for (size_t i = 0; i < nr; i += n) {
		n = CK_MIN(nr - i, (size_t)BLOCK);
		cast_block(from, (const char *)in + i * a, to, most,
			   (char *)out + i * b, n);
	}
}

void ck_cast(enum ck_dtype from, const void *in, enum ck_dtype to, void *out,
	     size_t nr)
{
	cast(from, in, to, false, out, nr);
}

void ck_cast_saturated(enum ck_dtype from, const void *in, enum ck_dtype to,
		       void *out, size_t nr)
{
	cast(from, in, to, true, out, nr);
}

void ck_cast_as_torch(enum ck_dtype from, const void *in, enum ck_dtype to,
		      void *out, size_t nr)
{
	cast(from, in, to, to == CK_DT_F8_E4M3FN, out, nr);
}
