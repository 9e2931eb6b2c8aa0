/* SPDX-License-Identifier: Apache-2.0 */
/* crc32.c - by libdeflate, with the processor's own instructions; joined here */
#include "core/base/crc32.h"

#include <libdeflate.h>

#define POLYNOMIAL UINT32_C(0xedb88320) /* bits reversed */

uint32_t ck_crc32(uint32_t crc, const void *bytes, size_t len)
{
	/* of no bytes at NULL it would be the CRC of nothing */
	return len ? libdeflate_crc32(crc, bytes, len) : crc;
}

/* Product of two polynomials modulo that of the CRC; bit 31 is x^0. */
static uint32_t times(uint32_t a, uint32_t b)
{
	uint32_t sum = 0;

	for (; a; a <<= 1) {
		if (a >> 31)
			sum ^= b;
		b = b >> 1 ^ (b & 1 ? POLYNOMIAL : 0);
	}
	return sum;
}

/* Multiplies by x^(8 * len), squaring x^8. */
uint32_t ck_crc32_shift(uint32_t crc, uint64_t len)
{
	uint32_t power = UINT32_C(1) << (31 - 8);

	for (; len; len >>= 1) {
		if (len & 1)
			crc = times(power, crc);
		power = times(power, power);
	}
	return crc;
}
