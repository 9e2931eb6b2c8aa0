/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/match.h"

#include "core/base/check.h"
#include "core/base/search.h"

#include <stdint.h>
#include <string.h>

int ck_text_order(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int c = memcmp(a, b, CK_MIN(a_len, b_len));

	return c ? c : ck_order(a_len, b_len);
}

/* As a shell does; linear but for one place to go back to. */
bool ck_glob(const char *pattern, size_t pattern_len, const char *name,
	     size_t len)
{
	size_t k = 0, n = 0, star = SIZE_MAX, from = 0;

	while (n < len) {
		if (k < pattern_len && pattern[k] == '*') {
			star = k++;
			from = n;
		} else if (k < pattern_len && pattern[k] == name[n]) {
			k++;
			n++;
		} else if (star != SIZE_MAX) {
			k = star + 1;
			n = ++from;
		} else {
			return false;
		}
	}
	while (k < pattern_len && pattern[k] == '*')
		k++;
	return k == pattern_len;
}

#define FAR 4 /* letters that differ: no name is meant */
#define LONGEST 256

void ck_nearest_begin(struct ck_nearest *n, const char *text, size_t len)
{
	*n = (struct ck_nearest){ .text = text, .len = len };
	n->distance = (unsigned)CK_MIN(len / 3 + 1, FAR);
}

/*
 * Letters that were added, left out, changed or exchanged with the next; FAR
 * or more: whatever it is.
 */
static unsigned distance(const char *a, size_t a_len, const char *b,
			 size_t b_len)
{
	unsigned row[3][LONGEST + 1];
	unsigned *before = row[0], *above = row[1], *at = row[2], least = 0;

	for (size_t j = 0; j <= b_len; j++)
		at[j] = (unsigned)j;
	for (size_t i = 1; i <= a_len && least < FAR; i++) {
		unsigned *old = before;

		before = above;
		above = at;
		at = old;
		least = at[0] = (unsigned)i;
		for (size_t j = 1; j <= b_len; j++) {
			at[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
			at[j] = CK_MIN(at[j], CK_MIN(at[j - 1], above[j]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
			    a[i - 2] == b[j - 1])
				at[j] = CK_MIN(at[j], before[j - 2] + 1);
			least = CK_MIN(least, at[j]);
		}
	}
	return least < FAR ? at[b_len] : FAR;
}

/* FAR of what is too long to be looked at, or of another length. */
static unsigned letters(const char *a, size_t a_len, const char *b,
			size_t b_len)
{
	if (a_len == b_len && !memcmp(a, b, a_len))
		return 0;
	if (CK_MAX(a_len, b_len) > LONGEST ||
	    CK_MAX(a_len, b_len) - CK_MIN(a_len, b_len) >= FAR)
		return FAR;
	return distance(a, a_len, b, b_len);
}

/*
 * The letters of @part against most of @whole: up to a dot or slash of it, or
 * from one on.
 */
static unsigned of_part(const char *whole, size_t len, const char *part,
			size_t n)
{
	unsigned least = FAR;

	for (size_t i = 1; i + 1 < len; i++) {
		if (whole[i] != '.' && whole[i] != '/')
			continue;
		if (2 * (len - i - 1) >= len)
			least = CK_MIN(least, letters(whole + i + 1,
						      len - i - 1, part, n));
		if (2 * i >= len)
			least = CK_MIN(least, letters(whole, i, part, n));
	}
	return least;
}

void ck_nearest_offer(struct ck_nearest *n, const char *name, size_t len)
{
	unsigned d = letters(n->text, n->len, name, len);

	/* the part that is missing counts as a letter */
	if (d > 1)
		d = CK_MIN(d, of_part(name, len, n->text, n->len) + 1);
	if (d > 1)
		d = CK_MIN(d, of_part(n->text, n->len, name, len) + 1);
	if (d >= n->distance)
		return;
	n->distance = d;
	n->name = name;
	n->name_len = len;
}
