/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_read.c - open, read, release, lseek, ioctl
 *
 * Threads: up to -o threads= of libfuse's workers, each with a device
 * descriptor of its own where one can be cloned.  A worker takes one request,
 * reads its bytes into a buffer (buf.h) and answers with one writev; no lock
 * is held on the way, for the catalog does not change and shards are read at
 * explicit offsets.  A page fault of one client never
 * waits for another: the workers do not touch the mount themselves.
 *
 * A read inside of a file is answered in full or with an errno.  Where bytes of a
 * view are lost, a program's read past the page cache gets those before them, as
 * from a disk with bad blocks.  The page cache gets the errno: it would fill up
 * a short answer with zeros, and asks again page by page.
 */
#include "fs/ops.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/helpers.h"
#include "core/base/whole.h"
#include "fs/kernel/buf.h"
#include "fs/kernel/reply.h"
#include "fs/tree/behind.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static struct fs_shard_file *shard_of(const struct fuse_file_info *fi)
{
	return (struct fs_shard_file *)(uintptr_t)fi->fh;
}

static struct fs_stream *stream_of(const struct fuse_file_info *fi)
{
	return fs_file_of(fi)->stream;
}

static struct fs_virt_file *virt_of(const struct fuse_file_info *fi)
{
	return (struct fs_virt_file *)(uintptr_t)fi->fh;
}

/* *passed: as of open_node().  -ESTALE: see passed.h. */
static int pass_shard(struct fs *fs, uint64_t ino, struct fs_shard_file *f,
		      int *passed)
{
	if (!fs->passed || !fs->pass_stored)
		return 0;
	f->id = fs_passed_open(fs->passed, ino, f->fd, false);
	*passed = f->id > 0 ? f->id : 0;
	return f->id < 0 ? f->id : 0;
}

static void close_shard(struct fs *fs, uint64_t ino, struct fs_shard_file *f)
{
	if (fs->passed)
		fs_passed_close(fs->passed, ino, f->id);
	close(f->fd);
	free(f);
}

static int open_shard(fuse_req_t req, uint64_t ino, const struct fs_ref *r,
		      struct fuse_file_info *fi, int *passed,
		      struct ck_err *err)
{
	struct fs_shard_file *f = malloc(sizeof(*f));
	struct stat st;
	int ret;

	if (!f)
		return ck_no_memory(err);
	ret = fs_shards_open(r->mounted->shards, r->ino, &f->fd, &st, err);
	if (ret) {
		free(f);
		return ret;
	}
	f->id = FS_NOT_PASSED;
	ret = fs_access_open(req, r, f->fd);
	if (!ret)
		ret = pass_shard(fs_of(req), ino, f, passed);
	if (ret) {
		f->id = FS_NOT_PASSED;
		close_shard(fs_of(req), ino, f);
		return ret;
	}
	f->size = (uint64_t)st.st_size;
	fi->fh = (uintptr_t)f;
	fi->direct_io = fs_of(req)->kernel.direct;
	return 0;
}

static int open_virt(fuse_req_t req, const struct fs_mounted *mounted,
		     unsigned id, struct fuse_file_info *fi, struct ck_err *err)
{
	const struct fs_virt_reader by = { fs_access_entry, req };
	struct fs_virt_file *f = NULL;
	int ret = fs_virt_open(mounted->virt, id,
			       fs_of(req)->asker ? &by : NULL, &f, err);

	fi->fh = (uintptr_t)f;
	fi->direct_io = !fs_virt_fixed(id);
	fi->keep_cache = fs_virt_fixed(id);
	return ret;
}

static bool writes(const struct fuse_file_info *fi)
{
	return (fi->flags & O_ACCMODE) != O_RDONLY;
}

/* A mapped file may have been written after its last descriptor was closed. */
static void end_edit(struct ck_edit *edit)
{
	struct ck_err err = { 0 };

	if (edit && ck_ckpt_flush_checksums(NULL, edit, &err))
		fs_log("%s", err.msg);
	ck_ckpt_edit_end(edit);
}

