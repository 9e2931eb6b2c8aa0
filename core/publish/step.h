/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step.h - one step of a directory of checkpoints is published, or was before
 *
 * Threads: any.
 */
#ifndef CK_STEP_H
#define CK_STEP_H

#include "core/publish/commit.h"

/*
 * The draft @name of @root by ck_commit(), which is tried again for two seconds
 * where files of it are open.  0: now; 1: it was published before.
 */
int ck_publish_step(const struct ck_root *root, const char *name,
		    const struct ck_commit_in *in, struct ck_err *err);

#endif
