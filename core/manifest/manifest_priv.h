/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest_priv.h - the bytes of a manifest; docs/manifest.md
 *
 *	head | files | tensors | blocks | names | sum
 *
 * All integers are little-endian.
 */
#ifndef CK_MANIFEST_PRIV_H
#define CK_MANIFEST_PRIV_H

#include "core/base/le.h"
#include "core/manifest/manifest.h"

#define CK_MF_MAGIC "unshard\x8d" /* never UTF-8, never ASCII */
#define CK_MF_VERSION 1
#define CK_MF_SHIFT_MIN 12
#define CK_MF_SHIFT_MAX 30

enum {
	CK_MF_HEAD = 80, /* bytes, and where in it: */
	CK_MF_AT_VERSION = 8,
	CK_MF_AT_SHIFT = 12,
	CK_MF_AT_LEN = 16,
	CK_MF_AT_FILES = 24,
	CK_MF_AT_TENSORS = 32,
	CK_MF_AT_BLOCKS = 40,
	CK_MF_AT_STRS = 48,
	CK_MF_AT_MADE = 56,
	CK_MF_AT_ZERO = 64, /* 16 bytes, zero */
	CK_MF_SUM = 16, /* at the end: XXH3-128 of all bytes before */
};

enum {
	CK_MF_FILE = 48,
	CK_MF_FILE_SIZE = 0,
	CK_MF_FILE_FIRST = 8,
	CK_MF_FILE_DIGEST = 16,
	CK_MF_FILE_NAME = 32, /* u32 into names, u32 length; then u64 zero */
	CK_MF_FILE_ZERO = 40,
};

enum {
	CK_MF_TENSOR = 48,
	CK_MF_TENSOR_SIZE = 0,
	CK_MF_TENSOR_DIGEST = 8,
	CK_MF_TENSOR_TREE = 24, /* u32, u32 */
	CK_MF_TENSOR_NAME = 32, /* u32, u32 */
	CK_MF_TENSOR_KNOWN = 40, /* u64: 0 or 1 */
};

struct ck_digest ck_digest_bytes(const void *bytes, size_t len);

static inline struct ck_digest ck_mf_digest(const unsigned char *at)
{
	return (struct ck_digest){ .lo = ck_le64(at), .hi = ck_le64(at + 8) };
}

static inline void ck_mf_digest_put(unsigned char *at,
				    const struct ck_digest *d)
{
	ck_le64_put(at, d->lo);
	ck_le64_put(at + 8, d->hi);
}

/* As both tables are sorted. */
static inline int ck_mf_cmp(const char *a, size_t a_len, const char *b,
			    size_t b_len)
{
	int c = memcmp(a, b, a_len < b_len ? a_len : b_len);

	return c ? c : (a_len > b_len) - (a_len < b_len);
}

static inline uint64_t ck_mf_nr_blocks(uint64_t size, unsigned shift)
{
	return (size >> shift) + !!(size & ((UINT64_C(1) << shift) - 1));
}

#endif
