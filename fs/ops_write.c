/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops_write.c - write, fsync, flush, setattr on a mount for writing
 *
 * A tensor's file has one size for ever.  A request that goes past it is
 * refused as a whole; larger ones the kernel has cut into requests of
 * FS_MAX_IO before.  Threads: as ops_read.c; the kernel sends the writes of
 * several writers of one direct file at the same time.
 */
#include "fs/ops.h"

#include "fs/kernel/receive.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The view's file @ino, opened for writing as @fi. */
static int find_file(struct fs *fs, uint64_t ino,
		     const struct fuse_file_info *fi, struct fs_ref *r,
		     struct ck_err *err)
{
	int ret = fs_find(fs, ino, false, r, err);

	if (ret)
		return ret;
	return r->node.kind == FS_FILE && fs_file_of(fi)->edit ? 0 : -EBADF;
}

/*
 * An open file is written to past the page cache always, or now and then: by
 * O_DIRECT, unless pages were busy.  Only the cache's own requests are nobody's.
 */
static struct fs_written what(const struct fuse_file_info *fi, size_t size)
{
	const struct fs_file *f = fs_file_of(fi);

	return (struct fs_written){
		.file = f->shown,
		.len = size,
		.direct = f->direct || fs_is_past_cache(fi),
		.writeback = fi->writepage,
	};
}

/* Answered once no page is kept that is older than what was written. */
static void settle(fuse_req_t req, int ret, const struct ck_err *err)
{
	if (ret || !fs_of(req)->inval)
		fs_reply_end(req, ret, err);
	else
		fs_inval_reply_after(fs_of(req)->inval, req, 0);
}

static int run(const struct fs_ref *r, struct ck_wplan *p,
	       const struct fs_written *w, struct ck_edit *e, off_t off,
	       struct ck_err *err)
{
	int ret = ck_view_plan(r->node.view, r->node.nr, p, w->len,
			       (uint64_t)off, err);

	if (ret)
		return ret;
	if (w->direct && !w->writeback)
		ck_wplan_newer(p);
	ret = ck_wplan_run(p, e, err);
	return ret ? ret : ck_ckpt_keep(p->ck, err);
}

/* Into the shards; the caller answers where it fails. */
static int put(fuse_req_t req, const struct fs_ref *r, const char *buf,
	       size_t size, off_t off, const struct fuse_file_info *fi,
	       struct ck_err *err)
{
	const struct fs_written w = what(fi, size);
	struct fs_inval *iv = fs_of(req)->inval;
	struct ck_wplan *p = calloc(1, sizeof(*p));
	int ret;

	if (!p)
		return ck_no_memory(err);
	if (!fs_is_past_cache(fi))
		fs_inval_paged(w.file);
	p->buf = (const unsigned char *)buf;
	p->page = w.writeback;
	ret = run(r, p, &w, fs_file_of(fi)->edit, off, err);
	if (!ret) {
		fs_inval_reply(iv, req, &w, p);
		return 0;
	}
	if (ck_wplan_wrote(ret))
		fs_inval_tell(iv, &w, p);
	ck_wplan_free(p);
	return ret;
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf,
		     size_t size, off_t off, struct fuse_file_info *fi)
{
	struct ck_err err = { 0 };
	fs_auto_ref r = { 0 };
	int ret = find_file(fs_of(req), ino, fi, &r, &err);
	struct ck_replace *rep = NULL;

	buf = fs_receive_payload(buf);
	if (!ret && fs_of(req)->replace)
		fs_file_is_written(fs_file_of(fi));
	if (!ret)
		rep = atomic_load(&fs_file_of(fi)->replace);
	if (rep)
		ret = ck_replace_write(rep, buf, size, (uint64_t)off, &err);
	else if (!ret)
		ret = put(req, &r, buf, size, off, fi, &err);
	if (ret == -EFBIG)
		fuse_reply_err(req, EFBIG);
	else if (ret)
		fs_reply_end(req, ret, &err);
	else if (rep)
		fuse_reply_write(req, size);
}

/*
 * A replacement that is whole goes to the shards, and one that is not is told
 * of; dd and shells close a copy of the descriptor before they write anything.
 */
static int close_replace(struct fs *fs, struct fs_file *f, struct ck_err *err)
{
	struct ck_replace *rep = atomic_load(&f->replace);
	struct fs_written w = { .file = f->shown, .direct = true };
	struct ck_wplan *p = NULL;
	int ret = rep ? ck_replace_close(rep, &p, err) : 0;

	if (p)
		fs_inval_reply(fs->inval, NULL, &w, p);
	return ret;
}

/*
 * A close, or an fsync: of a file that is open for writing.  What else is open is
 * closed, too, where the kernel does not know that nobody wants to hear of it.
 */
