/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_path.h - CKPT/hf, CKPT/reshard/tp=2, CKPT/views/NAME/dcp/.metadata: what
 * a mount of CKPT shows, where a checkpoint or a file is wanted
 */
#ifndef CK_VIEW_PATH_H
#define CK_VIEW_PATH_H

#include "core/ckpt/ckpt.h"
#include "core/view/view.h"

#include <limits.h>

struct ck_view_path {
	char ckpt[PATH_MAX]; /* the longest beginning that exists, or all */
	char through[NAME_MAX + 1]; /* of its views/, this one; "": itself */
	const struct ck_view_ops *ops; /* NULL: no view is named but that */
	char file[2 * NAME_MAX + 2]; /* FILE, FOLDER or FOLDER/FILE; "": all */
};

/*
 * False: what follows the longest beginning that exists is none of the views.
 * Then all of it is a checkpoint's path, for whoever opens it to refuse.
 */
bool ck_view_path_parse(struct ck_view_path *p, const char *path);
/* The view called @text, or the view and the file of it; false: none. */
bool ck_view_path_find(struct ck_view_path *p, const char *text);
/* What the view is called through which it is. */
const char *ck_view_path_view(void);
/* Whether it names more than a checkpoint. */
bool ck_view_path_is_view(const struct ck_view_path *p);
/*
 * *@ck, which was opened at p->ckpt, becomes the checkpoint that the view is.
 * After -errno with @err set it is still to be closed.
 */
int ck_view_path_enter(struct ck_ckpt **ck, const struct ck_view_path *p,
		       const struct ck_opts *opts, struct ck_err *err);
/* The same of p->through alone. */
int ck_view_path_enter_through(struct ck_ckpt **ck,
			       const struct ck_view_path *p,
			       const struct ck_opts *opts, struct ck_err *err);
/* Says why *@ck has no such view; -ENOENT. */
int ck_view_path_absent(struct ck_ckpt *ck, const struct ck_view_ops *ops,
			struct ck_err *err);

#endif
