/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h - JSON from untrusted files, by jansson
 *
 * Adds what jansson leaves to its user: limits of depth and memory before
 * anything is allocated, keys that occur twice refused, keys that hold a NUL
 * (see json_object_iter_key_len()), and one-line errors with the byte.
 */
#ifndef CK_JSON_H
#define CK_JSON_H

#include "core/base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The whole of bytes[0, len) is one JSON value.  json_decref() it. */
int ck_json_parse(json_t **out, const char *bytes, size_t len,
		  struct ck_err *err);
static inline void ck_json_decrefp(json_t **j)
{
	json_decref(*j);
}
#define ck_auto_json __attribute__((cleanup(ck_json_decrefp)))

/* A text; NULL where it is something else, or holds a NUL. */
const char *ck_json_text(const json_t *j);
/* A non-negative integer below 2^62; false otherwise. */
bool ck_json_u64(const json_t *j, uint64_t *out);
/* A list of at most @max of them; false otherwise. */
bool ck_json_dims(const json_t *j, uint64_t *out, unsigned max, unsigned *nr);

/*
 * Whether the bytes begin as text does, of any kind and though it is no good
 * JSON: nothing, white space, a byte order mark, or a printable character.
 */
bool ck_json_is_text(const char *bytes, size_t len);

#define CK_JSON_WHAT 96
/* For messages: what @j is, "null", "a list of 2", "nothing" where it is NULL. */
const char *ck_json_what(const json_t *j, char buf[CK_JSON_WHAT]);

/*
 * For messages: the byte of bytes[0, len), which were parsed, where @key stands
 * as a member of the whole, or with @outer of the object that is its member
 * @outer.  SIZE_MAX: nowhere, or spelt with escapes.
 */
size_t ck_json_where(const char *bytes, size_t len, const char *outer,
		     const char *key);
/* The same of its value, as a member of the whole; false: nowhere. */
bool ck_json_value(const char *bytes, size_t len, const char *key, size_t *from,
		   size_t *to);
/* Where the value ends that begins at @at, or behind the blanks there. */
size_t ck_json_end(const char *bytes, size_t len, size_t at);

#endif
