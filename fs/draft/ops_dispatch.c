/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_dispatch.c - who serves which inode: that of a draft, or any other
 */
#include "fs/draft/ops_draft.h"

#include "fs/kernel/reply.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define SOURCE "user.unshard.source"
#define STATE "user.unshard.state"

/* ---- attributes by name ---- */

static void any_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
			 size_t size)
{
	const struct fs *fs = fs_of(req);
	const char *value = NULL;

	if (fs_ino_is_draft(ino))
		value = strcmp(name, STATE) ? NULL : "staged";
	else if (ino == FUSE_ROOT_ID && fs->src && !strcmp(name, SOURCE))
		value = fs->src;
	if (value)
		fs_reply_xattr(req, value, strlen(value), size);
	else if (fs_ino_is_draft(ino))
		fs_reply_errno(req, strncmp(name, "user.", 5) ? EOPNOTSUPP :
								ENODATA);
	else
		fs_op_getxattr(req, ino, name, size);
}

static void any_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	if (fs_ino_is_draft(ino))
		fs_reply_xattr(req, "", 0, size);
	else
		fs_op_listxattr(req, ino, size);
}

/* ---- the rest, by the inode alone ---- */

#define EITHER(op, decl, use)                 \
	static void any_##op decl             \
	{                                     \
		if (fs_ino_is_draft(ino))     \
			fs_draft_op_##op use; \
		else                          \
			fs_op_##op use;       \
	}

EITHER(getattr, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi),
       (req, ino, fi))
EITHER(setattr,
       (fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
	struct fuse_file_info *fi),
       (req, ino, attr, to_set, fi))
EITHER(opendir, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi),
       (req, ino, fi))
EITHER(readdir,
       (fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
	struct fuse_file_info *fi),
       (req, ino, size, off, fi))
EITHER(readdirplus,
       (fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
	struct fuse_file_info *fi),
       (req, ino, size, off, fi))
EITHER(releasedir, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi),
       (req, ino, fi))
EITHER(open, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi),
       (req, ino, fi))
EITHER(read,
       (fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
	struct fuse_file_info *fi),
       (req, ino, size, off, fi))
EITHER(release, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi),
       (req, ino, fi))
EITHER(lseek,
       (fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
	struct fuse_file_info *fi),
       (req, ino, off, whence, fi))
EITHER(write,
       (fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t off,
	struct fuse_file_info *fi),
       (req, ino, buf, size, off, fi))
EITHER(flush, (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi),
       (req, ino, fi))
EITHER(fsync,
       (fuse_req_t req, fuse_ino_t ino, int data, struct fuse_file_info *fi),
       (req, ino, data, fi))
EITHER(fsyncdir,
       (fuse_req_t req, fuse_ino_t ino, int data, struct fuse_file_info *fi),
       (req, ino, data, fi))
EITHER(fallocate,
       (fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len,
	struct fuse_file_info *fi),
       (req, ino, mode, off, len, fi))
EITHER(create,
       (fuse_req_t req, fuse_ino_t ino, const char *name, mode_t mode,
	struct fuse_file_info *fi),
       (req, ino, name, mode, fi))

static void add(struct fuse_lowlevel_ops *ops)
{
	ops->lookup = fs_any_lookup;
	ops->forget = fs_any_forget;
	ops->forget_multi = fs_any_forget_multi;
	ops->getattr = any_getattr;
	ops->setattr = any_setattr;
	ops->readlink = fs_any_readlink;
	ops->statfs = fs_any_statfs;
	ops->opendir = any_opendir;
	ops->readdir = any_readdir;
	ops->readdirplus = any_readdirplus;
	ops->releasedir = any_releasedir;
	ops->open = any_open;
	ops->read = any_read;
	ops->release = any_release;
	ops->lseek = any_lseek;
	ops->write = any_write;
	ops->flush = any_flush;
	ops->fsync = any_fsync;
	ops->fsyncdir = any_fsyncdir;
	ops->fallocate = any_fallocate;
	ops->create = any_create;
	ops->mknod = fs_any_mknod;
	ops->mkdir = fs_any_mkdir;
	ops->symlink = fs_any_symlink;
	ops->link = fs_any_link;
	ops->unlink = fs_any_unlink;
	ops->rmdir = fs_any_rmdir;
	ops->rename = fs_any_rename;
	ops->getxattr = any_getxattr;
	ops->listxattr = any_listxattr;
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
	.ask = ask,
	.new = fs_drafts_new,
	.start = fs_drafts_start,
	.free = fs_drafts_free,
	.root = fs_drafts_root,
};
