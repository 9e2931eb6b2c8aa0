/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.h - what the words NAME and NAME[2:5, :] of a command mean
 */
#ifndef TARGET_H
#define TARGET_H

#include "mount-helpers/cmd.h"
#include "mount-helpers/slice.h"

struct target {
	uint32_t tensor; /* index, or CK_NONE: it is an object */
	uint32_t object;
	struct slice slice; /* of a tensor: all of it where none was said */
	bool sliced;
};

/*
 * A true name or a file name, of any tree (TREE/NAME where several have it),
 * then perhaps a slice.  Names may contain brackets: the longest name that
 * exists wins.  -ENOENT, -EINVAL; -EBADMSG for a tensor that was refused, with
 * the reason.
 */
int target_find(const struct ck_catalog *img, const char *text,
		struct target *out, struct ck_err *err);
/* The exit code for a failure of target_find(), after printing its line. */
int target_err(const struct cmd *c, const struct ck_err *err);

#endif
