/* SPDX-License-Identifier: Apache-2.0 */
/* json_where.c - where in JSON text a member stands, which jansson forgets */
#include "core/parse/json.h"

#include <string.h>

/* The quote that ends the string which begins at @i. */
static size_t string_end(const char *s, size_t len, size_t i)
{
	for (i++; i < len && s[i] != '"'; i++)
		i += s[i] == '\\';
	return i;
}

static bool is_member(const char *s, size_t len, size_t end)
{
	for (end++; end < len && strchr(" \t\r\n", s[end]); end++)
		;
	return end < len && s[end] == ':';
}

/* Whether what is in the quotes at @from and @to is @key. */
static bool is(const char *s, size_t from, size_t to, const char *key)
{
	return to - from - 1 == strlen(key) &&
	       !memcmp(s + from + 1, key, to - from - 1);
}

size_t ck_json_where(const char *bytes, size_t len, const char *outer,
		     const char *key)
{
	unsigned depth = 0, want = outer ? 2 : 1;
	bool inside = !outer;

	for (size_t i = 0; i < len; i++) {
		size_t from = i;

		if (bytes[i] == '{' || bytes[i] == '[')
			depth++;
		else if (bytes[i] == '}' || bytes[i] == ']')
			depth--;
		if (bytes[i] != '"')
			continue;
		i = string_end(bytes, len, i);
		if (i >= len || !is_member(bytes, len, i))
			continue;
		if (depth == 1 && outer)
			inside = is(bytes, from, i, outer);
		if (depth == want && inside && is(bytes, from, i, key))
			return from;
	}
	return SIZE_MAX;
}

static size_t skip_blank(const char *s, size_t len, size_t i)
{
	while (i < len && memchr(" \t\r\n", s[i], 4))
		i++;
	return i;
}

size_t ck_json_end(const char *bytes, size_t len, size_t at)
{
	size_t depth = 0, i = skip_blank(bytes, len, at);

	for (; i < len; i++) {
		char c = bytes[i];

		if (c == '"')
			i = string_end(bytes, len, i);
		else if (c == '{' || c == '[')
			depth++;
		else if (!depth && memchr(",}] \t\r\n", c, 7))
			return i;
		else if (c == '}' || c == ']')
			depth--;
		if (!depth && memchr("\"}]", c, 3))
			return i < len ? i + 1 : len;
	}
	return len;
}

bool ck_json_value(const char *bytes, size_t len, const char *key, size_t *from,
		   size_t *to)
{
	size_t at = ck_json_where(bytes, len, NULL, key);

	if (at == SIZE_MAX)
		return false;
	at = skip_blank(bytes, len, string_end(bytes, len, at) + 1);
	*from = skip_blank(bytes, len, at + 1); /* past the colon */
	*to = ck_json_end(bytes, len, *from);
	return true;
}
