/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sums_priv.h - the sums of files, and their parts
 *
 *	sums.c         which there are; around writes; flushing
 *	sums_find.c    where a zip and MindSpore keep them
 *	sums_repair.c  what a crash left
 *	sums_mark.c    the attribute that tells of a crash
 */
#ifndef CK_SUMS_PRIV_H
#define CK_SUMS_PRIV_H

#include "core/base/vec.h"
#include "core/io/read_priv.h"
#include "core/write/sums.h"

#include <pthread.h>

#define CK_SUM_PLACES 3

/* Where a sum is kept in the file. */
struct ck_sum_place {
	uint64_t off;
	bool big; /* big-endian */
};

/* Of a block. */
enum { CK_SUM_KNOWN = 1, CK_SUM_DIRTY = 2, CK_SUM_NEW = 4 };

/* One CRC-32 over bytes [off, off+len) of the file. */
struct ck_sum {
	uint64_t from, to; /* what may be its; then @off and @len are found */
	uint64_t off, len;
	uint64_t local; /* zip: of the member's local header */
	uint16_t name_len;
	bool described; /* zip: a descriptor follows the bytes */
	bool found; /* off, len and all places are */
	bool kept; /* false: its writer kept no sum; it is left alone */
	bool dirty;
	bool corrupt; /* left wrong by a repair: of bytes that are damaged */
	bool torn; /* found to be another in another place */
	uint32_t crc; /* as the file has it */
	unsigned nr_places;
	struct ck_sum_place place[CK_SUM_PLACES];
	uint32_t *block; /* by block: its CRC where KNOWN */
	uint8_t *state;
};

/* An archive in a file, or the file itself. */
struct ck_sum_unit {
	uint64_t off, len;
	CK_VEC(struct ck_sum) sums; /* in the order of the file */
};

struct ck_sum_file {
	pthread_mutex_t lock;
	uint32_t src;
	CK_VEC(struct ck_sum_unit) units; /* in the order of the file */
	bool dirty, marked;
	bool left; /* by a mount that died, and not looked at yet */
};

struct ck_sums {
	struct ck_reader *r;
	pthread_mutex_t lock; /* of making files, and of the mark */
	_Atomic(struct ck_sum_file *) *file; /* by source; NULL: no write */
	CK_VEC(uint32_t) marked; /* sources in the mark */
	bool unmarkable, many, doubt;
	struct ck_sums_found found;
	pthread_t thread;
	bool repairing;
};

/* The sums of @unit; none where it keeps none.  -EROFS with a line. */
int ck_sum_find(struct ck_reader *r, uint32_t src, struct ck_sum_unit *unit,
		struct ck_err *err);
/*
 * Off, len and places of @sum.  @torn: all of the places that a sum may be in,
 * and sum->torn says whether they differ.
 */
int ck_sum_locate(struct ck_reader *r, uint32_t src,
		  const struct ck_sum_unit *unit, struct ck_sum *sum, bool torn,
		  struct ck_err *err);

/* The sums of @src; made without units where there are none.  NULL: memory. */
struct ck_sum_file *ck_sum_file(struct ck_sums *s, uint32_t src);
/* Under the file's lock: @sum is located, and its blocks can be looked at. */
int ck_sum_blocks(struct ck_sums *s, uint32_t src, const struct ck_sum_unit *u,
		  struct ck_sum *sum, struct ck_err *err);
/* Sums all blocks that are not KNOWN; what they make together. */
int ck_sum_all(struct ck_sums *s, uint32_t src, struct ck_sum *sum,
	       uint32_t *out, struct ck_err *err);
/* Whether it covers damage, and so stays wrong. */
bool ck_sum_corrupt(struct ck_sums *s, uint32_t src, const struct ck_sum *sum,
		    bool look);
/* Leaves it so until its bytes are new: nothing is known of its blocks. */
void ck_sum_leave(struct ck_sum *sum);
/* Writes @crc to all places of @sum. */
int ck_sum_store(struct ck_sums *s, uint32_t src, const struct ck_sum *sum,
		 uint32_t crc, struct ck_err *err);
int ck_sum_sync(struct ck_sums *s, uint32_t src, struct ck_err *err);

/* Under the file's lock.  Durable afterwards; 0 too where marks cannot be. */
int ck_sum_mark(struct ck_sums *s, struct ck_sum_file *f, struct ck_err *err);
void ck_sum_unmark(struct ck_sums *s, struct ck_sum_file *f);
/* Files in the mark that is there now are left: whether there are any. */
bool ck_sum_read_mark(struct ck_sums *s);

#endif
