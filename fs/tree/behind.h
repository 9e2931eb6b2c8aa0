/* SPDX-License-Identifier: Apache-2.0 */
/*
 * behind.h - the files that something shown is made of, and what they allow
 *
 * A tensor is behind all of its parts and copies; a file made of several
 * tensors, behind all of theirs, and behind the files of plain values, which may
 * be in its header; one without any tensor, behind all files.  The files of the
 * index (struct ck_catalog) count for all of them, to be read: it says what the
 * others hold.  What is written with a tensor (its float32 copy) counts for
 * writing; with an overlay only that is written.  A directory is the
 * checkpoint's own, each where it is of several, as one below shards/ is; so are
 * .unshard/ and its statistics, while what the index says is behind all files, and
 * so is why a checkpoint cannot be read at all.
 *
 * Asked for mounts that other users may use, and with -o cache.  Threads: any.
 */
#ifndef FS_BEHIND_H
#define FS_BEHIND_H

#include "core/base/err.h"
#include "fs/ask/ask.h"
#include "fs/tree/mounted.h"
#include "fs/tree/tree.h"

/*
 * Adds to @q all that has to allow @mask (R_OK, W_OK, X_OK) for inode @ino of
 * the pinned @mounted, which is @node.
 */
int fs_behind_ask(const struct fs_mounted_table *s, struct fs_mounted *mounted,
		  uint64_t ino, const struct fs_node *node, int mask,
		  struct fs_question *q, struct ck_err *err);
/* Whether everybody may go to its folders, and their modes say all. */
void fs_behind_ask_way(const struct fs_mounted_table *s,
		       const struct fs_mounted *mounted, struct fs_question *q);
/* The same of a file below shards/ that is open, as @fd. */
int fs_behind_ask_open(struct fs_mounted *mounted, uint64_t ino, int fd,
		       int mask, struct fs_question *q, struct ck_err *err);
/*
 * To look into the entry @name of a directory of checkpoints, which was @seen, and
 * into the group that it is in; with @read, to read all that is in it.  -ESTALE:
 * it is another by now.
 */
int fs_behind_ask_entry(const struct fs_mounted_table *s, const char *name,
			const struct stat *seen, bool read,
			struct fs_question *q, struct ck_err *err);
/*
 * Mode and owner of a view's file @node: of each bit what all files behind it
 * have, the owner theirs if it is one, else root.  What a mode cannot say (an
 * access list, the rights of one of several owners) stands as what others may:
 * it lets in who may be let in, and fs_behind_ask() decides.  What was looked at
 * up to @keep seconds ago is taken for what is there.
 */
int fs_behind_mode(const struct fs_mounted_table *s, struct fs_mounted *mounted,
		   uint64_t ino, const struct fs_node *node, double keep,
		   struct stat *st, struct ck_err *err);

/*
 * The sources behind a view's file, a bit each, to free(), and the checkpoint that
 * has them.
 */
int fs_behind_srcs(struct fs_mounted *mounted, uint64_t ino,
		   const struct fs_node *node, struct ck_ckpt **ck,
		   unsigned char **out, struct ck_err *err);

/* The directory of @mounted as it is now, the same way. */
int fs_behind_dir(const struct fs_mounted_table *s,
		  const struct fs_mounted *mounted, struct stat *st);
/* The same of @st, which is what was found of a file below shards/. */
void fs_behind_listed(struct fs_mounted *mounted, uint64_t ino,
		      struct stat *st);

struct fs_behind; /* what is remembered, of one mounted checkpoint */
void fs_behind_free(struct fs_behind *b);

#endif
