/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - what the words NAME and NAME[2:5, :] of a command mean
 */
#ifndef CK_TARGET_H
#define CK_TARGET_H

#include "core/base/err.h"
#include "core/geom/catalog.h"
#include "core/lib/subscript.h"

struct ck_target {
	uint32_t tensor; /* index, or CK_NONE: it is an object */
	uint32_t object;
	struct ck_subscript
		slice; /* of a tensor: all of it where none was said */
	bool sliced;
};

/*
 * A true name or a file name, of any tree (TREE/NAME where several have it),
 * then perhaps a slice.  Names may contain brackets: the longest name that
 * exists wins.  -ENOENT, -EINVAL; -EBADMSG for a tensor that was refused, with
 * the reason.
 */
int ck_target_find(const struct ck_catalog *img, const char *text,
		   struct ck_target *out, struct ck_err *err);

#endif
