/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h - how many bytes at @s are one valid UTF-8 character; 0: none */
#ifndef CK_UTF8_H
#define CK_UTF8_H

#include <stddef.h>

size_t ck_utf8_len(const unsigned char *s, size_t left);

#endif
