/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_path.h - CKPT/views/NAME where a checkpoint is wanted
 *
 * What -o views= shows as NAME is a checkpoint too, which is only read.
 */
#ifndef CK_VIEW_PATH_H
#define CK_VIEW_PATH_H

#include "core/ckpt/ckpt.h"

#include <limits.h>

/*
 * The longest beginning of @path that exists, into @ckpt (PATH_MAX), and what
 * follows it; NULL: nothing does, or it is too long.
 */
const char *ck_view_path_split(const char *path, char *ckpt);
/* Whether @path is so: then CKPT into @ckpt and NAME into @name (NAME_MAX + 1). */
bool ck_view_path_name(const char *path, char *ckpt, char *name);
/* What the view is called through which it is. */
const char *ck_view_path_view(void);
/*
 * *@ck becomes the checkpoint that is its view @name.  -errno with @err set:
 * it is what it was.
 */
int ck_view_path_enter(struct ck_ckpt **ck, const char *name,
		       const struct ck_opts *opts, struct ck_err *err);

#endif
