/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - what the names of safetensors files say */
#include "core/assemble/st_folder.h"

#include <ctype.h>
#include <string.h>

#define SUFFIX ".safetensors"

static const char *base_name(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? slash + 1 : name;
}

/* Five digits or more; NULL: none, or a number that nobody counts to. */
static const char *eat_number(const char *s, unsigned *out)
{
	unsigned digits = 0;

	*out = 0;
	for (; isdigit((unsigned char)*s); s++, digits++)
		if (digits < 9)
			*out = *out * 10 + (unsigned)(*s - '0');
	return digits >= 5 && digits <= 9 ? s : NULL;
}

static const char *eat(const char *s, const char *word)
{
	size_t len = strlen(word);

	return s && !strncmp(s, word, len) ? s + len : NULL;
}

bool ck_st_is_shard(const char *name, struct ck_st_shard *out)
{
	unsigned r, k, of;
	const char *at = eat(base_name(name), "shard-");

	at = at ? eat(eat_number(at, &r), "-model-") : NULL;
	at = at ? eat(eat_number(at, &k), "-of-") : NULL;
	at = at ? eat_number(at, &of) : NULL;
	if (!at || strcmp(at, SUFFIX))
		return false;
	if (out)
		*out = (struct ck_st_shard){ .rank = r, .file = k, .of = of };
	return true;
}
