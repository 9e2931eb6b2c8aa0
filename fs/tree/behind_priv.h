/* SPDX-License-Identifier: Apache-2.0 */
/* behind_priv.h - between behind.c and behind_dirs.c: what is added to a question */
#ifndef FS_BEHIND_PRIV_H
#define FS_BEHIND_PRIV_H

#include "core/ckpt/ckpt.h"
#include "fs/ask/ask.h"

/* All folders of @root, for a file that is in any of them. */
void fs_behind_ask_dirs(const struct ck_root *root, struct fs_question *q);
/* The folders of @root themselves, each of which has to allow @mask. */
void fs_behind_ask_root(const struct ck_root *root, int mask,
			struct fs_question *q);
/* The same of those below them that are called @path.  -ESTALE: there is none. */
int fs_behind_ask_folders(const struct ck_root *root, const char *path,
			  int mask, struct fs_question *q, struct ck_err *err);
/* All files in them, to be read. */
int fs_behind_ask_unread(const struct ck_root *root, struct fs_question *q,
			 struct ck_err *err);

#endif
