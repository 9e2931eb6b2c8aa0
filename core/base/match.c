/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/match.h"

#include "core/base/check.h"

#include <stdint.h>
#include <string.h>

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

/* Whether @part is most of @whole, up to a dot or slash or from one on. */
static bool is_part(const char *whole, size_t len, const char *part, size_t n)
{
	const char *rest = whole + len - n;

	if (2 * n < len || len <= n)
		return false;
	if (!memcmp(rest, part, n) && (rest[-1] == '.' || rest[-1] == '/'))
		return true;
	return !memcmp(whole, part, n) && (whole[n] == '.' || whole[n] == '/');
}

void ck_nearest_offer(struct ck_nearest *n, const char *name, size_t len)
{
	unsigned d = FAR;

	if (is_part(name, len, n->text, n->len) ||
	    is_part(n->text, n->len, name, len))
		d = 1;
	else if (n->len <= LONGEST && len <= LONGEST &&
		 CK_MAX(len, n->len) - CK_MIN(len, n->len) < FAR)
		d = distance(n->text, n->len, name, len);
	if (d >= n->distance)
		return;
	n->distance = d;
	n->name = name;
	n->name_len = len;
}
