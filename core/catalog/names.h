/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.h - the file name of a tensor
 *
 * Bytes below 0x21, 0x7f, '/', '%', a leading '.' and invalid UTF-8 become
 * %XX; the empty name is "%00"; a result over 240 bytes is cut at 200 (never
 * inside an escape or a character) and gets '~' and the XXH3-64 of the raw
 * name in 16 lower-case hex digits.
 */
#ifndef CK_NAMES_H
#define CK_NAMES_H

#include <stddef.h>
#include <stdint.h>

#define CK_FILE_NAME_MAX 240

/* Returns the length written to @out, which has room for the longest + NUL. */
size_t ck_name_encode(const char *name, size_t len,
		      char out[CK_FILE_NAME_MAX + 1]);
/*
 * The form with the hash, whatever its length: for the second of two names
 * whose plain forms are equal.  @seed is 0 but where those are equal too.
 */
size_t ck_name_encode_hashed(const char *name, size_t len, uint64_t seed,
			     char out[CK_FILE_NAME_MAX + 1]);

#endif
