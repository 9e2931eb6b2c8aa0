/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - characters of text that nobody vouches for */
#ifndef CK_UTF8_H
#define CK_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* How many bytes at @s are one valid character; 0: none. */
size_t ck_utf8_len(const unsigned char *s, size_t left);
/* Whether all of it is. */
bool ck_utf8_ok(const char *s, size_t len);
/*
 * Whether terminals obey that character of @n bytes rather than show it: C0, DEL,
 * C1, and what turns the direction of the text around it.
 */
bool ck_utf8_obeyed(const unsigned char *s, size_t n);

#endif
