/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_draft_files.c - bytes and attributes in a checkpoint being written
 *
 * Threads: libfuse's.  A file that is open keeps its draft.
 */
#include "fs/draft/ops_draft.h"

#include "core/base/check.h"
#include "fs/kernel/buf.h"
#include "fs/kernel/receive.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define CREATE_TRIES 8 /* then the kernel looks again */

static struct fs_draft_tree_file *draft_tree_of(const struct fuse_file_info *fi)
{
	return fs_open_of(fi) ? fs_open_of(fi)->f : NULL;
}

static int open_shard(const struct fs_draft_ref *r,
		      const struct fuse_file_info *fi, struct fs_open *o)
{
	const struct stat none = { 0 };
	int ret = fs_draft_tree_open(r->s->files, r->ino, fi->flags, &o->f);

	if (ret || !(fi->flags & O_TRUNC))
		return ret;
	ret = fs_draft_tree_set(r->s->files, r->ino, o->f, &none,
				FUSE_SET_ATTR_SIZE, NULL);
	if (ret) {
		fs_draft_tree_release(r->s->files, o->f);
		o->f = NULL;
	}
	return ret;
}

static int open_any(const struct fs_draft_ref *r,
		    const struct fuse_file_info *fi, struct fs_open *o)
{
	if (r->ino & FS_INO_SHARD)
		return open_shard(r, fi, o);
	if (fs_slices_has(r->ino))
		return fs_slices_open(r, fi->flags, o);
	if (r->ino != FS_DRAFT_STATUS)
		return -EISDIR;
	if ((fi->flags & O_ACCMODE) != O_RDONLY)
		return -EPERM;
	fs_draft_text(r->drafts, r->s, &o->text);
	return o->text.failed ? -ENOMEM : 0;
}

static void end_open(const struct fs_draft_ref *r, struct fs_open *o)
{
	if (o->f)
		fs_draft_tree_release(r->s->files, o->f);
	if (o->writes)
		fs_draft_tree_end(r->s->files);
	fs_open_free(o);
}

/* Where no map can be, nothing is passed by. */
static int share(const struct fs *fs, const struct fs_draft_ref *r,
		 struct fs_open *o, const struct fuse_file_info *fi)
{
	const struct fs_kernel *k = &fs->kernel;
	struct ck_err err = { 0 };
	int ret = k->direct || (!o->f && !o->slice);

	if (o->f && (k->direct_mmap || !k->direct))
		ret = fs_draft_tree_share(r->s->files, o->f, fi->flags,
					  k->direct, &err);
	if (ret < 0)
		fs_log("%s", err.msg);
	return ret;
}

/* Keeps a pin of the draft, which the release gives back. */
static int keep_open(struct fs *fs, struct fs_draft_ref *r, struct fs_open *o,
		     struct fuse_file_info *fi)
{
	int ret = share(fs, r, o, fi);

	fi->fh = (uintptr_t)o;
	fi->direct_io = ret > 0;
	fi->keep_cache = 0;
	if (ret < 0)
		end_open(r, o);
	else
		fs_drafts_pin(r->drafts, fs_ino(r->s->nr, r->ino));
	return CK_MIN(ret, 0);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs_open *o = fs_open_new();
	fs_auto_draft_ref r = { 0 };
	int ret = o ? fs_draft_ref_find(fs_of(req), ino, &r) : -ENOMEM;

	if (!ret)
		ret = open_any(&r, fi, o);
	if (ret) {
		fs_open_free(o);
		fuse_reply_err(req, -ret);
		return;
	}
	ret = keep_open(fs_of(req), &r, o, fi);
	if (ret)
		fuse_reply_err(req, -ret);
	else if (fs_reply_open(req, fi, o->slice && fi->direct_io)) {
		end_open(&r, o);
		fs_draft_unpin(r.drafts, r.s);
	}
}

static void op_release(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	fs_auto_draft_ref r = { 0 };

	if (!fs_draft_ref_find(fs_of(req), ino, &r)) {
		end_open(&r, fs_open_of(fi));
		fs_draft_unpin(r.drafts, r.s);
	}
	fuse_reply_err(req, 0);
}

/* The same as fs_draft_tree_create() of anything in folder @r; @r may be that. */
static int make(struct fs_draft_ref *r, const char *name, mode_t mode,
		int flags, const struct fs_draft_tree_who *by,
		struct fs_open *o, struct fs_draft_tree_node *node)
{
	int ret;

