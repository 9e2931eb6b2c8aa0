/* SPDX-License-Identifier: Apache-2.0 */
/* match.h - names: the same, in order, chosen by a pattern, meant */
#ifndef CK_MATCH_H
#define CK_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether the @len bytes of @s are @word. */
static inline bool ck_text_is(const char *s, size_t len, const char *word)
{
	return strlen(word) == len && !memcmp(s, word, len);
}

/* The order of two texts by their bytes; what the other begins with is before. */
int ck_text_order(const char *a, size_t a_len, const char *b, size_t b_len);

/*
 * A pattern with a * for any run of characters.  In time of the product of both
 * lengths at most.
 */
bool ck_glob(const char *pattern, size_t pattern_len, const char *name,
	     size_t len);

/*
 * "Did you mean": the names are offered one after the other, and the best is
 * kept.  Up to a third of the letters may differ, three at most; what a name lacks
 * of the other up to a dot or slash, or from one on, counts as one letter where it
 * has most of it ("lm_haed.weight" of "model.lm_head.weight" is two away).
 */
struct ck_nearest {
	const char *text;
	size_t len;
	const char *name; /* the best; NULL: none is near.  Not copied */
	size_t name_len;
	unsigned distance;
};

void ck_nearest_begin(struct ck_nearest *n, const char *text, size_t len);
void ck_nearest_offer(struct ck_nearest *n, const char *name, size_t len);

#endif
