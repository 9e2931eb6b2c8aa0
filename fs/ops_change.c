/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_change.c - names that come and go, on a mount for writing
 *
 * Which tensors there are is what the shards say: nothing can be made, removed
 * or renamed among them.
 */
#include "fs/ops.h"

#include "fs/kernel/reply.h"

#include <errno.h>

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name,
		      mode_t mode, struct fuse_file_info *fi)
{
	(void)parent;
	(void)name;
	(void)mode;
	(void)fi;
	fs_reply_errno(req, EPERM);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name,
		     mode_t mode, dev_t rdev)
{
	(void)parent;
	(void)name;
	(void)mode;
	(void)rdev;
	fs_reply_errno(req, EPERM);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
		     mode_t mode)
{
	(void)parent;
	(void)name;
	(void)mode;
	fs_reply_errno(req, EPERM);
}

static void op_symlink(fuse_req_t req, const char *to, fuse_ino_t parent,
		       const char *name)
{
	(void)to;
	(void)parent;
	(void)name;
	fs_reply_errno(req, EPERM);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent,
		    const char *name)
{
	(void)ino;
	(void)parent;
	(void)name;
	fs_reply_errno(req, EPERM);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent;
	(void)name;
	fs_reply_errno(req, EPERM);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent;
	(void)name;
	fs_reply_errno(req, EPERM);
}

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

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
		      fuse_ino_t new_parent, const char *new_name,
		      unsigned flags)
{
	(void)name;
	(void)new_name;
	(void)flags;
	fs_reply_errno(req, rename_code(fs_of(req), parent, new_parent));
}

void fs_ops_change(struct fuse_lowlevel_ops *ops)
{
	ops->create = op_create;
	ops->mknod = op_mknod;
	ops->mkdir = op_mkdir;
	ops->symlink = op_symlink;
	ops->link = op_link;
	ops->unlink = op_unlink;
	ops->rmdir = op_rmdir;
	ops->rename = op_rename;
}
