/* SPDX-License-Identifier: Apache-2.0 */
/* shards_priv.h - between shards.c and shards_dir.c */
#ifndef FS_SHARDS_PRIV_H
#define FS_SHARDS_PRIV_H

#include "fs/tree/shards.h"

const struct ck_root *fs_shards_root(const struct fs_shards *s);
uint64_t fs_shards_path_ino(const struct fs_shards *s, const char *path);
/* To free(); NULL: no memory, and for path_of() an unknown inode. */
char *fs_shards_path_of(struct fs_shards *s, uint64_t ino);
char *fs_shards_join(const char *dir, const char *name);
/* -ENOENT for what is not shown. */
int fs_shards_stat_path(const struct fs_shards *s, const char *path,
			struct stat *st, struct ck_err *err);

#endif
