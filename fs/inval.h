/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inval.h - what the kernel keeps of other files that show written bytes
 *
 * The same bytes are shown by several files: tensors/NAME, npy/NAME.npy,
 * model.safetensors.  When one is written, the kernel is told to forget the
 * pages that it has of the others, and of the same file where it may be
 * mapped; the writer is answered when that is done, so that whoever is told
 * of the write sees it everywhere.
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
#include "fs/kernel.h"

struct fs_inval; /* of a mount for writing */
struct fs_shown; /* a view's file that is open, however often */

struct fs_inval *fs_inval_new(struct fuse_session *se); /* NULL: no memory */
/* After the last request. */
void fs_inval_free(struct fs_inval *iv);

/*
 * File @nr of @v is opened as @ino; @mappable: not only for writing.  NULL: no
 * memory.
 */
struct fs_shown *fs_inval_open(struct fs_inval *iv, uint64_t ino,
			       const struct ck_view *v, uint32_t nr,
			       bool mappable);
void fs_inval_close(struct fs_inval *iv, struct fs_shown *s, bool mappable);

struct fs_written {
	struct fs_shown *file;
	uint64_t off, len;
	bool direct; /* past the page cache */
	bool mappable; /* by whom it was written, as fs_inval_open() */
	bool writeback; /* of a mapped page: nobody waits for it */
};
/* Answers @req, which wrote @w->len bytes in full. */
void fs_inval_reply(struct fs_inval *iv, fuse_req_t req,
		    const struct fs_written *w);
/* Answers @req with @code once all that was written before is forgotten. */
void fs_inval_settle(struct fs_inval *iv, fuse_req_t req, int code);
/* Has all pages of @file forgotten, some time soon. */
void fs_inval_all(struct fs_inval *iv, struct fs_shown *file);

#endif
