/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inval.h - what the kernel keeps of other files that show written bytes
 *
 * The same bytes are shown by several files: tensors/NAME, npy/NAME.npy,
 * model.safetensors.  When one is written, the kernel is told to forget the
 * pages that it has of the others, and of the same file where the write did not
 * go through them; the writer is answered when that is done, so that whoever is
 * told of the write sees it everywhere.
 *
 * Of the files that show the same bytes one at a time is open for reading and
 * writing, and so can be mapped for writing.  Its pages may have old bytes beside
 * those that were stored, until they are forgotten: so long a write past the page
 * cache is "newer" (ck_wplan_newer()), and pages that come leave its bytes alone.
 *
 * Where the kernel has never read a page, nothing is mapped, and nothing is
 * forgotten.
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

struct fs_inval; /* of a mount */
struct fs_shown; /* a view's file that is open, however often */

struct fs_inval *fs_inval_new(struct fuse_session *se); /* NULL: no memory */
/* After the last request. */
void fs_inval_free(struct fs_inval *iv);

/*
 * File @nr of @v is opened as @ino; @mappable: not only for writing; @edit: for
 * writing.  -EBUSY with a line where another file has the same bytes that may be
 * mapped for writing too; files that were closed are waited for, 5 s at
 * most.
 */
int fs_inval_open(struct fs_inval *iv, struct fs_shown **out, uint64_t ino,
		  const struct ck_view *v, uint32_t nr, bool mappable,
		  bool edit, struct ck_err *err);
/* It was closed once, and perhaps for good; *flushed: false before the first. */
void fs_inval_flushed(struct fs_inval *iv, struct fs_shown *s, bool mappable,
		      bool *flushed);
void fs_inval_close(struct fs_inval *iv, struct fs_shown *s, bool mappable,
		    bool edit, bool flushed);

/* A request of the page cache for @s came, and is about to be done. */
void fs_inval_paged(struct fs_shown *s);

struct fs_written {
	struct fs_shown *file;
	uint64_t len;
	bool direct; /* past the page cache */
	bool writeback; /* of a mapped page: nobody waits for it */
};
/*
 * Answers @req, which wrote @plan in full, and takes that; @req may be NULL, where
 * one that follows waits (fs_inval_reply_after()).
 */
void fs_inval_reply(struct fs_inval *iv, fuse_req_t req,
		    const struct fs_written *w, struct ck_wplan *plan);
/* Some of @plan may have been written; nobody waits. */
void fs_inval_tell(struct fs_inval *iv, const struct fs_written *w,
		   const struct ck_wplan *plan);
/* Answers @req with @code once all that was written before is forgotten. */
void fs_inval_reply_after(struct fs_inval *iv, fuse_req_t req, int code);
/*
 * True: @then will be called with @ctx, by the one thread, when what the kernel
 * has of @file is none of what was to be forgotten by now.  False: it is so.
 */
bool fs_inval_after(struct fs_inval *iv, const struct fs_shown *file,
		    void (*then)(void *ctx), void *ctx);
/*
 * A file of @ck was touched (core/geom/file_id.h): all pages of all files of it are
 * forgotten, some time soon.
 */
void fs_inval_touched(struct fs_inval *iv, const struct ck_ckpt *ck);
/* Has all pages of @file forgotten, some time soon. */
void fs_inval_all(struct fs_inval *iv, struct fs_shown *file);

#endif
