/* SPDX-License-Identifier: Apache-2.0 */
/* st_find.h - where a member of a JSON object stands in its text */
#ifndef CK_ST_FIND_H
#define CK_ST_FIND_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The bytes of the value of @key in the outermost object.  @json has been
 * parsed before: this only counts quotes and brackets.
 */
bool ck_st_find(const char *json, size_t len, const char *key, size_t *off,
		size_t *value_len);

#endif
