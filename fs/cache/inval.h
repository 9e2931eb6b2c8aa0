/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inval.h - what the kernel keeps of other files that show written bytes
 *
 * The same bytes are shown by several files: tensors/NAME, npy/NAME.npy,
 * model.safetensors.  When one is written, the kernel is told to forget the
 * pages that it has of the others, and of the same file where it may be
 * mapped; the writer is answered when that is done, so that whoever is told
 * of the write sees it everywhere.  Pages of others that were written through
 * a map are older than a write that comes now: they are sent for before it, or
 * they would be put over it when they are forgotten.
 *
 * What is to be forgotten may be written by a map at any time until then, and
 * such a page has old bytes beside those that were stored.  So a write that
 * pages do not show yet keeps what it replaced (core/write/stale_log.h) as long
 * as a range of it is in the queue.  A writer past the page cache, whom its own
 * file's pages do not follow, is answered after that: what a map stores
 * afterwards is newer, whatever it is.
 *
 * Where the kernel has never read a page, nothing is mapped, and nothing of
 * all this is done.
 *
 * The kernel waits for pages that are locked: while one is being read, which a
 * worker ends, or written through the page cache, until the writer is
 * answered.  So one thread of its own forgets, in order, and a writer to a file
 * that is still to be forgotten is answered at once.
 *
 * Threads: any.
 */
#ifndef FS_INVAL_H
#define FS_INVAL_H

#include "core/view/view.h"
#include "fs/kernel/kernel.h"

struct fs_inval; /* of a mount for writing */
struct fs_shown; /* a view's file that is open, however often */

struct fs_inval *fs_inval_new(struct fuse_session *se); /* NULL: no memory */
/* After the last request. */
void fs_inval_free(struct fs_inval *iv);

/*
 * File @nr of @v is opened as @ino; @mappable: not only for writing.  NULL: no
 * memory.  @dirties: and for writing too, so that a map of it can.
 */
struct fs_shown *fs_inval_open(struct fs_inval *iv, uint64_t ino,
			       const struct ck_view *v, uint32_t nr,
			       bool mappable, bool dirties);
void fs_inval_close(struct fs_inval *iv, struct fs_shown *s, bool mappable,
		    bool dirties);

/* A request of the page cache for @s came, and is about to be done. */
void fs_inval_paged(struct fs_inval *iv, struct fs_shown *s);

struct fs_written {
	struct fs_shown *file;
	uint64_t off, len;
	bool direct; /* past the page cache */
	bool writeback; /* of a mapped page: nobody waits for it */
	struct ck_pre_image *pre_image; /* from fs_inval_begin(); or NULL */
};
/* Whether fs_inval_before() may be true; cheap. */
bool fs_inval_may_wait(struct fs_inval *iv, const struct fs_written *w);
/*
 * True: @then will be called with @ctx, by the one thread, when the pages of
 * other files that maps may have written have come in.  False: there are none,
 * or @w must not wait.
 */
bool fs_inval_before(struct fs_inval *iv, const struct fs_written *w,
		     void (*then)(void *ctx), void *ctx);
/*
 * Around a write, by one thread: no file is opened meanwhile that a map of
 * could write to.  True: one that is open shows the bytes, so that
 * @w->pre_image is wanted.
 */
bool fs_inval_begin(struct fs_inval *iv, const struct fs_written *w);
void fs_inval_end(struct fs_inval *iv);
/* Answers @req, which wrote @w->len bytes in full, and takes @w->pre_image. */
void fs_inval_reply(struct fs_inval *iv, fuse_req_t req,
		    const struct fs_written *w);
/* Answers @req with @code once all that was written before is forgotten. */
void fs_inval_reply_after(struct fs_inval *iv, fuse_req_t req, int code);
/*
 * True: @then will be called with @ctx, by the one thread, when what the kernel
 * has of @file is none of what was to be forgotten by now.  False: it is so.
 */
bool fs_inval_after(struct fs_inval *iv, const struct fs_shown *file,
		    void (*then)(void *ctx), void *ctx);
/* Has all pages of @file forgotten, some time soon. */
void fs_inval_all(struct fs_inval *iv, struct fs_shown *file);

#endif
