/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/size.h"

#include "core/base/check.h"

#include <string.h>

/* Decimal digits from *@text on; false: none, or too large. */
static bool digits(const char **text, uint64_t *out)
{
	const char *p = *text;
	uint64_t n = 0;

	for (; *p >= '0' && *p <= '9'; p++)
		if (!ck_mul_ok(n, 10, &n) ||
		    !ck_add_ok(n, (uint64_t)(*p - '0'), &n))
			return false;
	if (p == *text)
		return false;
	*text = p;
	*out = n;
	return true;
}

bool ck_size_parse(const char *text, uint64_t *out)
{
	static const char units[] = "KkMmGgTt";
	const char *unit;
	uint64_t n;

	if (!digits(&text, &n))
		return false;
	if (*text) {
		unit = strchr(units, *text);
		if (!unit || text[1] ||
		    !ck_mul_ok(n, UINT64_C(1024) << 10 * ((unit - units) / 2),
			       &n))
			return false;
	}
	*out = n;
	return true;
}

uint64_t ck_opts_size(const struct ck_opts *o, const char *name,
		      uint64_t fallback)
{
	const char *text = ck_opts_get(o, name);
	uint64_t n;

	return text && ck_size_parse(text, &n) ? n : fallback;
}
