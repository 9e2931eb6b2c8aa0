/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export.h - the files of a view as ordinary files
 *
 * They are written into a hidden folder beside the place where they go, once, in
 * the order in which their bytes are stored, and moved there by one rename when
 * they are on disk.  A file in that folder says what is written so far, so that
 * an export that was interrupted goes on where it was.
 *
 *	PARENT/.NAME.unshard-part/STATE       what is written: see export_state.c
 *	PARENT/.NAME.unshard-part/FILE...
 */
#ifndef EXPORT_H
#define EXPORT_H

#include "core/base/vec.h"
#include "core/view/view.h"

#include <pthread.h>

#define EXPORT_PIECE (UINT64_C(8) << 20) /* bytes */
#define EXPORT_BATCH 64 /* pieces that are read together, if they are small */
#define EXPORT_ROOM (2 * EXPORT_PIECE) /* bytes of them */
#define EXPORT_STATE ".unshard-export"
#define EXPORT_STATE_2 ".unshard-export.2"
#define EXPORT_NO_LAYOUT                                                    \
	"no layout can say what is where in the files of the ranks, or it " \
	"would have over 262,144 parts"

struct export_file {
	char *name; /* in the temporary folder */
	uint32_t nr; /* of the view */
	uint64_t size, first; /* bytes; number of its first piece */
	int fd; /* -1: not open */
	pthread_mutex_t writing; /* sleeps where the kernel's lock spins */
	bool dirty, sync; /* written since the last record; to be synced */
};

/* Bytes [off, off + len) of a file, to or from @buf. */
struct export_piece {
	struct export_file *file;
	uint64_t nr, off, len;
	uint64_t shared; /* when it is written */
	unsigned char *buf;
};

/* A CRC-32 that is known when all is written: see export_sums.c. */
struct export_sum {
	uint64_t off, len; /* of the bytes, in the file */
	uint64_t field[2]; /* where in the file it goes */
	uint32_t crc;
};

enum export_done { EXPORT_NOT, EXPORT_KEPT, EXPORT_WRITTEN, EXPORT_AGAIN };

struct export
{
	const struct ck_view *view;
	CK_VEC(struct export_file) file;
	uint64_t bytes, pieces; /* in all; an empty file is one piece too */
	uint64_t id[2]; /* of the checkpoint, the view and their files */
	int dir; /* the temporary folder */
	uint64_t kept; /* bytes that were there from an export before */
	uint64_t *digest; /* XXH3-64 of each piece */
	unsigned char *done; /* each piece: enum export_done */
	unsigned char mark; /* what becomes of those that are written */
	uint64_t *order; /* of pieces: as what they show is stored */
	struct ck_load_pool *pool; /* reads */
	struct { /* what is to be recorded; the digests of the rest are 0 */
		unsigned char *done; /* 1 or 0 */
		uint64_t *digest;
	} now;
	uint64_t turn; /* of the last record; 0: none */
	uint64_t damaged; /* bytes of an export before that are so no more */

	CK_VEC(struct export_sum) sum; /* by place; of the only file */
	uint32_t *part; /* of member m in piece p: at p + m; NULL: no sums */
	unsigned char *summed; /* each piece: its parts are known; 1 or 0 */

	pthread_mutex_t lock;
	uint64_t next, moved; /* place in order to take; bytes so far */
	uint64_t total; /* bytes of what is due in this run */
	uint64_t shared; /* of those: copied by the filesystem */
	_Atomic bool no_share; /* it cannot */
	bool no_layout; /* the ranks' files are no checkpoint by themselves */
	bool check; /* read back and compare, instead of write */
	bool check_all; /* and not only what was there from before */
	int ret; /* the first failure: */
	struct ck_err err;
	int64_t recorded_ns, record_ns; /* when the last ended; it took */
	uint64_t recorded; /* of moved, then */
	bool (*stop)(void); /* whether to end early; may be NULL */
	void (*tick)(void *ctx, uint64_t bytes, uint64_t total);
	void *ctx;
};

/*
 * What is to be written: all files of @view, of the folder @only of it, or the
 * file @only under the name @as.  -ENOENT where it has none.  @opts are those
 * that decide what the bytes are.
 */
int export_plan(struct export *x, const struct ck_view *view, const char *only,
		const char *as, const struct ck_opts *opts, struct ck_err *err);
/*
 * All of it to standard output instead, and nothing read back: as it is where
 * it is @one file, else as a tar.
 */
int export_stream(struct export *x, bool one, struct ck_err *err);
void export_free(struct export *x);

/* Fills in x->order. */
int export_order(struct export *x, struct ck_err *err);
/* The bytes of @nr pieces of the view, as one load; all of them or -errno. */
int export_read(struct export *x, const struct export_piece *p, size_t nr,
		struct ck_err *err);

/*
 * What is written already; fills in done, digest and kept.  Where that is
 * nothing, all that lies in the folder is removed.
 */
int export_state_load(struct export *x, struct ck_err *err);
/* Nothing is: all that lies in the folder is removed. */
int export_state_forget(struct export *x, struct ck_err *err);
/* Takes the room that records need. */
int export_state_begin(struct export *x, struct ck_err *err);
/* Records x->now, which has to be on disk. */
int export_state_save(struct export *x, struct ck_err *err);

/*
 * Puts bytes [off, off + len) of file @nr of the view, which are in @buf, into
 * @fd; *shared of them as what the filesystem has already.  0 or -errno.
 */
int export_put(struct export *x, uint32_t nr, int fd, const unsigned char *buf,
	       uint64_t len, uint64_t off, uint64_t *shared);

/*
 * Sums of members of a zip: which there are; those of bytes [off, off + len) of
 * a piece, in a thread of its own; into the file, once all is written; and out
 * of what was read back of it.
 */
int export_sums_plan(struct export *x, struct ck_err *err);
void export_sums_take(struct export *x, uint64_t piece, uint64_t off,
		      const unsigned char *buf, uint64_t len);
int export_sums_put(struct export *x, struct ck_err *err);
void export_sums_hide(const struct export *x, unsigned char *buf, uint64_t len,
		      uint64_t off);

/*
 * Writes all that is not done; then reads back what was done before, or, with
 * check_all, everything.  -EIO with a line for
 * bytes that cannot be read, and for those that come back otherwise: but what
 * an export before had written is written again then.  -EINTR: @stop said so.
 * However it ends, what was written is on disk and on record; where that is
 * nothing, nothing is left in the folder.
 */
int export_write(struct export *x, struct ck_err *err);
int export_check(struct export *x, struct ck_err *err);

#endif
