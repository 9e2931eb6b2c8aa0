/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number.h - decimal numbers in text; "256M" -> bytes
 */
#ifndef CK_NUMBER_H
#define CK_NUMBER_H

#include "core/base/opts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * How many of the first bytes of @s, which a NUL may end before @len, are
 * digits; *out: the number they are, UINT64_MAX where it is larger, or 0.
 */
size_t ck_digits(const char *s, size_t len, uint64_t *out);
/* Whether all of them are, one at least, of a number up to @max. */
bool ck_decimal(const char *s, size_t len, uint64_t max, uint64_t *out);

/*
 * The whole of @text must be a number up to CK_SIZE_MAX, then a letter or none:
 * K M G T are powers of 1,024, either case.
 */
bool ck_size_parse(const char *text, uint64_t *out);
/* The last value of option @name; @fallback where it is absent or no size. */
uint64_t ck_opts_size(const struct ck_opts *o, const char *name,
		      uint64_t fallback);

#endif
