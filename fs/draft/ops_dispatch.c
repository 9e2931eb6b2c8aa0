/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_dispatch.c - who serves which inode: that of a draft, or any other
 *
 * Which tensors there are is what the shards say: nothing can be made, removed
 * or renamed among them.
 */
#include "fs/draft/ops_draft.h"

#include <errno.h>
#include <unistd.h>

/* What they are for an inode of a draft, and for any other. */
static struct fuse_lowlevel_ops draft, plain;

/* In the root of a directory of checkpoints too a name may mean a draft. */
static bool may_name(fuse_req_t req, fuse_ino_t dir)
{
	return fs_ino_is_draft(dir) ||
	       (dir == FUSE_ROOT_ID && fs_of(req)->drafts);
}

/*
 * Operations and how they are called: FILE by an inode that may be open.  Those for
 * drafts alone say when it is one, and what is answered for all else.
 */
#define OPERATIONS(FILE, BOTH, DRAFTS)                                         \
	FILE(getattr)                                                          \
	FILE(open)                                                             \
	FILE(release)                                                          \
	FILE(flush)                                                            \
	BOTH(read,                                                             \
	     (fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,          \
	      struct fuse_file_info * fi),                                     \
	     (req, ino, size, off, fi))                                        \
	BOTH(write,                                                            \
	     (fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,    \
	      off_t off, struct fuse_file_info *fi),                           \
	     (req, ino, buf, size, off, fi))                                   \
	BOTH(lseek,                                                            \
	     (fuse_req_t req, fuse_ino_t ino, off_t off, int whence,           \
	      struct fuse_file_info *fi),                                      \
	     (req, ino, off, whence, fi))                                      \
	BOTH(fsync,                                                            \
	     (fuse_req_t req, fuse_ino_t ino, int data,                        \
	      struct fuse_file_info *fi),                                      \
	     (req, ino, data, fi))                                             \
	BOTH(setattr,                                                          \
	     (fuse_req_t req, fuse_ino_t ino, struct stat * attr, int to_set,  \
	      struct fuse_file_info *fi),                                      \
	     (req, ino, attr, to_set, fi))                                     \
	BOTH(getxattr,                                                         \
	     (fuse_req_t req, fuse_ino_t ino, const char *name, size_t size),  \
	     (req, ino, name, size))                                           \
	BOTH(listxattr, (fuse_req_t req, fuse_ino_t ino, size_t size),         \
	     (req, ino, size))                                                 \
	BOTH(readlink, (fuse_req_t req, fuse_ino_t ino), (req, ino))           \
	BOTH(statfs, (fuse_req_t req, fuse_ino_t ino), (req, ino))             \
	DRAFTS(fsyncdir, fs_ino_is_draft(ino), 0,                              \
	       (fuse_req_t req, fuse_ino_t ino, int data,                      \
		struct fuse_file_info *fi),                                    \
	       (req, ino, data, fi))                                           \
	DRAFTS(fallocate, fs_ino_is_draft(ino), EOPNOTSUPP,                    \
	       (fuse_req_t req, fuse_ino_t ino, int mode, off_t off,           \
		off_t len, struct fuse_file_info *fi),                         \
	       (req, ino, mode, off, len, fi))                                 \
	DRAFTS(create, fs_ino_is_draft(dir), EPERM,                            \
	       (fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode, \
		struct fuse_file_info *fi),                                    \
	       (req, dir, name, mode, fi))                                     \
	DRAFTS(mknod, fs_ino_is_draft(dir), EPERM,                             \
	       (fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode, \
		dev_t rdev),                                                   \
	       (req, dir, name, mode, rdev))                                   \
	DRAFTS(symlink, fs_ino_is_draft(dir), EPERM,                           \
	       (fuse_req_t req, const char *to, fuse_ino_t dir,                \
		const char *name),                                             \
	       (req, to, dir, name))                                           \
	DRAFTS(unlink, fs_ino_is_draft(dir), EPERM,                            \
	       (fuse_req_t req, fuse_ino_t dir, const char *name),             \
	       (req, dir, name))                                               \
	DRAFTS(mkdir, may_name(req, dir), EPERM,                               \
	       (fuse_req_t req, fuse_ino_t dir, const char *name,              \
		mode_t mode),                                                  \
	       (req, dir, name, mode))                                         \
	DRAFTS(rmdir, may_name(req, dir), EPERM,                               \
	       (fuse_req_t req, fuse_ino_t dir, const char *name),             \
	       (req, dir, name))

#define DEFINE_BOTH(op, decl, use)                                \
	static void any_##op decl                                 \
	{                                                         \
		(fs_ino_is_draft(ino) ? &draft : &plain)->op use; \
	}
#define DEFINE_FILE(op)                                                       \
	DEFINE_BOTH(                                                          \
		op,                                                           \
		(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info * fi), \
		(req, ino, fi))
#define DEFINE_DRAFTS(op, is_draft, code, decl, use) \
	static void any_##op decl                    \
	{                                            \
		if (is_draft)                        \
			draft.op use;                \
		else                                 \
			fuse_reply_err(req, code);   \
	}
OPERATIONS(DEFINE_FILE, DEFINE_BOTH, DEFINE_DRAFTS)

/* What cannot be moved within tensors/ can be copied to and from shards/. */
static int rename_code(struct fs *fs, uint64_t from, uint64_t to)
{
	fs_auto_ref a = { 0 }, b = { 0 };

	if (fs_find(fs, from, true, &a, NULL) ||
	    fs_find(fs, to, true, &b, NULL))
		return ESTALE;
	return (a.node.kind == FS_SHARD) == (b.node.kind == FS_SHARD) ? EPERM :
									EXDEV;
}

static void any_rename(fuse_req_t req, fuse_ino_t dir, const char *name,
		       fuse_ino_t to, const char *new_name, unsigned flags)
{
	if (fs_ino_is_draft(dir) || fs_ino_is_draft(to) ||
	    (may_name(req, dir) && may_name(req, to)))
		draft.rename(req, dir, name, to, new_name, flags);
	else
		fuse_reply_err(req, rename_code(fs_of(req), dir, to));
}

static void no_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t dir,
		    const char *name)
{
	(void)ino;
	(void)dir;
	(void)name;
	fuse_reply_err(req, EPERM);
}

static void add(struct fuse_lowlevel_ops *ops)
{
	plain = *ops;
	fs_draft_ops_names(&draft);
	fs_draft_ops_files(&draft);
#define SET(op, ...) ops->op = any_##op;
	OPERATIONS(SET, SET, SET)
#undef SET
	ops->rename = any_rename;
	ops->link = no_link;
}

/*
 * Slices are shown with a mode of their own, and their bytes lie in files of the
 * step: who may change its folder may write them.
 */
static int ask(struct fs *fs, uint64_t ino, int mask, struct fs_question *q)
{
	fs_auto_draft_ref r = { 0 };
	int ret = fs_draft_ref_find(fs, ino, &r);

	if (ret)
		return ret;
	if (fs_draft_is_file(r.ino))
		return fs_draft_tree_ask(r.s->files, r.ino, mask, q);
	if (mask & W_OK)
		mask |= X_OK;
	return fs_draft_tree_ask(r.s->files, FS_INO_SHARDS, mask, q);
}

const struct fs_draft_ops fs_draft_ops = {
	.add = add,
	.has = fs_ino_is_draft,
	.lookup = fs_draft_lookup,
	.forget = fs_draft_forget_ino,
	.list = fs_draft_list,
	.ask = ask,
	.new = fs_drafts_new,
	.start = fs_drafts_start,
	.free = fs_drafts_free,
};
