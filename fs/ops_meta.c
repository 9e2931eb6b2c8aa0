/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_meta.c - lookup, getattr, forget, statfs
 *
 * Attributes of a tensor are computed from the image each time: nothing is
 * kept, so nothing needs to be forgotten.
 */
#include "fs/ops.h"

#include "core/base/check.h"
#include "fs/reply.h"

#include <errno.h>
#include <string.h>

#define NAME_MAX_BYTES 255
#define READABLE 0444u
#define BLOCK 4096u

static void set_size(struct stat *st, uint64_t size)
{
	st->st_size = (off_t)size;
	st->st_blocks = (blkcnt_t)CK_DIV_UP(size, 512);
	st->st_blksize = FS_MAX_IO;
}

static void set_times(struct stat *st, int64_t mtime_ns)
{
	int64_t sec = mtime_ns / 1000000000, ns = mtime_ns % 1000000000;

	if (ns < 0) {
		ns += 1000000000;
		sec--;
	}
	st->st_mtim.tv_sec = sec;
	st->st_mtim.tv_nsec = ns;
	st->st_atim = st->st_ctim = st->st_mtim;
}

/* The file that a source's bytes are in; NULL: none, or it is not there. */
static const struct ck_src *file_of(const struct ck_image *img, uint32_t src)
{
	const struct ck_src *s;

	if (src == CK_NONE)
		return NULL;
	s = &img->srcs[src];
	if (s->kind == CK_SRC_CODEC)
		s = &img->srcs[s->parent];
	return s->kind == CK_SRC_FILE && s->state != CK_MISSING ? s : NULL;
}

static void tensor_attr(const struct fs *fs, uint32_t nr, struct stat *st)
{
	const struct ck_tensor *t = &fs->img->tensors[nr];
	const struct ck_src *src = file_of(fs->img, t->newest);

	st->st_nlink = 1;
	set_size(st, t->size);
	if (src) {
		st->st_mode = S_IFREG | (src->mode & READABLE);
		st->st_uid = src->uid;
		st->st_gid = src->gid;
		set_times(st, src->id.mtime_ns);
	} else {
		st->st_mode = S_IFREG | (fs->dir.st_mode & READABLE);
		st->st_uid = fs->dir.st_uid;
		st->st_gid = fs->dir.st_gid;
		st->st_mtim = st->st_atim = st->st_ctim = fs->dir.st_mtim;
	}
}

static void dir_attr(const struct fs *fs, struct stat *st)
{
	st->st_mode = S_IFDIR | (fs->dir.st_mode & 0555);
	st->st_nlink = 2;
	st->st_uid = fs->dir.st_uid;
	st->st_gid = fs->dir.st_gid;
	st->st_mtim = st->st_atim = st->st_ctim = fs->dir.st_mtim;
	set_size(st, BLOCK);
	st->st_blksize = BLOCK;
}

static int virt_attr(const struct fs *fs, uint32_t nr, struct stat *st,
		     double *keep, struct ck_err *err)
{
	uint64_t size;
	int ret = fs_virt_size(fs->virt, nr, &size, err);

	if (ret)
		return ret;
	dir_attr(fs, st);
	st->st_mode = S_IFREG | (fs->dir.st_mode & READABLE);
	st->st_nlink = 1;
	set_size(st, size);
	*keep = fs_virt_fixed(nr) ? FS_KEEP_FIXED : FS_KEEP_NONE;
	return 0;
}

static void shard_attr(struct stat *st)
{
	st->st_mode &= S_IFMT | 0555;
	st->st_nlink = S_ISDIR(st->st_mode) ? 2 : 1;
	st->st_dev = 0;
}

int fs_attr(struct fs *fs, uint64_t ino, struct stat *st, double *keep,
	    struct ck_err *err)
{
	struct fs_node node = fs_tree_node(fs->img, ino);
	int ret = 0;

	*st = (struct stat){ .st_ino = ino };
	*keep = FS_KEEP_FIXED;
	switch (node.kind) {
	case FS_DIR:
		dir_attr(fs, st);
		break;
	case FS_TENSOR:
		tensor_attr(fs, node.nr, st);
		break;
	case FS_VIRT:
		ret = virt_attr(fs, node.nr, st, keep, err);
		break;
	case FS_SHARD:
		*keep = FS_KEEP_SHARD;
		ret = fs_shards_stat(fs->shards, ino, st, err);
		shard_attr(st);
		break;
	default:
		ret = ck_fail(err, ESTALE, "unknown inode");
	}
	return ret;
}

static bool below_shards(uint64_t ino)
{
	return ino == FS_INO_SHARDS || (ino & FS_INO_SHARD);
}

static int lookup_shard(struct fs *fs, uint64_t parent, const char *name,
			struct fuse_entry_param *e, struct ck_err *err)
{
	int ret = fs_shards_lookup(fs->shards, parent, name, &e->ino, &e->attr,
				   err);

	shard_attr(&e->attr);
	e->attr_timeout = e->entry_timeout = FS_KEEP_SHARD;
	return ret;
}

int fs_lookup(struct fs *fs, uint64_t parent, const char *name,
	      struct fuse_entry_param *e, struct ck_err *err)
{
	*e = (struct fuse_entry_param){ .entry_timeout = FS_KEEP_FIXED };
	if (strlen(name) > NAME_MAX_BYTES)
		return -ENAMETOOLONG;
	if (below_shards(parent))
		return lookup_shard(fs, parent, name, e, err);
	e->ino = fs_tree_lookup(fs->img, parent, name);
	if (!e->ino) /* not there, and will not be: the kernel keeps that */
		return 0;
	return fs_attr(fs, e->ino, &e->attr, &e->attr_timeout, err);
}

void fs_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e;
	struct ck_err err = { 0 };
	int ret = fs_lookup(fs_of(req), parent, name, &e, &err);

	if (ret == -ENOENT || ret == -ENAMETOOLONG || ret == -EACCES)
		fs_reply_errno(req, -ret);
	else if (ret)
		fs_reply_fail(req, ret, &err);
	else
		fs_reply_entry(req, &e);
}

static void forget(struct fs *fs, uint64_t ino, uint64_t nr)
{
	if (ino & FS_INO_SHARD)
		fs_shards_forget(fs->shards, ino, nr);
}

void fs_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	forget(fs_of(req), ino, nlookup);
	fs_reply_none(req);
}

void fs_op_forget_multi(fuse_req_t req, size_t count,
			struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		forget(fs_of(req), forgets[i].ino, forgets[i].nlookup);
	fs_reply_none(req);
}

void fs_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ck_err err = { 0 };
	struct stat st;
	double keep;
	int ret = fs_attr(fs_of(req), ino, &st, &keep, &err);

	(void)fi;
	if (ret == -ENOENT || ret == -EACCES)
		fs_reply_errno(req, -ret);
	else if (ret)
		fs_reply_fail(req, ret, &err);
	else
		fs_reply_attr(req, &st, keep);
}

void fs_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	const struct fs *fs = fs_of(req);
	struct statvfs st = {
		.f_bsize = BLOCK,
		.f_frsize = BLOCK,
		.f_blocks = CK_DIV_UP(fs->total, BLOCK),
		.f_files = fs->img->nr_tensors,
		.f_namemax = NAME_MAX_BYTES,
	};

	(void)ino;
	fs_reply_statfs(req, &st);
}
