/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receive.h - requests from the device, their payload in pages of its own
 *
 * libfuse gives one buffer for a request, in which what is to be written
 * begins 80 bytes after its start, across all pages.  Here it is read to a
 * buffer that begins on a page, as the kernel copies page by page.
 *
 * Threads: the workers of the loop, each with a buffer until it ends.
 */
#ifndef FS_RECEIVE_H
#define FS_RECEIVE_H

#include <stddef.h>
#include <sys/types.h>

/* As read(): a whole request, but for what is to be written, in @buf. */
ssize_t fs_receive(int fd, void *buf, size_t len);
/*
 * Where the bytes are that the calling thread's request writes and that the
 * operation was given at @buf.
 */
const char *fs_receive_payload(const char *buf);

#endif
