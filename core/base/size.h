/* SPDX-License-Identifier: Apache-2.0 */
/* size.h - "256M" -> bytes; K M G T are powers of 1,024, either case */
#ifndef CK_SIZE_H
#define CK_SIZE_H

#include "core/base/opts.h"

#include <stdbool.h>
#include <stdint.h>

/* The whole of @text must be a number below CK_SIZE_MAX, then one letter. */
bool ck_size_parse(const char *text, uint64_t *out);
/* The last value of option @name; @fallback where it is absent or no size. */
uint64_t ck_opts_size(const struct ck_opts *o, const char *name,
		      uint64_t fallback);

#endif
