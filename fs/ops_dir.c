/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_dir.c - opendir, readdir, readdirplus
 *
 * A position is the number of the entry, so a listing of a million tensors is
 * continued anywhere without having been kept.  shards/ may change while it
 * is read: what it held is taken down when it is opened.
 */
#include "fs/ops.h"

#include "core/base/auto.h"
#include "fs/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct fs_shard_list *list_of(const struct fuse_file_info *fi)
{
	return (struct fs_shard_list *)(uintptr_t)fi->fh;
}

static int open_shards(struct fs *fs, uint64_t ino, struct fuse_file_info *fi,
		       struct ck_err *err)
{
	struct fs_shard_list *l = NULL;
	int ret = fs_shards_list(fs->shards, ino, &l, err);

	fi->fh = (uintptr_t)l;
	return ret;
}

void fs_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct ck_err err = { 0 };
	int ret = 0;

	fi->fh = 0;
	if (ino == FS_INO_SHARDS || (ino & FS_INO_SHARD))
		ret = open_shards(fs, ino, fi, &err);
	else
		fi->cache_readdir = fi->keep_cache = 1;
	if (ret == -ENOENT || ret == -EACCES)
		fs_reply_errno(req, -ret);
	else if (ret)
		fs_reply_fail(req, ret, &err);
	else if (fs_reply_open(req, fi))
		fs_shards_list_free(list_of(fi));
}

void fs_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	fs_shards_list_free(list_of(fi));
	fs_reply_errno(req, 0);
}

static bool entry_at(const struct fs *fs, uint64_t dir,
		     const struct fuse_file_info *fi, uint64_t pos,
		     struct fs_entry *e)
{
	const struct fs_shard_list *l = list_of(fi);

	if (!l)
		return fs_tree_entry(fs->img, dir, pos, e);
	if (pos >= l->nr)
		return false;
	*e = (struct fs_entry){ l->v[pos].name, l->v[pos].ino,
				l->v[pos].is_dir };
	return true;
}

static size_t add_plain(fuse_req_t req, char *at, size_t left,
			const struct fs_entry *e, uint64_t next)
{
	struct stat st = { .st_ino = e->ino,
			   .st_mode = e->is_dir ? S_IFDIR : S_IFREG };

	return fuse_add_direntry(req, at, left, e->name, &st, (off_t)next);
}

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

/* What a look-up would say; the number of a fixed file is known already. */
static int fill_plus(struct fs *fs, uint64_t dir, const struct fs_entry *e,
		     struct fuse_entry_param *p)
{
	if (e->ino & FS_INO_SHARD)
		return fs_lookup(fs, dir, e->name, p, NULL);
	p->ino = e->ino;
	p->entry_timeout = FS_KEEP_FIXED;
	return fs_attr(fs, e->ino, &p->attr, &p->attr_timeout, NULL);
}

/* The kernel counts a look-up for every entry with an inode that it gets. */
static size_t add_plus(fuse_req_t req, uint64_t dir, char *at, size_t left,
		       const struct fs_entry *e, uint64_t next)
{
	struct fs *fs = fs_of(req);
	struct fuse_entry_param p = { 0 };
	size_t len;

	if (is_dots(e->name) || fill_plus(fs, dir, e, &p)) {
		p = (struct fuse_entry_param){ 0 };
		p.attr.st_ino = e->ino;
		p.attr.st_mode = e->is_dir ? S_IFDIR : S_IFREG;
	}
	len = fuse_add_direntry_plus(req, at, left, e->name, &p, (off_t)next);
	if (len > left && (p.ino & FS_INO_SHARD))
		fs_shards_forget(fs->shards, p.ino, 1);
	return len;
}

static void read_dir(fuse_req_t req, uint64_t dir, size_t size, off_t off,
		     const struct fuse_file_info *fi, bool plus)
{
	ck_auto_free char *buf = malloc(size);
	uint64_t pos = off < 0 ? 0 : (uint64_t)off;
	struct fs_entry e;
	size_t used = 0;

	if (!buf) {
		fs_reply_errno(req, ENOMEM);
		return;
	}
	for (; entry_at(fs_of(req), dir, fi, pos, &e); pos++) {
		size_t left = size - used;
		size_t len =
			plus ? add_plus(req, dir, buf + used, left, &e,
					pos + 1) :
			       add_plain(req, buf + used, left, &e, pos + 1);

		if (len > left)
			break;
		used += len;
	}
	fs_reply_buf(req, buf, used);
}

void fs_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		   struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, false);
}

void fs_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, true);
}
