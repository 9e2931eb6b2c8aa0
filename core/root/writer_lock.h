/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer_lock.h - one writer in place for a checkpoint, whichever way it got
 * there
 *
 * What a mount knows of the files that it edits, the digests, the sums, the
 * times that its own writes left, it keeps in memory; a second one that edits
 * the same checkpoint would damage that, and be damaged, also long after the
 * first one's last write.  So who edits holds two kinds of locks to its end:
 *
 *	a file in each directory of the root, which says who it is: of what is
 *	kept for the checkpoint as a whole (manifest, EDITED, the mark)
 *
 *	a byte far behind the end of each file that is open for writing: the
 *	same file may be reached by another root, a folder above, the file
 *	alone, a link, a bind mount
 *
 * They are record locks of open files (F_OFD_SETLK): NFS and Lustre pass them
 * to the server, and they end with the process, however that ends.  Where there
 * are none nobody is kept out.
 */
#ifndef CK_WRITER_LOCK_H
#define CK_WRITER_LOCK_H

#include "core/base/err.h"
#include "core/root/root.h"

#include <stdbool.h>

struct ck_writer_lock;

/*
 * For the directories of @root, which is borrowed: *out, or -EBUSY with a line
 * that says who has it.  A directory that cannot be written to is left out, and
 * so is that of a file that is given alone.  Temporary files that writers of the
 * manifest left there, killed, are removed.
 */
int ck_writer_lock_take(struct ck_writer_lock **out, const struct ck_root *root,
			struct ck_err *err);
void ck_writer_lock_drop(struct ck_writer_lock *h); /* NULL: nothing */
/*
 * Removes what one left there that was killed while it had it; whether there was
 * anything.
 */
bool ck_writer_lock_sweep(const struct ck_root *root);
/* -EBUSY where somebody else has it. */
int ck_writer_lock_look(const struct ck_root *root, struct ck_err *err);

/* For a file called @name, open for writing as @fd, until that is closed. */
int ck_writer_lock_file(int fd, const char *name, struct ck_err *err);
void ck_writer_lock_file_end(int fd); /* before it is closed */
/* -EBUSY where somebody else holds @fd, which may be open for reading. */
int ck_writer_lock_file_look(int fd, const char *name, struct ck_err *err);

#endif
