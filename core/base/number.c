/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/number.h"

#include "core/base/check.h"

#include <string.h>

size_t ck_digits(const char *s, size_t len, uint64_t *out)
{
	size_t n = 0;

	*out = 0;
	for (; n < len && s[n] >= '0' && s[n] <= '9'; n++)
		if (__builtin_mul_overflow(*out, 10u, out) ||
		    __builtin_add_overflow(*out, (unsigned)(s[n] - '0'), out))
			break;
	if (n == len || s[n] < '0' || s[n] > '9')
		return n;
	while (n < len && s[n] >= '0' && s[n] <= '9')
		n++;
	*out = UINT64_MAX;
	return n;
}

bool ck_decimal(const char *s, size_t len, uint64_t max, uint64_t *out)
{
	return len && ck_digits(s, len, out) == len && *out <= max;
}

bool ck_size_parse(const char *text, uint64_t *out)
{
	static const char units[] = "KkMmGgTt";
	const char *unit;
	uint64_t n;
	size_t digits = ck_digits(text, SIZE_MAX, &n);

	if (!digits || n > CK_SIZE_MAX)
		return false;
	text += digits;
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
