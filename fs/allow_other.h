/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allow_other.h - whether showing a checkpoint to other users shows them
 * anything that they could not read themselves
 */
#ifndef FS_ALLOW_OTHER_H
#define FS_ALLOW_OTHER_H

#include "core/base/err.h"
#include "core/geom/catalog.h"
#include "core/ckpt/ckpt.h"

/*
 * 0, or -EACCES naming the first file or directory in the way.  Looks at mode
 * bits only: an access list that gives less than they say is not seen.
 */
int fs_allow_other_may_read(const struct ck_root *root,
			    const struct ck_catalog *img, struct ck_err *err);

#endif
