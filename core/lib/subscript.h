/* SPDX-License-Identifier: Apache-2.0 */
/*
 * subscript.h - "2:5, :, -1" -> a box of a tensor
 *
 * As NumPy reads it: integers and a:b with either end left out, negative ones
 * from the end, one "..." for as many whole axes as are missing; what is left
 * out at the end is whole.  Ends of a:b beyond the axis are cut to it, an
 * integer beyond is an error.  Steps and masks are not supported.
 */
#ifndef CK_SUBSCRIPT_H
#define CK_SUBSCRIPT_H

#include "core/base/err.h"
#include "core/geom/range.h"

#include <stddef.h>

struct ck_subscript {
	struct ck_box box; /* of the tensor's shape */
	unsigned rank; /* of the result: integers take their axis away */
	uint64_t shape[CK_MAX_RANK];
};

void ck_subscript_whole(const uint64_t *shape, unsigned rank,
			struct ck_subscript *out);
/* What is between the brackets.  0 or -EINVAL with @err set. */
int ck_subscript_parse(const uint64_t *shape, unsigned rank, const char *text,
		       size_t len, struct ck_subscript *out,
		       struct ck_err *err);

#endif
