/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/utf8.h"

#include <stdint.h>
#include <string.h>

size_t ck_utf8_len(const unsigned char *s, size_t left)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint32_t c;
	size_t len;

	if (!left)
		return 0;
	if (s[0] < 0x80)
		return 1;
	len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	if (s[0] < 0xc2 || s[0] > 0xf4 || left < len)
		return 0;
	c = s[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	/* overlong forms, surrogates, past the end of Unicode */
	if (c < least[len] || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
		return 0;
	return len;
}

bool ck_utf8_ok(const char *s, size_t len)
{
	for (size_t i = 0, n; i < len; i += n) {
		n = ck_utf8_len((const unsigned char *)s + i, len - i);
		if (!n)
			return false;
	}
	return true;
}

bool ck_utf8_obeyed(const unsigned char *s, size_t n)
{
	if (n == 1)
		return s[0] < 0x20 || s[0] == 0x7f;
	if (n == 2) /* C1; U+061C */
		return (s[0] == 0xc2 && s[1] < 0xa0) ||
		       !memcmp(s, "\xd8\x9c", 2);
	if (n != 3 || s[0] != 0xe2)
		return false;
	if (s[1] == 0x80) /* U+200E and F, U+2028 to E */
		return s[2] == 0x8e || s[2] == 0x8f ||
		       (s[2] >= 0xa8 && s[2] <= 0xae);
	return s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9; /* U+2066 to 9 */
}
