/* SPDX-License-Identifier: Apache-2.0 */
/* only_ckpt.h - a directory of checkpoints where one checkpoint is wanted */
#ifndef CK_ONLY_CKPT_H
#define CK_ONLY_CKPT_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/root/root.h"

/* Who describes a checkpoint, as ck_ckpt_describe() does. */
struct ck_describer {
	int (*describe)(void *ctx, const struct ck_root *root,
			const struct ck_opts *opts, int *catalog_fd,
			struct ck_err *err);
	void *ctx;
};

/*
 * ck_ckpt_describe(), or what @by does instead; where @root is no checkpoint
 * but holds exactly one, it becomes that one.  -ENODATA where it holds several,
 * which @err lists.
 */
int ck_only_ckpt_describe(const struct ck_describer *by, struct ck_root *root,
			  const struct ck_opts *opts, int *catalog_fd,
			  struct ck_err *err);
/*
 * The same, but the only one is named too: where what is said of files is only
 * true below @root.
 */
int ck_only_ckpt_name(const struct ck_describer *by, struct ck_root *root,
		      const struct ck_opts *opts, int *catalog_fd,
		      struct ck_err *err);

#endif
