/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c - any bytes as the name of one file
 *
 * The plain form can be turned back into the name; the hashed form cannot, so
 * the catalog keeps the true name beside it.
 */
#include "core/catalog/names.h"

#include "core/base/utf8.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define CUT_AT 200

static bool must_escape(unsigned char c, bool first)
{
	return c < 0x21 || c == 0x7f || c == '/' || c == '%' ||
	       (first && c == '.');
}

/* Writes whole pieces while they fit into @max bytes; false: not all did. */
static bool escape(const char *name, size_t len, size_t max, char *out,
		   size_t *out_len)
{
	static const char hex[] = "0123456789ABCDEF";
	const unsigned char *s = (const unsigned char *)name;
	size_t n = 0;

	for (size_t i = 0; i < len;) {
		size_t step = ck_utf8_len(s + i, len - i);
		bool bad = !step || must_escape(s[i], i == 0);
		size_t width = bad ? 3 : step;

		*out_len = n;
		if (n + width > max)
			return false;
		if (bad) {
			out[n] = '%';
			out[n + 1] = hex[s[i] >> 4];
			out[n + 2] = hex[s[i] & 15];
			step = 1;
		} else {
			memcpy(out + n, s + i, step);
		}
		n += width;
		i += step;
	}
	*out_len = n;
	return true;
}

size_t ck_name_encode_hashed(const char *name, size_t len, uint64_t seed,
			     char out[CK_FILE_NAME_MAX + 1])
{
	size_t n = 0;

	escape(name, len, CUT_AT, out, &n);
	return n + (size_t)snprintf(out + n, CK_FILE_NAME_MAX + 1 - n,
				    "~%016" PRIx64,
				    XXH3_64bits_withSeed(name, len, seed));
}

size_t ck_name_encode(const char *name, size_t len,
		      char out[CK_FILE_NAME_MAX + 1])
{
	size_t n = 0;

	if (!len) {
		memcpy(out, "%00", 4);
		return 3;
	}
	if (!escape(name, len, CK_FILE_NAME_MAX, out, &n))
		return ck_name_encode_hashed(name, len, 0, out);
	out[n] = '\0';
	return n;
}
