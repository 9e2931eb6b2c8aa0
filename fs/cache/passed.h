/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passed.h - which files the kernel reads by itself (-o cache, passthrough.h)
 *
 * A file that is passed stands for all of an inode: a kept copy (copies.h), or
 * a stored file that is shown as it is.  The kernel reads it for all that have the
 * inode open, or for none, so that this begins when nobody has; and while it
 * does, no other file stands for that inode.
 *
 * So an inode whose content is another by now is left to those that have it open:
 * opening it gives ESTALE, on which the kernel looks the name up again, and finds
 * the file under a further number (FS_INO_TURN), which is opened then.
 *
 * Threads: any.
 */
#ifndef FS_PASSED_H
#define FS_PASSED_H

#include "fs/kernel/kernel.h"

struct fs_passed; /* of a mount */

struct fs_passed_in {
	int worker; /* passthrough.h; -1: nothing is passed; taken */
	int dev; /* the mount's */
	struct fs_kernel *kernel; /* borrowed */
};
/* NULL: no memory. */
struct fs_passed *fs_passed_new(const struct fs_passed_in *in);
void fs_passed_free(struct fs_passed *p);

/* Whether files like @fd can be passed; asks the kernel. */
bool fs_passed_can(struct fs_passed *p, int fd);
/*
 * An open of @ino, in place of which the kernel could read @fd; -1: the worker has
 * to.  Above 0: what the open is answered with; 0: the worker reads.  Either is
 * for fs_passed_close().  -ESTALE: as above; -ENOMEM.  @rests: when all have closed
 * it, the kernel keeps @fd for the next, until fs_passed_forget().
 */
int fs_passed_open(struct fs_passed *p, uint64_t ino, int fd, bool rests);
void fs_passed_close(struct fs_passed *p, uint64_t ino, int id);
#define FS_NOT_PASSED (-1) /* no open was counted: nothing to close */
void fs_passed_forget(struct fs_passed *p, uint64_t ino);
/* Who has the file open keeps it, by whichever number: nobody else opens that. */
void fs_passed_leave(struct fs_passed *p, uint64_t ino);
/* The number by which who looks @ino up is to know it. */
uint64_t fs_passed_ino(struct fs_passed *p, uint64_t ino);

#endif
