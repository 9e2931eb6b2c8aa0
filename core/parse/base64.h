/* SPDX-License-Identifier: Apache-2.0 */
/* base64.h - bytes written as base64 (RFC 4648), in one piece */
#ifndef CK_BASE64_H
#define CK_BASE64_H

#include "core/base/err.h"

#include <stddef.h>

/*
 * The bytes, to free().  -EINVAL with "character N: ..." for what is none of
 * the alphabet, padding at other places than the end, or a cut group.
 */
int ck_base64_decode(const char *text, size_t len, char **out, size_t *out_len,
		     struct ck_err *err);

#endif