static void finish(fuse_req_t req, uint64_t ino,
		   const struct fuse_file_info *fi, bool close)
{
	struct fs *fs = fs_of(req);
	struct ck_err err = { 0 };
	fs_auto_ref r = { 0 };
	int ret = fs_find(fs, ino, false, &r, &err);
	struct fs_file *f =
		!ret && r.node.kind == FS_FILE ? fs_file_of(fi) : NULL;

	if (f && f->edit) {
		if (close && f->shown)
			fs_inval_flushed(fs->inval, f->shown, f->mappable,
					 &f->flushed);
		ret = close_replace(fs, f, &err);
		if (!ret && close)
			ret = ck_ckpt_flush_checksums(r.mounted->ck, f->edit,
						      &err);
		else if (!ret)
			ret = ck_ckpt_sync(r.mounted->ck, f->edit, &err);
	}
	settle(req, ret, &err);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	finish(req, ino, fi, true);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
		     struct fuse_file_info *fi)
{
	(void)datasync;
	finish(req, ino, fi, false);
}

/* ---- a file that is written anew ---- */

/*
 * The kernel makes two requests of an open with O_TRUNC: the open, which it takes
 * the flag from, and then a truncation to 0, which says no file.  Both come from
 * one thread, so that the newest file that it opened tells which.
 */
static pthread_mutex_t fresh_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fs_file *newest;

void fs_file_is_fresh(struct fs_file *f, uint64_t ino, pid_t thread)
{
	f->ino = ino;
	f->thread = thread;
	pthread_mutex_lock(&fresh_lock);
	f->fresh_at = &newest;
	f->older = newest;
	if (f->older)
		f->older->fresh_at = &f->older;
	newest = f;
	pthread_mutex_unlock(&fresh_lock);
}

void fs_file_is_written(struct fs_file *f)
{
	pthread_mutex_lock(&fresh_lock);
	if (f->fresh_at) {
		*f->fresh_at = f->older;
		if (f->older)
			f->older->fresh_at = f->fresh_at;
		f->fresh_at = NULL;
	}
	pthread_mutex_unlock(&fresh_lock);
}

static int begin_replace(const struct fs_ref *r, struct fs_file *f,
			 struct ck_err *err)
{
	struct ck_replace *rep, *none = NULL;
	int ret;

	if (!f || !f->edit)
		return -EPERM;
	if (atomic_load(&f->replace))
		return 0;
	ret = ck_replace_new(&rep, r->node.view, r->node.nr, f->edit, err);
	if (!ret && !atomic_compare_exchange_strong(&f->replace, &none, rep))
		ck_replace_free(rep);
	return ret;
}

/* Of the file that @thread opened last as @ino, which is not closed meanwhile. */
static int replace_newest(const struct fs_ref *r, uint64_t ino, pid_t thread,
			  struct ck_err *err)
{
	struct fs_file *f;
	int ret;

	pthread_mutex_lock(&fresh_lock);
	for (f = newest; f && (f->ino != ino || f->thread != thread);)
		f = f->older;
	ret = begin_replace(r, f, err);
	pthread_mutex_unlock(&fresh_lock);
	return ret;
}

/*
 * Times are what the shards have: setting them is let pass, for touch and cp -p
 * ask for it, and does nothing.
 */
static int set(fuse_req_t req, const struct fs_ref *r, const struct stat *now,
	       const struct stat *attr, int to_set,
	       const struct fuse_file_info *fi, struct ck_err *err)
{
	if (to_set &
	    (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		return -EPERM;
	if (!(to_set & FUSE_SET_ATTR_SIZE))
		return 0;
	if (r->node.kind != FS_FILE)
		return -EPERM;
	if (attr->st_size == now->st_size)
		return 0;
	if (attr->st_size || !fs_of(req)->replace)
		return -EPERM;
	return fi ? begin_replace(r, fs_file_of(fi), err) :
		    replace_newest(r, now->st_ino, fuse_req_ctx(req)->pid, err);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr,
		       int to_set, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct ck_err err = { 0 };
	struct stat st;
	fs_auto_ref r = { 0 };
	double keep;
	int ret = fs_find(fs, ino, true, &r, &err);

	if (!ret)
		ret = fs_attr(fs, ino, &st, &keep, &err);
	if (!ret)
		ret = set(req, &r, &st, attr, to_set, fi, &err);
	if (ret)
		fs_reply_end(req, ret, &err);
	else
		fuse_reply_attr(req, &st, keep);
}

void fs_ops_write(struct fuse_lowlevel_ops *ops)
{
	ops->write = op_write;
	ops->flush = op_flush;
	ops->fsync = op_fsync;
	ops->setattr = op_setattr;
}
