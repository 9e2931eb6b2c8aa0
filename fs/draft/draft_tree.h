/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_tree.h - shards/ of a checkpoint that is being written: ordinary files
 *
 * Names, bytes, modes and times go straight to the draft's directory in SRC.
 * A node is a parent, a name and the identity of the file that it was found
 * to be: paths follow renames, and a name that means another file by now (of
 * another node of the cluster, say) is -ESTALE, at which the kernel looks it
 * up again.  A file that is open can be used after it has lost its name.
 *
 * Regular files, directories, and relative links that stay inside; nothing
 * else is shown or made.  Once the draft was published, what is open can be
 * read on and everything else is -EROFS.
 *
 * All functions return 0 or -errno.  Only what nobody expects has a line in
 * @err.  Threads: any.
 */
#ifndef FS_DRAFT_TREE_H
#define FS_DRAFT_TREE_H

#include "core/draft/draft.h"
#include "fs/ask/ask.h"
#include "fs/kernel/kernel.h"
#include "fs/tree/shards.h"

struct fs_draft_tree;
struct fs_draft_tree_file; /* one that is open */

/*
 * Who asks: what is made is his.  @req: his request, by which he is to change names
 * himself, for whose a name is may have changed since the kernel looked; NULL: it
 * is done with the rights of the mount's user.
 */
struct fs_draft_tree_who {
	uid_t uid;
	gid_t gid;
	mode_t umask;
	fuse_req_t req;
};

/*
 * What of @mode something has that @who makes in the directory @dir, and makes it
 * his, with a mode of that kind; what root's mount makes in a set-group-ID folder
 * is the folder's group's.  Where the mount is another's, it stays that one's.
 */
mode_t fs_draft_tree_mode_in(int dir, mode_t mode,
			     const struct fs_draft_tree_who *who);
int fs_draft_tree_own(int fd, int dir, mode_t mode,
		      const struct fs_draft_tree_who *who);

/* An inode for the kernel, which owns one reference more then. */
struct fs_draft_tree_node {
	uint64_t ino;
	struct stat st;
};

/* Takes @draft, which fs_draft_tree_free() closes; NULL: no memory. */
struct fs_draft_tree *fs_draft_tree_new(struct ck_draft *draft);
void fs_draft_tree_free(struct fs_draft_tree *s);
struct ck_draft *fs_draft_tree_draft(const struct fs_draft_tree *s);
/*
 * What of it is written as slices, opened where some mount has begun that;
 * NULL: nothing, or it cannot be read, which is logged.  Lives as long as @s.
 */
struct ck_slices *fs_draft_tree_slices(struct fs_draft_tree *s);
/*
 * Number @at of @nr slices has no name in this mount, which removed it, until it
 * is made again; -ENOMEM.  @nr is always the same.
 */
int fs_draft_tree_hide(struct fs_draft_tree *s, size_t at, size_t nr,
		       bool hide);
bool fs_draft_tree_is_hidden(struct fs_draft_tree *s, size_t at);
/*
 * What chmod and chown said (@attr, FUSE_SET_ATTR_* of @to_set) of inode @ino,
 * which is no file of its own, and is as @before where nothing was said: shown
 * until the step is published.  -ENOMEM.  All inodes with bytes of one tensor
 * are @of that.
 */
int fs_draft_tree_give(struct fs_draft_tree *s, uint64_t of, uint64_t ino,
		       const struct stat *attr, int to_set,
		       const struct stat *before);
/*
 * The same into *st, where something was said; to read it is allowed to nobody
 * to whom another inode @of the same does not allow it.
 */
void fs_draft_tree_given(struct fs_draft_tree *s, uint64_t of, uint64_t ino,
			 struct stat *st);
/* Around what changes it: -EBUSY, or -EROFS for what was published. */
int fs_draft_tree_begin(struct fs_draft_tree *s);
void fs_draft_tree_end(struct fs_draft_tree *s);
/* It was changed, by what has begun. */
void fs_draft_tree_changed(struct fs_draft_tree *s);
/* Moves on with every change that came through this mount. */
uint64_t fs_draft_tree_seq(const struct fs_draft_tree *s);

/*
 * Adds to @q the file or folder that has to allow @mask for @ino, which is
 * FS_INO_SHARDS or below.  -ESTALE: it has no name any more.
 */
int fs_draft_tree_ask(struct fs_draft_tree *s, uint64_t ino, int mask,
		      struct fs_question *q);

/* Adds folder @dir, for what is to be done in it. */
int fs_draft_tree_ask_dir(struct fs_draft_tree *s, uint64_t dir,
			  struct fs_question *q);

int fs_draft_tree_lookup(struct fs_draft_tree *s, uint64_t dir,
			 const char *name, struct fs_draft_tree_node *out);
void fs_draft_tree_forget(struct fs_draft_tree *s, uint64_t ino, uint64_t nr);
/* @f, where the kernel says which open file is meant, or NULL. */
int fs_draft_tree_stat(struct fs_draft_tree *s, uint64_t ino,
		       const struct fs_draft_tree_file *f, struct stat *st);
int fs_draft_tree_readlink(struct fs_draft_tree *s, uint64_t ino,
			   char out[PATH_MAX]);
int fs_draft_tree_list(struct fs_draft_tree *s, uint64_t dir,
		       struct fs_shard_list **out);
int fs_draft_tree_sync_dir(struct fs_draft_tree *s, uint64_t ino,
			   struct ck_err *err);

