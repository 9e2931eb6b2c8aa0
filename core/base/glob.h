/* SPDX-License-Identifier: Apache-2.0 */
/* glob.h - names with a * for any run of characters */
#ifndef CK_GLOB_H
#define CK_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* In time of the product of both lengths at most. */
bool ck_glob(const char *pattern, size_t pattern_len, const char *name,
	     size_t len);

#endif
