/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - looks for words in a name */
#include "core/mesh/names.h"

#include <string.h>

bool ck_name_is(const char *s, size_t len, const char *const *words)
{
	for (; *words; words++)
		if (strlen(*words) == len && !memcmp(*words, s, len))
			return true;
	return false;
}

bool ck_name_has(const char *name, size_t len, const char *const *words)
{
	for (; *words; words++)
		if (memmem(name, len, *words, strlen(*words)))
			return true;
	return false;
}

bool ck_name_has_word(const char *name, size_t len, const char *const *words)
{
	size_t from = 0;

	for (size_t i = 0; i <= len; i++) {
		if (i < len && name[i] != '.' && name[i] != '/')
			continue;
		if (ck_name_is(name + from, i - from, words))
			return true;
		from = i + 1;
	}
	return false;
}
