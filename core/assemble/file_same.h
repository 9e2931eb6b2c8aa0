/* SPDX-License-Identifier: Apache-2.0 */
/* file_same.h - whether one file of a checkpoint is a copy of another */
#ifndef CK_FILE_SAME_H
#define CK_FILE_SAME_H

#include "core/base/err.h"
#include "core/root/dir.h"

/*
 * 1: the same length and bytes, compared at up to 64 places of large files; 0:
 * not; or -errno.  Any thread.
 */
int ck_dir_same(const struct ck_dir *dir, const char *a, const char *b,
		struct ck_err *err);

#endif