static void end_replace(struct fs *fs, struct fs_file *f)
{
	struct ck_replace *r = atomic_load(&f->replace);

	/* What was refused may be in the page cache. */
	if (r && f->shown && !f->direct)
		fs_inval_all(fs->inval, f->shown);
	ck_replace_free(r);
}

static void close_file(struct fs *fs, struct fs_file *f)
{
	fs_file_is_written(f);
	fs_stream_close(f->stream);
	fs_copy_close(fs->copies, &f->kept);
	end_replace(fs, f);
	end_edit(f->edit);
	if (f->shown)
		fs_inval_close(fs->inval, f->shown, f->mappable, f->edit,
			       f->flushed);
	free(f);
}

/*
 * *paged: by the page cache, and what is missing comes from the copy.  So also while
 * others have it mapped: each map of a direct file would drop the pages that these
 * have.
 */
static int open_copy(struct fs *fs, uint64_t ino, const struct fs_ref *r,
		     struct fs_file *f, bool *paged, struct ck_err *err)
{
	ck_auto_free unsigned char *srcs = NULL;
	struct fs_copy_of of = {
		.serial = r->mounted->serial,
		.ino = r->ino,
		.kernel = ino,
		.v = r->node.view,
		.nr = r->node.nr,
	};
	int ret = fs_behind_srcs(r->mounted, r->ino, &r->node, &of.ck, &srcs,
				 err);

	of.srcs = srcs;
	if (!ret)
		of.settled = ck_ckpt_settled(of.ck, fs_settle);
	of.was_settled =
		of.settled && fs_mounted_was_settled(r->mounted, of.ck);
	if (!ret)
		ret = fs_copies_open(fs->copies, &of, &f->kept);
	*paged = f->kept.how >= FS_COPY_PAGES;
	if (ret == -ESTALE)
		fs_mounted_outdate(fs->table, r->mounted);
	return ret;
}

/*
 * Where bytes change, what the kernel keeps of a file that is not open may be
 * old; and a file opened for writing alone cannot be mapped, so that it need
 * not go through the page cache.
 */
static int open_file(fuse_req_t req, uint64_t ino, const struct fs_ref *r,
		     struct fuse_file_info *fi, int *passed, struct ck_err *err)
{
	struct fs *fs = fs_of(req);
	struct fs_file *f;
	bool paged = false;
	int ret = writes(fi) ?
			  ck_view_may_write(r->node.view, r->node.nr, err) :
			  0;

	if (ret)
		return ret;
	f = calloc(1, sizeof(*f));
	if (!f)
		return ck_no_memory(err);
	f->kept = (struct fs_copy_open)FS_COPY_OPEN_NONE;
	f->mappable = (fi->flags & O_ACCMODE) != O_WRONLY;
	f->direct = fs->kernel.direct || !f->mappable;
	if (writes(fi))
		f->edit = ck_ckpt_edit(r->mounted->ck);
	if (writes(fi) && !f->edit)
		ret = ck_no_memory(err);
	if (!ret)
		ret = fs_inval_open(fs->inval, &f->shown, ino, r->node.view,
				    r->node.nr, f->mappable, f->edit, err);
	if (!ret && !writes(fi) && fs->copies)
		ret = open_copy(fs, ino, r, f, &paged, err);
	if (ret) {
		close_file(fs, f);
		return ret;
	}
	fi->fh = (uintptr_t)f;
	*passed = f->kept.how == FS_COPY_PASSED ? f->kept.id : 0;
	f->direct = f->direct && !paged;
	fi->direct_io = f->direct;
	fi->keep_cache =
		fs->copies ?
			f->kept.keep :
			!f->direct && !fs->rw &&
				ck_view_untouched(r->node.view, r->node.nr) &&
				fs_mounted_was_settled(r->mounted,
						       r->mounted->ck);
	if (fi->keep_cache) /* there may be some */
		fs_inval_paged(f->shown);
	if (fs->replace && writes(fi))
		fs_file_is_fresh(f, ino, fuse_req_ctx(req)->pid);
	if (f->direct) /* else the kernel reads ahead */
		f->stream = fs_stream_open(fs->ahead, r->node.view, r->node.nr,
					   f->kept.copy);
	return 0;
}