	if (r->ino == FS_INO_ROOT && !strcmp(name, FS_LAYOUT_NAME)) {
		node->ino = r->ino = FS_DRAFT_LAYOUT;
		ret = fs_slices_open(r, flags, o);
		return ret ? ret : fs_draft_ref_attr(r, NULL, &node->st);
	}
	if (!fs_draft_is_file(r->ino)) {
		ret = fs_slices_create(r, name, flags, o);
		if (ret == -ENOENT)
			return fs_siblings_create(r, name, mode, flags, by,
						  node, &o->f);
		node->ino = r->ino;
		return ret ? ret : fs_draft_ref_attr(r, NULL, &node->st);
	}
	return fs_draft_tree_create(r->s->files, r->ino, name, mode, flags, by,
				    node, &o->f);
}

/*
 * In a sticky folder O_CREAT opens no file of another's (fs.protected_regular),
 * and of a slice the kernel knows a mode that no file has: it is to look again.
 */
static bool is_the_kernels(const struct fs_draft_ref *dir,
			   const struct fs_draft_tree_node *node, uid_t by)
{
	struct stat st;

	return !(node->ino & FS_INO_SHARD) ||
	       fs_draft_ref_attr(dir, NULL, &st) ||
	       (st.st_mode & S_ISVTX && node->st.st_uid != st.st_uid &&
		node->st.st_uid != by);
}

/*
 * Another mount has made what this one's kernel did not find a moment before:
 * O_CREAT alone means to open it, and it is asked for as by any open.
 */
static int open_made(fuse_req_t req, const struct fs_draft_ref *dir,
		     const char *name, const struct fuse_file_info *fi,
		     struct fs_open *o, struct fs_draft_tree_node *node)
{
	struct fs_draft_ref r = *dir;
	int ret = fs_draft_ref_lookup(&r, name, node);

	if (ret)
		return ret;
	r.ino = node->ino;
	if (is_the_kernels(dir, node, fuse_req_ctx(req)->uid))
		ret = -ESTALE;
	if (!ret)
		ret = fs_access_ino(req, fs_ino(r.s->nr, r.ino), fi->flags);
	if (!ret)
		ret = open_shard(&r, fi, o);
	if (!ret) /* it may be shorter now */
		ret = fs_draft_ref_attr(&r, o->f, &node->st);
	if (ret && node->ino & FS_INO_SHARD)
		fs_draft_tree_forget(r.s->files, node->ino, 1);
	return ret;
}

static int create(fuse_req_t req, uint64_t parent, const char *name,
		  mode_t mode, const struct fuse_file_info *fi,
		  struct fs_open *o, struct fs_draft_ref *r,
		  struct fs_draft_tree_node *node)
{
	const struct fs_draft_tree_who by = fs_draft_who(req);
	int ret = fs_draft_ref_find(fs_of(req), parent, r);

	if (ret)
		return ret;
	/* names may come and go faster than that */
	for (int i = 0; i < CREATE_TRIES; i++) {
		r->ino = parent & FS_INO_MASK;
		ret = make(r, name, mode, fi->flags, &by, o, node);
		if (ret != -EEXIST || fi->flags & O_EXCL)
			return ret;
		r->ino = parent & FS_INO_MASK;
		ret = open_made(req, r, name, fi, o, node);
		if (ret != -ENOENT && ret != -ESTALE)
			return ret;
	}
	return -ESTALE;
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name,
		      mode_t mode, struct fuse_file_info *fi)
{
	struct fs_open *o = fs_open_new();
	struct fs_draft_tree_node node = { 0 };
	struct fuse_entry_param e;
	fs_auto_draft_ref r = { 0 };
	int ret =
		o ? create(req, parent, name, mode, fi, o, &r, &node) : -ENOMEM;

	if (ret) {
		if (o)
			end_open(&r, o);
		fuse_reply_err(req, -ret);
		return;
	}
	fs_draft_ref_entry(&r, node.ino, &node.st, &e);
	e.entry_timeout = fs_access_keep(fs_of(req), e.ino, e.entry_timeout);
	ret = keep_open(fs_of(req), &r, o, fi);
	if (ret) {
		fs_forget(fs_of(req), e.ino, 1);
		fuse_reply_err(req, -ret);
	} else if (fs_reply_create(req, &e, fi)) {
		end_open(&r, o);
		fs_forget(fs_of(req), e.ino, 1);
		fs_draft_unpin(r.drafts, r.s);
	}
}

/* ---- bytes ---- */

/*
 * Pages of a map are asked for without an owner, where other reads are not
 * cached: whoever may write stores into them before it was written at all.
 */
