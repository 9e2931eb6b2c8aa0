/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf.h - reply buffers: FS_MAX_IO bytes, each alone in a huge page
 *
 * The one given back last is given out next, whatever the thread: libfuse's
 * workers take turns, and a buffer for each would push one reader's bytes out
 * of the processor's cache.  There are as many as requests ran at once.
 *
 * Threads: any.
 */
#ifndef FS_BUF_H
#define FS_BUF_H

/* NULL: no memory. */
void *fs_buf_get(void);
void fs_buf_put(void *buf);
/* Frees those that nobody holds. */
void fs_buf_drain(void);

#endif
