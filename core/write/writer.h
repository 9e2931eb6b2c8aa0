/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writer.h - bytes of tensors into the shards that hold them
 *
 * A write goes to every replica of every part that it touches, or, where any
 * of that cannot be written, nowhere: all is looked at before the first byte.
 * What fails after that (EIO, ENOSPC) leaves some shards written; the caller
 * is told.
 *
 * Threads: any; one edit by several at a time too.
 */
#ifndef CK_WRITER_H
#define CK_WRITER_H

#include "core/base/err.h"
#include "core/io/read.h"
#include "core/write/range_lock.h"
#include "core/write/shared_storage.h"
#include "core/write/sums.h"

#include <pthread.h>

struct ck_edit; /* what one open file has written so far */

/*
 * What users should know of source @src, CK_NONE: of all: that a write failed
 * which had written some copies of its bytes.  Any thread.
 */
typedef void (*ck_writer_said_fn)(void *ctx, uint32_t src, const char *line);

struct ck_writer {
	struct ck_reader *r;
	const struct ck_catalog *img;
	struct ck_sums *sums;
	struct ck_shared_storage *alias; /* NULL: no tensors share bytes */
	/* moves on with every write that is over: what was read may be old */
	_Atomic uint64_t seq;
	/* when each tensor, and any, was last written, since 1970; 0: not by us */
	_Atomic int64_t *wrote_ns;
	_Atomic int64_t last_ns;
	ck_writer_said_fn said; /* or NULL; set before anything is written */
	void *said_ctx;
	/* private */
	struct ck_range_locks range_locks;
	pthread_mutex_t edge; /* parts of elements are read, changed, written */
	_Atomic int *failed; /* by source: errno of the sync that failed */
};

/* Borrows @r, made with in.write, for its life. */
int ck_writer_new(struct ck_writer **out, struct ck_reader *r,
		  struct ck_err *err);
/* What is left to be flushed is; no write may be under way. */
void ck_writer_free(struct ck_writer *w);

struct ck_edit *ck_edit_new(struct ck_writer *w); /* NULL: no memory */
void ck_edit_free(struct ck_edit *e);

/*
 * Whether tensor @t can be written as far as can be known without reading:
 * 0, or -EROFS with a line that says why it never can.
 */
int ck_writer_may(struct ck_writer *w, uint32_t t, struct ck_err *err);
/*
 * -EBUSY where somebody else holds file @src (root/writer_lock.h), -EROFS,
 * -EACCES or -EPERM where it is not to be opened for writing; else 0.
 */
int ck_writer_try(struct ck_writer *w, uint32_t src, struct ck_err *err);
/*
 * The same of the first files of tensor @t, and -EROFS where sums of its first
 * bytes could not be kept: what a write would be refused for, when it is opened.
 */
int ck_writer_try_tensor(struct ck_writer *w, uint32_t t, struct ck_err *err);
/*
 * Around writes: nobody else writes to the bytes meanwhile.  The keys of
 * @range_lock are tensors.
 */
void ck_writer_begin(struct ck_writer *w, struct ck_range_lock *range_lock);
void ck_writer_end(struct ck_writer *w, struct ck_range_lock *range_lock);
/* Bytes [off, off+len) of a tensor. */
struct ck_wrange {
	uint32_t tensor;
	const unsigned char *buf;
	uint64_t len, off;
	size_t part; /* the caller's */
};
/*
 * All of them, one after the other; past the end of a tensor is -EFBIG.  All is
 * looked at before the first byte is written; *done: so many are written in full.
 */
int ck_writer_write_ranges(struct ck_writer *w, struct ck_edit *e,
			   const struct ck_wrange *v, size_t nr, size_t *done,
			   struct ck_err *err);
int ck_writer_write(struct ck_writer *w, struct ck_edit *e, uint32_t t,
		    const void *buf, uint64_t len, uint64_t off,
		    struct ck_err *err);
/* The checksums of every file that @e wrote to are right. */
int ck_edit_flush_checksums(struct ck_edit *e, struct ck_err *err);
/*
 * They are, and every file that @e wrote to is on storage; what failed once fails
 * again, for @e and for all who wrote to that file.
 */
int ck_edit_sync(struct ck_edit *e, struct ck_err *err);

/* For the statistics: somebody goes over the spans of a file, for a write. */
void ck_writer_count_span_walk(struct ck_writer *w);
/*
 * Whether file @name, which has the time @mtime_ns now, has it by writes of ours
 * alone; *was_ns: its time when it was described.
 */
bool ck_writer_wrote(const struct ck_writer *w, const char *name,
		     int64_t mtime_ns, int64_t *was_ns);

#endif
