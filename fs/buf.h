/* SPDX-License-Identifier: Apache-2.0 */
/* buf.h - the calling thread's reply buffer: FS_MAX_IO bytes, page-aligned */
#ifndef FS_BUF_H
#define FS_BUF_H

/* Made at first use, freed with the thread; NULL: no memory. */
void *fs_buf(void);

#endif
