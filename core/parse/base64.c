/* SPDX-License-Identifier: Apache-2.0 */
/* base64.c - four characters are three bytes; = fills the last group */
#include "core/parse/base64.h"

#include "core/base/auto.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

static int value_of(unsigned char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int ck_base64_decode(const char *text, size_t len, char **out, size_t *out_len,
		     struct ck_err *err)
{
	ck_auto_free char *to = NULL;
	size_t fill = 0, at = 0;
	uint32_t group = 0;

	if (len % 4)
		return ck_fail(err, EINVAL,
			       "%zu characters of base64; expected groups of 4",
			       len);
	while (fill < 2 && fill < len && text[len - 1 - fill] == '=')
		fill++;
	to = malloc(len / 4 * 3 + 1);
	if (!to)
		return ck_no_memory(err);
	for (size_t i = 0; i < len; i++) {
		int v = i < len - fill ? value_of((unsigned char)text[i]) : 0;

		if (v < 0)
			return ck_fail(err, EINVAL,
				       "character %zu: not of base64", i);
		group = group << 6 | (uint32_t)v;
		if (i % 4 < 3)
			continue;
		to[at++] = (char)(group >> 16);
		to[at++] = (char)(group >> 8);
		to[at++] = (char)group;
		group = 0;
	}
	*out_len = at - fill;
	*out = ck_steal(to);
	return 0;
}
