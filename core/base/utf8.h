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
 * Whether terminals, or who splits text into lines, obey that character of @n bytes
 * rather than show it: C0, DEL, C1, what turns the direction of the text around it,
 * and U+2028 and 9, which end a line and a paragraph.
 */
bool ck_utf8_obeyed(const unsigned char *s, size_t n);

#endif
