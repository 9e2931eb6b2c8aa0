/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.c - character by character; at a star all lengths are tried */
#include "core/assemble/pattern.h"

#include "core/base/number.h"

#include <string.h>

#define MAX_DIGITS 18

/* The digits at @at, all of them. */
static bool take_number(const char *name, size_t *at,
			struct ck_pattern_found *out)
{
	size_t from = *at, digits;
	uint64_t n;

	digits = ck_digits(name + from, SIZE_MAX, &n);
	if (!digits || digits > MAX_DIGITS || out->nr == CK_PATTERN_NUMBERS)
		return false;
	*at += digits;
	out->n[out->nr] = n;
	out->from[out->nr] = from;
	out->to[out->nr++] = *at;
	return true;
}

/* Patterns are this program's own, of a star or two. */
static bool fits(const char *text, const char *name, size_t at,
		 struct ck_pattern_found *out)
{
	for (; *text && *text != '*'; text++) {
		if (*text != '#' && name[at++] != *text)
			return false;
		if (*text == '#' && !take_number(name, &at, out))
			return false;
	}
	if (!*text)
		return !name[at];
	for (size_t end = strlen(name) + 1; end-- > at;) {
		struct ck_pattern_found more = *out;

		if (!fits(text + 1, name, end, &more))
			continue;
		*out = more;
		return true;
	}
	return false;
}

bool ck_pattern_find(const struct ck_pattern *p, size_t nr, const char *name,
		     struct ck_pattern_found *out)
{
	for (size_t i = 0; i < nr; i++) {
		*out = (struct ck_pattern_found){ .kind = p[i].kind };
		if (fits(p[i].text, name, 0, out))
			return true;
	}
	return false;
}
