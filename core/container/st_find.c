/* SPDX-License-Identifier: Apache-2.0 */
/* st_find.c - the JSON library keeps values, not where they were */
#include "core/container/st_find.h"

#include <string.h>

/* Past the string that begins at @at. */
static size_t skip_string(const char *json, size_t len, size_t at)
{
	for (at++; at < len && json[at] != '"'; at++)
		if (json[at] == '\\')
			at++;
	return at + 1;
}

/* To the comma or bracket that ends the value that begins at @at. */
static size_t skip_value(const char *json, size_t len, size_t at)
{
	size_t depth = 0;

	while (at < len) {
		if (json[at] == '"') {
			at = skip_string(json, len, at);
			continue;
		}
		if (json[at] == '{' || json[at] == '[')
			depth++;
		else if (json[at] == '}' || json[at] == ']') {
			if (!depth)
				return at;
			depth--;
		} else if (json[at] == ',' && !depth) {
			return at;
		}
		at++;
	}
	return len;
}

static size_t skip_blank(const char *json, size_t len, size_t at)
{
	while (at < len && strchr(" \t\r\n", json[at]) && json[at])
		at++;
	return at;
}

bool ck_st_find(const char *json, size_t len, const char *key, size_t *off,
		size_t *value_len)
{
	size_t at = skip_blank(json, len, 0);
	size_t key_len = strlen(key);

	for (at++; at < len; at++) {
		size_t from = skip_blank(json, len, at);
		size_t to = from < len ? skip_string(json, len, from) : len;
		size_t end;

		at = skip_blank(json, len, to) + 1; /* past the colon */
		at = skip_blank(json, len, at);
		if (at >= len)
			return false;
		end = skip_value(json, len, at);
		if (to - from == key_len + 2 &&
		    !memcmp(json + from + 1, key, key_len)) {
			while (end > at && strchr(" \t\r\n", json[end - 1]))
				end--;
			*off = at;
			*value_len = end - at;
			return true;
		}
		at = end;
	}
	return false;
}