static bool for_a_map(const struct fs *fs, const struct fuse_file_info *fi)
{
	return fs->kernel.direct && !fi->lock_owner &&
	       (fi->flags & O_ACCMODE) == O_RDWR;
}

static int read_any(const struct fs_draft_ref *r, struct fs_open *o, void *buf,
		    size_t size, uint64_t off, bool mapped, size_t *got,
		    struct ck_err *err)
{
	if (o->f)
		return fs_draft_tree_read(o->f, buf, size, off, got, err);
	if (o->slice)
		return fs_slices_read(r, o, buf, size, off, mapped, got, err);
	*got = fs_open_text(o, buf, size, off);
	return 0;
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct ck_err err = { 0 };
	void *buf = fs_buf_get();
	fs_auto_draft_ref r = { 0 };
	size_t got = 0;
	int ret = fs_draft_ref_find(fs_of(req), ino, &r);

	if (!ret && (!buf || size > FS_MAX_IO || off < 0))
		ret = buf ? -EINVAL : -ENOMEM;
	if (!ret)
		ret = read_any(&r, fs_open_of(fi), buf, size, (uint64_t)off,
			       for_a_map(fs_of(req), fi), &got, &err);
	if (ret)
		fs_reply_end(req, ret, &err);
	else
		fuse_reply_buf(req, buf, got);
	fs_buf_put(buf);
}

static int write_any(const struct fs_draft_ref *r, struct fs_open *o,
		     const char *buf, size_t size, uint64_t off, bool cached,
		     struct ck_err *err)
{
	if (!o || (!o->f && !fs_slices_has(r->ino)))
		return -EBADF;
	if (o->f)
		return fs_draft_tree_write(r->s->files, o->f, buf, size, off,
					   cached, err);
	return fs_slices_write(r, o, buf, size, off, cached, err);
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf,
		     size_t size, off_t off, struct fuse_file_info *fi)
{
	struct ck_err err = { 0 };
	fs_auto_draft_ref r = { 0 };
	int ret = fs_draft_ref_find(fs_of(req), ino, &r);

	buf = fs_receive_payload(buf);
	if (!ret)
		ret = off < 0 ? -EINVAL :
				write_any(&r, fs_open_of(fi), buf, size,
					  (uint64_t)off, fi->writepage, &err);
	if (!ret && !fi->writepage && fs_open_of(fi)->f)
		fs_draft_tree_written_by(fs_open_of(fi)->f,
					 fuse_req_ctx(req)->uid);
	if (ret)
		fs_reply_end(req, ret, &err);
	else
		fuse_reply_write(req, size);
}

/* Writes were answered for by themselves; a layout is complete now. */
static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	bool layout = (ino & FS_INO_MASK) == FS_DRAFT_LAYOUT;
	struct ck_err err = { 0 };
	fs_auto_draft_ref r = { 0 };
	int ret = fs_draft_ref_find(fs_of(req), ino, &r);

	if (ret && !layout)
		ret = 0;
	else if (!ret && draft_tree_of(fi))
		ret = fs_draft_tree_flush(r.s->files, draft_tree_of(fi), &err);
	else if (!ret && layout)
		ret = fs_slices_flush(&r, fs_open_of(fi), &err);
	fs_reply_end(req, ret, &err);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
		     struct fuse_file_info *fi)
{
	struct ck_err err = { 0 };
	fs_auto_draft_ref r = { 0 };
	int ret = fs_draft_ref_find(fs_of(req), ino, &r);

	if (!ret && draft_tree_of(fi))
		ret = fs_draft_tree_sync(r.s->files, draft_tree_of(fi),
					 datasync, &err);
	else if (!ret && fs_open_of(fi)->slice)
		ret = ck_slice_sync(fs_draft_tree_slices(r.s->files),
				    fs_open_of(fi)->of, &err);
	fs_reply_end(req, ret, &err);
}

static void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync,
			struct fuse_file_info *fi)
{
	struct ck_err err = { 0 };
	fs_auto_draft_ref r = { 0 };
	int ret = fs_draft_ref_find(fs_of(req), ino, &r);