/*
 * FUSE_SET_ATTR_* of @to_set.  @who: may he still, of whose the file is by now?
 * NULL: the kernel has seen to it.
 */
int fs_draft_tree_set(struct fs_draft_tree *s, uint64_t ino,
		      const struct fs_draft_tree_file *f,
		      const struct stat *attr, int to_set,
		      const struct fs_draft_tree_who *who);
/* -EEXIST, whether @flags have O_EXCL or not: it is to be asked for then. */
int fs_draft_tree_create(struct fs_draft_tree *s, uint64_t dir,
			 const char *name, mode_t mode, int flags,
			 const struct fs_draft_tree_who *who,
			 struct fs_draft_tree_node *out,
			 struct fs_draft_tree_file **f);
int fs_draft_tree_mkdir(struct fs_draft_tree *s, uint64_t dir, const char *name,
			mode_t mode, const struct fs_draft_tree_who *who,
			struct fs_draft_tree_node *out);
/* The mount's user's, where nobody is asked. */
int fs_draft_tree_symlink(struct fs_draft_tree *s, uint64_t dir,
			  const char *name, const char *to,
			  const struct fs_draft_tree_who *who,
			  struct fs_draft_tree_node *out);
/* @who: NULL as without a request. */
int fs_draft_tree_unlink(struct fs_draft_tree *s, uint64_t dir,
			 const char *name, bool is_dir,
			 const struct fs_draft_tree_who *who);
/* @flags: of renameat2(). */
int fs_draft_tree_rename(struct fs_draft_tree *s, uint64_t dir,
			 const char *name, uint64_t new_dir,
			 const char *new_name, unsigned flags,
			 const struct fs_draft_tree_who *who);

/*
 * A rename of a file within @dir that replaces another, of which the other can
 * come back: @old waits beside files/ until fs_draft_tree_replaced().  False:
 * nothing was done, for there is none, or the file system knows no exchange.
 */
bool fs_draft_tree_replace(struct fs_draft_tree *s, uint64_t dir,
			   const char *name, const char *new_name,
			   const struct fs_draft_tree_who *who,
			   struct stat *old);
/* It is gone; or @back, and the rename undone. */
void fs_draft_tree_replaced(struct fs_draft_tree *s, uint64_t dir,
			    const char *name, const char *new_name,
			    const struct stat *old, bool back);

/*
 * draft_tree_siblings.c: a folder for files that wait to become something else,
 * not below shards/ and not published; *dir is as a directory's inode above, and
 * stays known.  -ENOENT: it is not there, and not @make.
 */
int fs_draft_tree_sibling(struct fs_draft_tree *s, const char *key, bool make,
			  uint64_t *dir);
/*
 * Whether nobody has @ino open for writing any more; then nobody can open it
 * so, until fs_draft_tree_let_open().  Waits for a close that is on its way.
 */
bool fs_draft_tree_close_off(struct fs_draft_tree *s, uint64_t ino);
void fs_draft_tree_let_open(struct fs_draft_tree *s, uint64_t ino);
/*
 * Bytes of it were lost since they were acknowledged: -EIO; the draft is
 * poisoned.
 */
int fs_draft_tree_check_kept(struct fs_draft_tree *s,
			     const struct fs_draft_tree_file *f,
			     struct ck_err *err);

int fs_draft_tree_open(struct fs_draft_tree *s, uint64_t ino, int flags,
		       struct fs_draft_tree_file **out);
/*
 * Whether @f, which was opened with @flags, goes past the kernel's pages: 0 or 1.
 * What may be mapped, to be stored into, does not, nor does what is written
 * beside it, for the kernel writes whole pages back.  @direct: others may.
 * -EBUSY: it has to and another may be mapped, or the other way round; files that
 * were closed are waited for, two seconds at most.
 */
int fs_draft_tree_share(struct fs_draft_tree *s, struct fs_draft_tree_file *f,
			int flags, bool direct, struct ck_err *err);
/*
 * A close of it, by whoever has it open, which is to be released soon, but for copies
 * of the descriptor, and maps.  What the close fails with is lost bytes.
 */
int fs_draft_tree_flush(struct fs_draft_tree *s, struct fs_draft_tree_file *f,
			struct ck_err *err);
void fs_draft_tree_release(struct fs_draft_tree *s,
			   struct fs_draft_tree_file *f);
/* As far as the file goes. */
int fs_draft_tree_read(const struct fs_draft_tree_file *f, char *buf,
		       size_t len, uint64_t off, size_t *got,
		       struct ck_err *err);
/* In full, or nothing of it is promised.  @cached: its writer is gone. */
int fs_draft_tree_write(struct fs_draft_tree *s,
			const struct fs_draft_tree_file *f, const char *buf,
			size_t len, uint64_t off, bool cached,
			struct ck_err *err);
/* User @uid has written: set-user-ID bits end, unless that is root. */
void fs_draft_tree_written_by(const struct fs_draft_tree_file *f, uid_t uid);
int fs_draft_tree_sync(struct fs_draft_tree *s,
		       const struct fs_draft_tree_file *f, bool data,
		       struct ck_err *err);
int fs_draft_tree_fallocate(struct fs_draft_tree *s,
			    const struct fs_draft_tree_file *f, int mode,
			    uint64_t off, uint64_t len);
off_t fs_draft_tree_seek(const struct fs_draft_tree_file *f, off_t off,
			 int whence);

#endif
