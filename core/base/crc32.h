/* SPDX-License-Identifier: Apache-2.0 */
/* crc32.h - the CRC-32 of zlib, PNG and zip, of @len bytes more */
#ifndef CK_CRC32_H
#define CK_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* @crc is 0 for the first bytes, then what the call before returned. */
uint32_t ck_crc32(uint32_t crc, const void *bytes, size_t len);
/*
 * What @crc of some bytes becomes when @len more follow, but for their own:
 * the CRC of AB is ck_crc32_shift(crc of A, len of B) ^ crc of B.
 */
uint32_t ck_crc32_shift(uint32_t crc, uint64_t len);
/* That of AB, from those of A and of B, which is @len bytes long. */
static inline uint32_t ck_crc32_join(uint32_t a, uint32_t b, uint64_t len)
{
	return ck_crc32_shift(a, len) ^ b;
}

#endif
