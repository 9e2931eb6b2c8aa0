/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_unset.c - stores through maps, which come back as whole pages
 *
 * Nobody says which bytes of a page a program has stored into.  So bytes that
 * were not written are shown to a map as elements of a value that no data has,
 * a NaN with bits of its own, and what still is that value when the page comes
 * back was not written by it.  Types that have no such value have none.
 */
#include "core/slices/slices_priv.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <string.h>

/* NaNs are signalling ones: arithmetic does not give them. */
static const struct ck_unset {
	uint8_t dtype, size;
	unsigned char v[8]; /* repeated, where an element is larger */
} values[] = {
	{ CK_DT_F64, 8, { 0xe1, 0xa5, 0xb5, 0x93, 0xa5, 0xe1, 0xf5, 0x7f } },
	{ CK_DT_C128, 8, { 0xe1, 0xa5, 0xb5, 0x93, 0xa5, 0xe1, 0xf5, 0x7f } },
	{ CK_DT_F32, 4, { 0xe1, 0xa5, 0xb5, 0x7f } },
	{ CK_DT_C64, 4, { 0xe1, 0xa5, 0xb5, 0x7f } },
	{ CK_DT_BF16, 2, { 0xb5, 0x7f } },
	{ CK_DT_F16, 2, { 0x5a, 0x7d } },
	{ CK_DT_F8_E4M3FN, 1, { 0xff } },
	{ CK_DT_F8_E5M2, 1, { 0xfd } },
	{ CK_DT_BOOL, 1, { 0xb5 } },
	{ CK_DT_I32, 4, { 0xe1, 0xa5, 0xb5, 0x93 } },
	{ CK_DT_U32, 4, { 0xe1, 0xa5, 0xb5, 0x93 } },
	{ CK_DT_I64, 8, { 0xe1, 0xa5, 0xb5, 0x93, 0xa5, 0xe1, 0xf5, 0x93 } },
	{ CK_DT_U64, 8, { 0xe1, 0xa5, 0xb5, 0x93, 0xa5, 0xe1, 0xf5, 0x93 } },
};

const struct ck_unset *ck_unset_of(uint8_t dtype)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(values); i++)
		if (values[i].dtype == dtype)
			return &values[i];
	return NULL;
}

unsigned ck_unset_size(const struct ck_unset *u)
{
	return u->size;
}

void ck_unset_fill(const struct ck_unset *u, void *buf, size_t len,
		   uint64_t phase)
{
	unsigned char *to = buf;

	for (size_t i = 0; i < len; i++)
		to[i] = u->v[(phase + i) % u->size];
}

/* Bytes from @at to the end of its element. */
static size_t element(const struct ck_unset *u, size_t len, uint64_t phase,
		      size_t at)
{
	return CK_MIN(len - at, u->size - (size_t)((phase + at) % u->size));
}

static bool is_unset(const struct ck_unset *u, const unsigned char *v,
		     size_t len, uint64_t phase)
{
	return !memcmp(v, u->v + phase % u->size, len);
}

bool ck_unset_next(const struct ck_unset *u, const void *buf, size_t len,
		   uint64_t phase, size_t *at, size_t *nr)
{
	const unsigned char *v = buf;
	size_t n, end;

	for (; *at < len; *at += n) {
		n = element(u, len, phase, *at);
		if (!is_unset(u, v + *at, n, phase + *at))
			break;
	}
	for (end = *at; end < len; end += n) {
		n = element(u, len, phase, end);
		if (is_unset(u, v + end, n, phase + end))
			break;
	}
	*nr = end - *at;
	return *nr;
}
