/* SPDX-License-Identifier: Apache-2.0 */
/* whole.h - all bytes of a file's stretch, where a call may take fewer */
#ifndef CK_WHOLE_H
#define CK_WHOLE_H

#include <stdint.h>
#include <sys/types.h>

/* Writes all of them: 0, or -errno. */
int ck_write_whole(int fd, const void *buf, uint64_t len);
int ck_pwrite_whole(int fd, const void *buf, uint64_t len, uint64_t off);
/* How many there are, at most @len: fewer only at the file's end; -errno. */
ssize_t ck_pread_most(int fd, void *buf, uint64_t len, uint64_t off);
/* All of them: 0, -EIO where the file ends before, or -errno. */
int ck_pread_whole(int fd, void *buf, uint64_t len, uint64_t off);
/*
 * All bytes of a file, from malloc(), and a NUL behind them: 0 or -errno; -EINVAL
 * where it is no regular file, -EFBIG where there are more than @most.
 */
int ck_read_file(int fd, uint64_t most, char **bytes, size_t *len);

#endif
