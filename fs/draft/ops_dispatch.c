/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_dispatch.c - who serves which inode: that of a draft, or any other
 */
#include "fs/draft/ops_draft.h"

#include "fs/kernel/reply.h"

#include <unistd.h>

/* What they are for an inode of a draft, and for any other. */
static struct fuse_lowlevel_ops draft, plain;

static const struct fuse_lowlevel_ops *of_ino(fuse_ino_t ino)
{
	return fs_ino_is_draft(ino) ? &draft : &plain;
}

/* In the root of a directory of checkpoints too a name may mean a draft. */
static bool may_name(fuse_req_t req, fuse_ino_t dir)
{
	return fs_ino_is_draft(dir) ||
	       (dir == FUSE_ROOT_ID && fs_of(req)->drafts);
}

static const struct fuse_lowlevel_ops *of_dir(fuse_req_t req, fuse_ino_t dir)
{
	return may_name(req, dir) ? &draft : &plain;
}

/* ---- those that are one or the other's ---- */

#define EITHER(op, which, decl, use) \
	static void any_##op decl    \
	{                            \
		which->op use;       \
	}
#define BY_FILE(op)                                                          \
	EITHER(op, of_ino(ino),                                              \
	       (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info * fi), \
	       (req, ino, fi))
#define BY_SYNC(op)                                       \
	EITHER(op, of_ino(ino),                           \
	       (fuse_req_t req, fuse_ino_t ino, int data, \
		struct fuse_file_info *fi),               \
	       (req, ino, data, fi))
BY_FILE(getattr)
BY_FILE(open)
BY_FILE(release)
BY_FILE(flush)
BY_SYNC(fsync)
BY_SYNC(fsyncdir)
EITHER(rmdir, of_dir(req, dir),
       (fuse_req_t req, fuse_ino_t dir, const char *name), (req, dir, name))
EITHER(unlink, of_ino(dir), (fuse_req_t req, fuse_ino_t dir, const char *name),
       (req, dir, name))
EITHER(readlink, of_ino(ino), (fuse_req_t req, fuse_ino_t ino), (req, ino))
EITHER(statfs, of_ino(ino), (fuse_req_t req, fuse_ino_t ino), (req, ino))
EITHER(getxattr, of_ino(ino),
       (fuse_req_t req, fuse_ino_t ino, const char *name, size_t size),
       (req, ino, name, size))
EITHER(listxattr, of_ino(ino), (fuse_req_t req, fuse_ino_t ino, size_t size),
       (req, ino, size))
EITHER(setattr, of_ino(ino),
       (fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
	struct fuse_file_info *fi),
       (req, ino, attr, to_set, fi))
EITHER(lseek, of_ino(ino),
       (fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
	struct fuse_file_info *fi),
       (req, ino, off, whence, fi))
EITHER(read, of_ino(ino),
       (fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
	struct fuse_file_info *fi),
       (req, ino, size, off, fi))
EITHER(write, of_ino(ino),
       (fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	struct fuse_file_info *fi),
       (req, ino, buf, size, off, fi))
EITHER(fallocate, of_ino(ino),
       (fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
	struct fuse_file_info *fi),
       (req, ino, mode, off, len, fi))
EITHER(create, of_ino(dir),
       (fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode,
	struct fuse_file_info *fi),
       (req, dir, name, mode, fi))
EITHER(mknod, of_ino(dir),
       (fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode,
	dev_t rdev),
       (req, dir, name, mode, rdev))
EITHER(mkdir, of_dir(req, dir),
       (fuse_req_t req, fuse_ino_t dir, const char *name, mode_t mode),
       (req, dir, name, mode))
EITHER(symlink, of_ino(dir),
       (fuse_req_t req, const char *to, fuse_ino_t dir, const char *name),
       (req, to, dir, name))

/* ---- the others ---- */

static void any_rename(fuse_req_t req, fuse_ino_t dir, const char *name,
		       fuse_ino_t to, const char *new_name, unsigned flags)
{
	bool drafts = fs_ino_is_draft(dir) || fs_ino_is_draft(to) ||
		      (may_name(req, dir) && may_name(req, to));

	(drafts ? &draft : &plain)->rename(req, dir, name, to, new_name, flags);
}

static void add(struct fuse_lowlevel_ops *ops)
{
	plain = *ops;
	fs_draft_ops_names(&draft);
	fs_draft_ops_files(&draft);
	ops->getattr = any_getattr;
	ops->open = any_open;
	ops->release = any_release;
	ops->flush = any_flush;
	ops->read = any_read;
	ops->fsync = any_fsync;
	ops->fsyncdir = any_fsyncdir;
	ops->rmdir = any_rmdir;
	ops->unlink = any_unlink;
	ops->readlink = any_readlink;
	ops->statfs = any_statfs;
	ops->getxattr = any_getxattr;
	ops->listxattr = any_listxattr;
	ops->setattr = any_setattr;
	ops->lseek = any_lseek;
	ops->write = any_write;
	ops->fallocate = any_fallocate;
	ops->create = any_create;
	ops->mknod = any_mknod;
	ops->mkdir = any_mkdir;
	ops->symlink = any_symlink;
	ops->rename = any_rename;
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
	if (fs_draft_ref_is_file(&r))
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
	.root = fs_drafts_root,
};
