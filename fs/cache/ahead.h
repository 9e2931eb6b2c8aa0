/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead.h - the next blocks of a file that is read front to back
 *
 * A reader waits while its block is fetched and again while the kernel copies
 * it; the two need not follow one another.  When a reader has asked for blocks
 * in a row, or for the file's first, a thread of the mount fetches the next while the last is being
 * answered, and a reader that comes for it before it is there fetches a part of
 * it.  Two blocks a file, so that the thread need not wait for the reader, and
 * one where many files are read; used within moments or dropped, and dropped
 * when anything was written through the mount: bytes are never older than a
 * request that was under way.  A failed fetch is dropped too, so
 * that the request itself meets the fault.
 *
 * Threads: any; one short lock.
 */
#ifndef FS_AHEAD_H
#define FS_AHEAD_H

#include "core/view/view.h"
#include "fs/cache/copies.h"

#include <stddef.h>
#include <stdint.h>

/* Fetched bytes are good for this long; tests change it. */
extern int64_t fs_ahead_fresh_ns;

struct fs_ahead; /* of a mount */
struct fs_stream; /* of an open file */

/*
 * With @threads, at most 4; 0: as many as the processors allow.  NULL: no
 * memory, or no thread: then nothing is read ahead.
 */
struct fs_ahead *fs_ahead_new(unsigned threads);
/* All streams are closed before, but of a lost mount, which closes no files. */
void fs_ahead_free(struct fs_ahead *a);

/*
 * For file @nr of @v, read by way of @copy, which may be NULL; both outlive it.
 * NULL where @a is, or no memory.
 */
struct fs_stream *fs_stream_open(struct fs_ahead *a, const struct ck_view *v,
				 uint32_t nr, struct fs_copy *copy);
void fs_stream_close(struct fs_stream *s);

/*
 * The fetched bytes [off, off+len), a buffer of buf.h that is the caller's
 * now; helps and waits if they are just being fetched.  NULL: there are none.
 */
void *fs_stream_take(struct fs_stream *s, uint64_t off, size_t len);
/*
 * [off, off+len) was asked for and the file ends at @size: has the next blocks
 * of that length fetched if this was one of a row, or the first of the file.
 */
void fs_stream_next(struct fs_stream *s, uint64_t off, size_t len,
		    uint64_t size);

#endif
