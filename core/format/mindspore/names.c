/* SPDX-License-Identifier: Apache-2.0 */
/* names.c - rank_3, node3, device_3, ckpt_3, 3: which number is the rank's */
#include "core/format/mindspore/names.h"

#include "core/base/check.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANK 1000000
#define MAX_NAME 200

static bool is_digit(char c)
{
	return isdigit((unsigned char)c);
}

const char *ck_ms_base_of(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? slash + 1 : name;
}

/* "-4_32": the epoch and the step of a save, which "rank-4_32" may end in. */
static bool is_epoch(const char *digits)
{
	while (is_digit(*digits))
		digits++;
	return digits[0] == '_' && is_digit(digits[1]);
}

/* The last number that follows @word. */
static const char *after_word(const char *base, const char *word)
{
	const char *at = base, *found = NULL;

	while ((at = strcasestr(at, word))) {
		at += strlen(word);
		if (is_digit(at[*at == '_']))
			found = at + (*at == '_');
		else if (*at == '-' && is_digit(at[1]) && !is_epoch(at + 1))
			found = at + 1;
	}
	return found;
}

static const char *after_any(const char *base, const char *const *words)
{
	const char *found = NULL;

	for (; *words && !found; words++)
		found = after_word(base, *words);
	return found;
}

/* Whether what is before @at ends in "-4_". */
static bool ends_epoch(const char *base, size_t at)
{
	size_t digits = at ? at - 1 : 0;

	while (digits && is_digit(base[digits - 1]))
		digits--;
	return at > 2 && base[at - 1] == '_' && digits < at - 1 && digits &&
	       base[digits - 1] == '-';
}

/* The last number, unless what is before it says that it counts something. */
static const char *last_number(const char *base)
{
	static const char *const others[] = { "step",  "epoch",	 "iter",
					      "stage", "run",	 "seed",
					      "exp",   "fold",	 "trial",
					      "save",  "version" };
	size_t at = strlen(base);

	while (at && !is_digit(base[at - 1]))
		at--;
	while (at && is_digit(base[at - 1]))
		at--;
	if (!is_digit(base[at]) || (at == 1 && *base == 'v') ||
	    ends_epoch(base, at))
		return NULL;
	for (size_t i = 0; i < CK_ARRAY_LEN(others); i++)
		if (strcasestr(base, others[i]))
			return NULL;
	return base + at;
}

bool ck_ms_number_in(const char *name, struct ck_ms_number *out)
{
	static const char *const rank[] = { "rank", "node", NULL };
	static const char *const device[] = { "device",	  "npu",    "gpu",
					      "card",	  "worker", "process",
					      "parallel", NULL };
	const char *base = ck_ms_base_of(name), *digits = NULL;
	unsigned long long number;
	char *end;

	*out = (struct ck_ms_number){ .word = CK_MS_NO_NUMBER };
	if (strlen(base) > MAX_NAME)
		return false;
	for (int word = CK_MS_RANK; word > CK_MS_NO_NUMBER && !digits; word--) {
		digits = word == CK_MS_RANK   ? after_any(base, rank) :
			 word == CK_MS_DEVICE ? after_any(base, device) :
						last_number(base);
		out->word = digits ? (enum ck_ms_word)word : CK_MS_NO_NUMBER;
	}
	if (!digits)
		return false;
	number = strtoull(digits, &end, 10);
	out->rank = (uint32_t)CK_MIN(number, (unsigned long long)MAX_RANK);
	out->from = (size_t)(digits - base);
	out->to = (size_t)(end - base);
	return out->rank < MAX_RANK;
}

bool ck_ms_folder_rank(const char *name, uint32_t *rank)
{
	struct ck_ms_number n;

	if (!ck_ms_number_in(name, &n) || n.word < CK_MS_DEVICE)
		return false;
	*rank = n.rank;
	return true;
}

bool ck_ms_same_kind(const char *a, const char *b)
{
	struct ck_ms_number x, y;

	if (!ck_ms_number_in(a, &x) || !ck_ms_number_in(b, &y) ||
	    x.word != y.word || x.from != y.from)
		return false;
	a = ck_ms_base_of(a);
	b = ck_ms_base_of(b);
	return !memcmp(a, b, x.from) && !strcmp(a + x.to, b + y.to);
}