	(void)datasync;
	(void)fi;
	if (!ret && fs_draft_is_file(r.ino))
		ret = fs_draft_tree_sync_dir(r.s->files, r.ino, &err);
	fs_reply_end(req, ret, &err);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off,
			 off_t len, struct fuse_file_info *fi)
{
	fs_auto_draft_ref r = { 0 };
	int ret = fs_draft_ref_find(fs_of(req), ino, &r);

	if (!ret && fs_open_of(fi)->slice)
		ret = fs_slices_fallocate(&r, fs_open_of(fi), mode,
					  (uint64_t)off, (uint64_t)len);
	else if (!ret && !draft_tree_of(fi))
		ret = -EBADF;
	else if (!ret)
		ret = fs_draft_tree_fallocate(r.s->files, draft_tree_of(fi),
					      mode, (uint64_t)off,
					      (uint64_t)len);
	fuse_reply_err(req, -ret);
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
		     struct fuse_file_info *fi)
{
	off_t at = draft_tree_of(fi) ?
			   fs_draft_tree_seek(draft_tree_of(fi), off, whence) :
			   -EINVAL;

	(void)ino;
	if (at < 0)
		fuse_reply_err(req, (int)-at);
	else
		fuse_reply_lseek(req, at);
}

/* ---- attributes ---- */

static void op_getattr(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	fs_auto_draft_ref r = { 0 };
	struct stat st;
	int ret = fs_draft_ref_find(fs_of(req), ino, &r);

	if (!ret)
		ret = fs_draft_ref_attr(&r, draft_tree_of(fi), &st);
	if (ret)
		fuse_reply_err(req, -ret);
	else
		fuse_reply_attr(req, &st, fs_slices_keep(r.ino));
}

#define GIVEN (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)

static bool is_others(const struct stat *now, const struct stat *attr,
		      int to_set)
{
	return (to_set & FUSE_SET_ATTR_UID && attr->st_uid != now->st_uid) ||
	       (to_set & FUSE_SET_ATTR_GID && attr->st_gid != now->st_gid);
}

/*
 * Only root gives to others; the kernel has seen to it that the rest may.  What
 * is shown already is noted too: it may be so by another name's mode.
 */
static int give(const struct fs_draft_ref *r, const struct stat *now, uid_t by,
		const struct stat *attr, int to_set)
{
	bool others = is_others(now, attr, to_set);

	if (fs_slices_has(r->ino))
		return by && others   ? -EPERM :
		       to_set & GIVEN ? fs_slices_give(r, attr, to_set) :
					0;
	return others || (to_set & FUSE_SET_ATTR_MODE &&
			  (attr->st_mode ^ now->st_mode) & 07777) ?
		       -EPERM :
		       0;
}

static int set(const struct fs_draft_ref *r, const struct fs_draft_tree_who *by,
	       const struct fs_draft_tree_file *f, const struct stat *attr,
	       int to_set)
{
	struct stat now;
	int ret;

	if (fs_draft_is_file(r->ino))
		return fs_draft_tree_set(r->s->files, r->ino, f, attr, to_set,
					 by);
	ret = fs_draft_ref_attr(r, f, &now);
	if (!ret)
		ret = give(r, &now, by->uid, attr, to_set);
	if (ret || !(to_set & FUSE_SET_ATTR_SIZE))
		return ret;
	return fs_slices_has(r->ino) ?
		       fs_slices_resize(r, (uint64_t)attr->st_size) :
		       -EPERM;
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr,
		       int to_set, struct fuse_file_info *fi)
{
	const struct fs_draft_tree_who by = fs_draft_who(req);
	fs_auto_draft_ref r = { 0 };
	struct stat st;
	int ret = fs_draft_ref_find(fs_of(req), ino, &r);

	if (!ret)
		ret = set(&r, &by, draft_tree_of(fi), attr, to_set);
	if (!ret)
		ret = fs_draft_ref_attr(&r, draft_tree_of(fi), &st);
	if (ret)
		fuse_reply_err(req, -ret);
	else
		fuse_reply_attr(req, &st, fs_slices_keep(r.ino));
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
			size_t size)
{
	(void)ino;
	if (!strcmp(name, "user.unshard.state"))
		fs_reply_xattr(req, "staged", strlen("staged"), size);
	else
		fuse_reply_err(req, strncmp(name, "user.", 5) ? EOPNOTSUPP :
								ENODATA);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	(void)ino;
	fs_reply_xattr(req, "", 0, size);
}

void fs_draft_ops_files(struct fuse_lowlevel_ops *ops)
{
	ops->getxattr = op_getxattr;
	ops->listxattr = op_listxattr;
	ops->open = op_open;
	ops->release = op_release;
	ops->create = op_create;
	ops->read = op_read;
	ops->write = op_write;
	ops->flush = op_flush;
	ops->fsync = op_fsync;
	ops->fsyncdir = op_fsyncdir;
	ops->fallocate = op_fallocate;
	ops->lseek = op_lseek;
	ops->getattr = op_getattr;
	ops->setattr = op_setattr;
}
