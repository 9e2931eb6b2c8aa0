/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suffix.h - a file's name without its folder, how it begins and ends, and its number
 */
#ifndef CK_SUFFIX_H
#define CK_SUFFIX_H

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static inline bool ck_begins(const char *name, const char *with)
{
	return !strncmp(name, with, strlen(with));
}

static inline bool ck_ends_in(const char *name, const char *suffix)
{
	size_t len = strlen(name), n = strlen(suffix);

	return len >= n && !strcmp(name + len - n, suffix);
}

/* The same, with something before it. */
static inline bool ck_has_suffix(const char *name, const char *suffix)
{
	return strlen(name) > strlen(suffix) && ck_ends_in(name, suffix);
}

/* What follows the last slash. */
static inline const char *ck_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The last digits in the first @len bytes of @name: [*from, *to). */
static inline bool ck_last_number(const char *name, size_t len, size_t *from,
				  size_t *to)
{
	while (len && !isdigit((unsigned char)name[len - 1]))
		len--;
	*to = len;
	while (len && isdigit((unsigned char)name[len - 1]))
		len--;
	*from = len;
	return *to > len;
}

/* What is written under this name gets its own when it is whole. */
static inline bool ck_is_temporary(const char *name)
{
	return ck_has_suffix(name, ".tmp");
}

#endif
