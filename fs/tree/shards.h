/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.h - SRC as it is stored, read-only: regular files and directories
 *
 * Links that stay inside are shown as they are.  Others are shown as the files
 * they lead to, where root/root.h follows them; anything else is left out.  Inode numbers are a keyed hash of the path, so
 * they stay the same while the mount lives, whether or not the kernel forgets
 * them; memory is kept only for those that it remembers.
 *
 * Threads: any.
 */
#ifndef FS_SHARDS_H
#define FS_SHARDS_H

#include "core/base/err.h"
#include "core/ckpt/ckpt.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

struct fs_shards;

/* Borrows @root for its life; NULL: no memory. */
struct fs_shards *fs_shards_new(const struct ck_root *root);
void fs_shards_free(struct fs_shards *s);
/* The same files below another @root; while nobody else calls. */
void fs_shards_move(struct fs_shards *s, const struct ck_root *root);

/*
 * @name in directory @dir (FS_INO_SHARDS is the top).  The kernel owns one
 * reference more then; fs_shards_forget() gives back @nr of them.
 */
int fs_shards_lookup(struct fs_shards *s, uint64_t dir, const char *name,
		     uint64_t *ino, struct stat *st, struct ck_err *err);
void fs_shards_forget(struct fs_shards *s, uint64_t ino, uint64_t nr);
int fs_shards_stat(struct fs_shards *s, uint64_t ino, struct stat *st,
		   struct ck_err *err);
const struct ck_root *fs_shards_root(const struct fs_shards *s);
/* Below that, to free(); NULL: @ino is unknown, or no memory. */
char *fs_shards_path_of(struct fs_shards *s, uint64_t ino);
/* -ENOENT for what is not shown. */
int fs_shards_stat_path(const struct fs_shards *s, const char *path,
			struct stat *st, struct ck_err *err);

/* The text of a link that is shown as one; -EINVAL: @ino is none. */
int fs_shards_readlink(struct fs_shards *s, uint64_t ino, char out[PATH_MAX]);

/* An open file; *fd is the caller's to close. */
int fs_shards_open(struct fs_shards *s, uint64_t ino, int *fd, struct stat *st,
		   struct ck_err *err);

/* What a directory held when it was opened, "." and ".." first. */
struct fs_shard_entry {
	char *name;
	uint64_t ino;
	mode_t type; /* S_IFDIR, S_IFLNK or S_IFREG */
};
struct fs_shard_list {
	struct fs_shard_entry *v;
	size_t nr, room;
	bool failed; /* no memory: some are missing */
};
int fs_shards_list(struct fs_shards *s, uint64_t dir,
		   struct fs_shard_list **out, struct ck_err *err);
void fs_shards_list_free(struct fs_shard_list *l);
/* One entry more; copies @name. */
void fs_shards_list_add(struct fs_shard_list *l, const char *name, uint64_t ino,
			mode_t type);

#endif
