/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.h - reads past the page cache, of any bytes into any memory
 *
 * By whole blocks, through a buffer of the caller's or into it.
 */
#ifndef CK_DIRECT_H
#define CK_DIRECT_H

#include "core/io/engine.h"

#define CK_DIRECT_BLOCK UINT64_C(4096) /* what any storage known takes */
#define CK_DIRECT_ROOM (UINT64_C(4) << 20) /* of the buffer, which is aligned */

/* The same file once more, whatever its name leads to by now; or -1. */
int ck_direct_open(int fd);
/*
 * Whole blocks from @off on into @mem, which begins at one and has room for all of
 * the last; at least @len bytes, or -errno.
 */
int ck_direct_blocks(int fd, unsigned char *mem, uint64_t off, uint64_t len);
/* 0, or as an engine has it; -EINVAL: its file system has none after all. */
int ck_direct_read(int fd, unsigned char *buf, struct ck_io *io);

#endif