static int open_ref(fuse_req_t req, uint64_t ino, const struct fs_ref *r,
		    struct fuse_file_info *fi, int *passed, struct ck_err *err)
{
	switch (r->node.kind) {
	case FS_FILE:
		return open_file(req, ino, r, fi, passed, err);
	case FS_VIRT:
		return open_virt(req, r->mounted, r->node.nr, fi, err);
	case FS_SHARD:
		return open_shard(req, ino, r, fi, passed, err);
	default:
		return ck_fail(err, ESTALE, "unknown inode");
	}
}

/*
 * An open file keeps its checkpoint, whatever happens to the entry.  *passed: the
 * number of the file that the kernel reads by itself; 0: none.
 */
static int open_node(fuse_req_t req, uint64_t ino, struct fuse_file_info *fi,
		     int *passed, struct ck_err *err)
{
	struct fs *fs = fs_of(req);
	fs_auto_ref r = { 0 };
	int ret;

	fi->fh = 0;
	if (writes(fi) && !fs->rw)
		return -EROFS;
	ret = fs_find(fs, ino, false, &r, err);
	if (!ret && writes(fi) && r.node.kind != FS_FILE)
		return -EPERM;
	if (!ret)
		ret = open_ref(req, ino, &r, fi, passed, err);
	if (!ret)
		fs_mounted_pin(fs->table, r.mounted);
	return ret;
}

static void release_node(struct fs *fs, uint64_t ino,
			 const struct fuse_file_info *fi)
{
	fs_auto_ref r = { 0 };

	if (fs_find(fs, ino, false, &r, NULL))
		return;
	if (r.node.kind == FS_FILE) {
		close_file(fs, fs_file_of(fi));
	} else if (r.node.kind == FS_VIRT) {
		fs_virt_close(virt_of(fi));
	} else if (r.node.kind == FS_SHARD) {
		close_shard(fs, ino, shard_of(fi));
	}
	fs_mounted_unpin(fs->table, r.mounted); /* the pin of the open file */
}

static void reply_open(fuse_req_t req, uint64_t ino,
		       const struct fuse_file_info *fi, int passed)
{
	int ret = passed ? fs_reply_open_passed(req, fi, passed) :
			   fs_reply_open(req, fi, writes(fi) && fi->direct_io);

	if (ret)
		release_node(fs_of(req), ino, fi);
}

/* An answer to an open that waits. */
struct later {
	fuse_req_t req;
	uint64_t ino;
	struct fuse_file_info fi;
};

static void open_later(void *ctx)
{
	struct later *l = ctx;

	reply_open(l->req, l->ino, &l->fi, 0);
	free(l);
}

/*
 * Pages that the kernel has from an open for reading, and that are about to be
 * forgotten, are not to be written to.  Without memory for it they may be.
 */
static bool waits(fuse_req_t req, uint64_t ino, const struct fuse_file_info *fi)
{
	const struct fs_file *f;
	struct later *l;

	if (!writes(fi))
		return false;
	f = fs_file_of(fi);
	l = f->mappable ? malloc(sizeof(*l)) : NULL;
	if (!l)
		return false;
	*l = (struct later){ req, ino, *fi };
	if (fs_inval_after(fs_of(req)->inval, f->shown, open_later, l))
		return true;
	free(l);
	return false;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ck_err err = { 0 };
	int passed = 0;
	int ret = open_node(req, ino, fi, &passed, &err);

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 11)
	fi->noflush = !writes(fi);
#endif
	if (ret)
		fs_reply_found(req, ret, &err);
	else if (!waits(req, ino, fi))
		reply_open(req, ino, fi, passed);
}

