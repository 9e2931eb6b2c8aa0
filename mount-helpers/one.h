/* SPDX-License-Identifier: Apache-2.0 */
/* one.h - a directory of checkpoints where one checkpoint is wanted */
#ifndef ONE_H
#define ONE_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/root/root.h"

/*
 * ck_ckpt_describe(); where @root is no checkpoint but holds exactly one, it
 * becomes that one.  -ENODATA where it holds several, which @err lists.
 */
int one_describe(struct ck_root *root, const struct ck_opts *opts,
		 int *catalog_fd, struct ck_err *err);
/*
 * The same, but the only one is named too: where what is said of files is only
 * true below @root.
 */
int one_name(struct ck_root *root, const struct ck_opts *opts, int *catalog_fd,
	     struct ck_err *err);

#endif
