/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies.h - whole files, kept for who reads them again (-o cache)
 *
 * What is read of a file is written to a copy, a nameless file, MiB by MiB, and
 * each MiB is read from the shards once, however many readers ask.  Once all is
 * there, and in a folder on storage, further opens are served from the copy.
 * Until then, who has it open is answered from where the bytes lie in the copy.
 * Copies stay within a size; of those that nobody has open the one that was
 * opened the longest ago goes first.
 *
 * A copy in memory, or on a file system that is not stacked, is read by the
 * kernel itself where it can (passed.h).  A file that is a stored one, byte for
 * byte, is not copied there: the kernel reads that.
 *
 * At each open the shards behind the file are looked at.  Once one has changed,
 * or was touched (core/geom/file_id.h), the copy is given to nobody any more.
 * Where it changed, who has the copy open reads on; where it was touched, he
 * reads the shards, but for what the kernel reads by itself.
 *
 * What is read while a write to the shards may be going on is not kept: the time of
 * a file tells when a write began, and not that it ended.
 *
 * A copy that cannot be written, or of which bytes are lost, is not kept, and
 * reads go to the shards.
 *
 * Threads: any.
 */
#ifndef FS_COPIES_H
#define FS_COPIES_H

#include "core/view/view.h"
#include "fs/cache/passed.h"

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
	bool stored; /* stored files stand for those that are the same */
	struct fs_passed *passed; /* borrowed */
	struct fs_cache_said *said; /* likewise */
};
/* NULL: no memory. */
struct fs_copies *fs_copies_new(const struct fs_copies_in *in);
void fs_copies_free(struct fs_copies *cs);

/* Where a file that is opened is read from. */
enum fs_copy_how {
	FS_COPY_NONE, /* as without a cache */
	FS_COPY_PART, /* fs_copy_read(): more of it is there each time */
	FS_COPY_PAGES, /* the same by the page cache, as others have it open, too */
	FS_COPY_WHOLE, /* the same of all of it */
	FS_COPY_PASSED, /* by the kernel itself */
};

struct fs_copy_open {
	struct fs_copy *copy; /* may be NULL, whatever @how */
	enum fs_copy_how how;
	bool keep; /* pages that the kernel has of it */
	uint64_t ino; /* the kernel's */
	int id; /* of passed.h; FS_COPY_PASSED: what the open is answered with */
};
#define FS_COPY_OPEN_NONE           \
	{                           \
		.id = FS_NOT_PASSED \
	}

struct fs_copy_of {
	uint64_t serial; /* of the mounted checkpoint */
	uint64_t ino; /* in it; */
	uint64_t kernel; /* and as the kernel has it */
	const struct ck_view *v;
	uint32_t nr;
	struct ck_ckpt *ck; /* whose files are behind it: */
	const unsigned char *srcs; /* a bit each */
	/* No write to them may be going on: now; and when they were described. */
	bool settled, was_settled;
};

/* *out is for fs_copy_close().  -ESTALE without a line: see passed.h. */
int fs_copies_open(struct fs_copies *cs, const struct fs_copy_of *of,
		   struct fs_copy_open *out);
/* May wait until a copy is on storage. */
void fs_copy_close(struct fs_copies *cs, const struct fs_copy_open *o);
/* It is read by the page cache: who opens it beside is to share that. */
void fs_copy_mapped(struct fs_copy *c);
/* As ck_view_read() of the file that it is a copy of; @c NULL: it is. */
int fs_copy_read(struct fs_copy *c, const struct ck_view *v, uint32_t nr,
		 void *buf, uint64_t len, uint64_t off, struct ck_err *err);
/*
 * The same bytes where they lie in the copy, until it is closed, for the kernel to
 * take them from there: who looks at bytes that are lost by then gets a signal.
 * NULL: not all of them are there, when those that are being filled are.
 */
const void *fs_copy_at(struct fs_copy *c, const struct ck_view *v, uint64_t len,
		       uint64_t off);
/* Whether all of them are there, or are being filled. */
bool fs_copy_has(struct fs_copy *c, uint64_t len, uint64_t off);

#endif