static void op_release(fuse_req_t req, fuse_ino_t ino,
		       struct fuse_file_info *fi)
{
	release_node(fs_of(req), ino, fi);
	fuse_reply_err(req, 0);
}

/* Bytes of a tensor that a read of [off, off+len) gets. */
static size_t inside(uint64_t size, size_t len, uint64_t off)
{
	return off >= size ? 0 : (size_t)CK_MIN(len, size - off);
}

/*
 * As far as the file goes, for it may have grown; but where bytes are gone
 * that it had when it was opened, the answer is not a short one.
 */
static int read_shard(const struct fs_shard_file *f, char *buf, size_t len,
		      uint64_t off, size_t *got, struct ck_err *err)
{
	ssize_t n = ck_pread_most(f->fd, buf, len, off);

	if (n < 0)
		return ck_fail(err, (int)-n, "shards: %s", strerror((int)-n));
	*got = (size_t)n;
	if (*got < inside(f->size, len, off))
		return ck_fail(err, EIO,
			       "shards: a file of %llu bytes ends at %llu",
			       (unsigned long long)f->size,
			       (unsigned long long)(off + *got));
	return 0;
}

/*
 * The bytes of a view's file: fetched ahead, or now into *buf.  What comes
 * after them is asked for before they are answered.
 */
static int read_file(const struct fs_ref *r, const struct fuse_file_info *fi,
		     void **buf, const void **at, size_t len, uint64_t off,
		     size_t *got, struct ck_err *err)
{
	struct fs_copy *copy = fs_file_of(fi)->kept.copy;
	struct fs_stream *stream = stream_of(fi);
	const struct ck_view *v = r->node.view;
	struct ck_vfile file;
	void *ready;
	int ret = 0;

	if (!v->ops->file(v, r->node.nr, &file))
		return ck_fail(err, ESTALE, "a file that its view left out");
	*got = inside(file.size, len, off);
	if (!*got)
		return 0;
	ready = fs_stream_take(stream, off, *got);
	if (ready) {
		fs_buf_put(*buf);
		*buf = ready;
	} else {
		*at = fs_copy_at(copy, v, *got, off);
	}
	if (!ready && !*at)
		ret = fs_copy_read(copy, v, r->node.nr, *buf, *got, off, err);
	if (ret == -EIO && fs_is_past_cache(fi)) {
		size_t good = ck_view_read_good(v, r->node.nr, *buf, *got, off);

		*got = good ? good : *got;
		return good ? 0 : ret;
	}
	if (!ret)
		fs_stream_next(stream, off, *got, file.size);
	return ret;
}

/* The page cache asks for it: of a direct file, for a map. */
static void from_cache(struct fs *fs, const struct fs_file *f)
{
	fs_inval_paged(f->shown);
	if (f->kept.copy)
		fs_copy_mapped(f->kept.copy);
	if (f->direct)
		fs_read_ahead_mapped(&fs->kernel.read_ahead);
}

static int read_node(struct fs *fs, uint64_t ino,
		     const struct fuse_file_info *fi, void **buf,
		     const void **at, size_t len, uint64_t off, size_t *got,
		     struct ck_err *err)
{
	fs_auto_ref r = { 0 };
	int ret = fs_find(fs, ino, false, &r, err);

	if (ret)
		return ret;
	switch (r.node.kind) {
	case FS_FILE:
		if (!fs_is_past_cache(fi))
			from_cache(fs, fs_file_of(fi));
		ret = read_file(&r, fi, buf, at, len, off, got, err);
		/* written in place: its folder does not show that */
		if (ret == -ESTALE)
			fs_mounted_outdate(fs->table, r.mounted);
		else if (ret == -EIO)
			fs_mounted_doubt(r.mounted);
		/* files that went with their step are no damage */
		return ret == -EIO && fs_mounted_is_past(fs->table, r.mounted) ?
			       ck_fail(err, ESTALE, "%s: gone, or replaced",
				       r.mounted->name) :
			       ret;
	case FS_VIRT:
		return fs_virt_read(virt_of(fi), *buf, len, off, got, err);
	case FS_SHARD:
		return read_shard(shard_of(fi), *buf, len, off, got, err);
	default:
		return ck_fail(err, ESTALE, "unknown inode");
	}
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct ck_err err = { 0 };
	void *buf = fs_buf_get();
	const void *at = NULL;
	size_t got = 0;
	int ret;

