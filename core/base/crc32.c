/* SPDX-License-Identifier: Apache-2.0 */
/* crc32.c - eight tables, so that eight bytes go at a time */
#include "core/base/crc32.h"

#include "core/base/le.h"

#include <pthread.h>

#define POLYNOMIAL UINT32_C(0xedb88320) /* bits reversed */

static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int bit = 0; bit < 8; bit++)
			c = c >> 1 ^ (c & 1 ? POLYNOMIAL : 0);
		table[0][i] = c;
	}
	for (unsigned k = 1; k < 8; k++)
		for (unsigned i = 0; i < 256; i++)
			table[k][i] = table[k - 1][i] >> 8 ^
				      table[0][table[k - 1][i] & 255];
}

uint32_t ck_crc32(uint32_t crc, const void *bytes, size_t len)
{
	const unsigned char *p = bytes;

	pthread_once(&once, make_table);
	crc = ~crc;
	for (; len >= 8; len -= 8, p += 8) {
		uint32_t a = crc ^ ck_le32(p), b = ck_le32(p + 4);

		crc = table[7][a & 255] ^ table[6][a >> 8 & 255] ^
		      table[5][a >> 16 & 255] ^ table[4][a >> 24] ^
		      table[3][b & 255] ^ table[2][b >> 8 & 255] ^
		      table[1][b >> 16 & 255] ^ table[0][b >> 24];
	}
	for (; len; len--, p++)
		crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
	return ~crc;
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
