/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.h - whole files, kept for who reads them again (-o cache)
 *
 * What is read of a file is written to a copy, a nameless file, MiB by MiB, and
 * each MiB is read from the shards once, however many readers ask.  Once all is
 * there, and in a folder on storage, further opens are served from the copy.
 * Copies stay within a size; of those that nobody has open the one that was
 * opened the longest ago goes first.
 *
 * A copy in memory, or on a file system that is not stacked, is read by the
 * kernel itself where it can (passthrough.h).  It does so for all who have the
 * file open or for none, so that this begins when nobody has.
 *
 * At each open the shards are looked at.  Once one has changed the copy is
 * given to nobody any more; who has it open reads on, and until he has closed it
 * the file cannot be opened: the kernel knows one content of a file.  Once one was
 * touched (core/geom/file_id.h), all that have it open read the shards.
 *
 * A copy that cannot be written, or of which bytes are lost, is not kept, and
 * reads go to the shards.
 *
 * Threads: any.
 */
#ifndef FS_COPIES_H
#define FS_COPIES_H

#include "core/view/view.h"
#include "fs/kernel/kernel.h"

struct fs_copies; /* of a mount */
struct fs_copy; /* of a file */

struct fs_copies_in {
	int dir; /* borrowed; -1: none, and @memory */
	/*
	 * Copies are for the kernel, to be passed through; where it does not, the
	 * page cache is what keeps files, and @max does not bound it.
	 */
	bool memory;
	uint64_t max; /* bytes; 0: half of what is free in @dir */
	int passthrough; /* passthrough.h; taken */
	int dev; /* the mount's */
	struct fs_kernel *kernel; /* borrowed */
};
/* NULL: no memory. */
struct fs_copies *fs_copies_new(const struct fs_copies_in *in);
void fs_copies_free(struct fs_copies *cs);

/* Where a file that is opened is read from. */
enum fs_copy_how {
	FS_COPY_NONE, /* as without a cache */
	FS_COPY_PART, /* fs_copy_read(): more of it is there each time */
	FS_COPY_WHOLE, /* the page cache, which keeps what it has, the same way */
	FS_COPY_PASSED, /* by the kernel itself */
};

struct fs_copy_open {
	struct fs_copy *copy; /* may be NULL, whatever @how */
	enum fs_copy_how how;
	int id; /* FS_COPY_PASSED: what the open is answered with */
};

struct fs_copy_of {
	uint64_t serial; /* of the mounted checkpoint */
	uint64_t ino; /* in it */
	const struct ck_view *v;
	uint32_t nr;
};

/*
 * *out is for fs_copy_close().  -ESTALE with a line: the shards changed, and
 * somebody has the old content open.
 */
int fs_copies_open(struct fs_copies *cs, const struct fs_copy_of *of,
		   struct fs_copy_open *out, struct ck_err *err);
/* May wait until a copy is on storage. */
void fs_copy_close(const struct fs_copy_open *o);
/* As ck_view_read() of the file that it is a copy of; @c NULL: it is. */
int fs_copy_read(struct fs_copy *c, const struct ck_view *v, uint32_t nr,
		 void *buf, uint64_t len, uint64_t off, struct ck_err *err);

#endif