	if (!buf || size > FS_MAX_IO || off < 0) {
		fuse_reply_err(req, buf ? EINVAL : ENOMEM);
		fs_buf_put(buf);
		return;
	}
	ck_stop_by(fs_req_stopped, req);
	ret = read_node(fs_of(req), ino, fi, &buf, &at, size, (uint64_t)off,
			&got, &err);
	ck_stop_by(NULL, NULL);
	if (ret == -EINTR)
		fuse_reply_err(req, EINTR);
	else if (ret)
		fs_reply_fail(req, ret, &err);
	else
		fuse_reply_buf(req, at ? at : buf, got);
	fs_buf_put(buf);
}

static off_t seek(struct fs *fs, uint64_t ino, off_t off, int whence,
		  const struct fuse_file_info *fi)
{
	struct ck_err err = { 0 };
	fs_auto_ref r = { 0 };
	struct stat st;
	double keep;
	int ret;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	ret = fs_find(fs, ino, false, &r, &err);
	if (ret)
		return ret;
	if (r.node.kind == FS_SHARD) {
		off_t at = lseek(shard_of(fi)->fd, off, whence);

		return at < 0 ? -errno : at;
	}
	ret = fs_attr(fs, ino, &st, &keep, &err);
	if (ret)
		return ret;
	if (off < 0 || off >= st.st_size)
		return -ENXIO;
	return whence == SEEK_DATA ? off : st.st_size;
}

/* Sparse shards are shown as such; a tensor has no holes to find. */
static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence,
		     struct fuse_file_info *fi)
{
	off_t at = seek(fs_of(req), ino, off, whence, fi);

	if (at < 0)
		fuse_reply_err(req, (int)-at);
	else
		fuse_reply_lseek(req, at);
}

/*
 * A descriptor of the shard itself, for who has it open here: another than ours,
 * whose flags are his to change, and of that file, not of one put in its place.
 */
static int hand_over(struct fs *fs, fuse_ino_t ino,
		     const struct fuse_file_info *fi, struct ck_map_token *out)
{
	struct ck_err err = { 0 };
	fs_auto_ref r = { 0 };
	struct stat open, now;
	int fd, ret;

	if (!fs->handover)
		return -ENOTTY;
	ret = fs_find(fs, ino, false, &r, &err);
	if (!ret && r.node.kind != FS_SHARD)
		ret = -ENOTTY;
	if (!ret)
		ret = fs_shards_open(r.mounted->shards, r.ino, &fd, &now, &err);
	if (ret)
		return ret;
	if (!fstat(shard_of(fi)->fd, &open) && open.st_dev == now.st_dev &&
	    open.st_ino == now.st_ino)
		return fs_handover_add(fs->handover, fd, out);
	close(fd);
	return -ESTALE;
}

static void op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned cmd, void *arg,
		     struct fuse_file_info *fi, unsigned flags, const void *in,
		     size_t in_len, size_t out_len)
{
	struct ck_map_token token;
	int ret = -ENOTTY;

	(void)arg;
	(void)in;
	(void)in_len;
	if (cmd == CK_MAP_ASK_TOKEN && out_len == sizeof(token) &&
	    !(flags & FUSE_IOCTL_DIR))
		ret = hand_over(fs_of(req), ino, fi, &token);
	if (ret)
		fuse_reply_err(req, -ret);
	else
		fuse_reply_ioctl(req, 0, &token, sizeof(token));
}

void fs_ops_read(struct fuse_lowlevel_ops *ops)
{
	ops->ioctl = op_ioctl;
	ops->open = op_open;
	ops->release = op_release;
	ops->read = op_read;
	ops->lseek = op_lseek;
}
