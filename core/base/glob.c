/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/glob.h"

#include <stdint.h>

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
