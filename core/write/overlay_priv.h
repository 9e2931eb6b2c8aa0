/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlay_priv.h - the parts of the overlay
 *
 *	overlay.c       the public calls; reading and writing blocks
 *	overlay_head.c  which checkpoint it is for
 *	overlay_log.c   records: written, and replayed
 *	overlay_map.c   where each block is in the log
 *	overlay_compact.c  a log of which little still counts, made short
 */
#ifndef CK_OVERLAY_PRIV_H
#define CK_OVERLAY_PRIV_H

#include "core/write/overlay.h"

#include <pthread.h>

#define CK_OVERLAY_HEAD "overlay.head"
#define CK_OVERLAY_LOG "overlay.log"
#define CK_OVERLAY_LOST CK_OVERLAY_LOG ".lost"
#define CK_OVERLAY_NEW "overlay.log.new" /* while it is made short */
#define CK_OVERLAY_RECORD (UINT64_C(1) << 20) /* bytes of data, at most */
#define CK_OVERLAY_RECORD_HEAD 40
#define CK_OVERLAY_BUF (CK_OVERLAY_RECORD_HEAD + CK_OVERLAY_RECORD)

/* Places in the log of the blocks of one source; 0: not in it. */
#define CK_OVERLAY_LEAF 512
struct ck_overlay_map {
	uint64_t size; /* of the source; 0: not a file */
	uint64_t nr; /* blocks that are in it */
	uint64_t **leaf; /* made with the first block */
};
void ck_overlay_map_free(struct ck_overlay_map *m);
uint64_t ck_overlay_map_get(const struct ck_overlay_map *m, uint64_t block);
/*
 * The first block at or after *block that is in it, and how many follow each
 * other from there, at most @most; 0: there is none.
 */
uint64_t ck_overlay_map_next(const struct ck_overlay_map *m, uint64_t *block,
			     uint64_t most);
/* Blocks [first, first + nr) lie at @at and after it; false: no memory. */
bool ck_overlay_map_put(struct ck_overlay_map *m, uint64_t first, uint64_t nr,
			uint64_t at);

/* Of a record; the two that are not BLOCKS are marks. */
enum ck_overlay_kind {
	CK_OVERLAY_BLOCKS = 1,
	CK_OVERLAY_COMMIT = 2,
	CK_OVERLAY_KEPT = 3
};

struct ck_overlay {
	const struct ck_catalog *img;
	int dir_fd, head_fd, log_fd;
	bool write;
	pthread_mutex_t lock; /* who writes */
	pthread_rwlock_t maps; /* of the maps */
	pthread_rwlock_t moving; /* held to read from a place in the log */
	struct ck_overlay_map *map; /* by source */
	uint64_t end; /* where the next record goes */
	uint64_t seq; /* of the next record */
	uint64_t compact_from; /* @end when that was last tried */
	uint32_t last; /* kind of the last record; 0: there is none */
	int failed; /* errno of a sync that failed: it will not be well again */
	unsigned char *buf; /* CK_OVERLAY_BUF: a record's head, then data */
	struct ck_overlay_stats stats;
	struct ck_file_layer over;
};

/* Compares the head with the checkpoint, or, where there is none, makes it. */
int ck_overlay_head(struct ck_overlay *o, const struct ck_overlay_in *in,
		    struct ck_err *err);

/* Reads the log up to the last commit; what lies behind is cut off. */
int ck_overlay_replay(struct ck_overlay *o, struct ck_err *err);
/* o->buf has data; with o->lock held.  *at: where the data is in the log. */
int ck_overlay_append(struct ck_overlay *o, uint32_t src, uint64_t off,
		      uint64_t len, uint64_t *at, struct ck_err *err);
/* All before it counts, and is not on storage yet; with o->lock held. */
int ck_overlay_append_mark(struct ck_overlay *o, enum ck_overlay_kind kind,
			   struct ck_err *err);
/*
 * After a commit, with o->lock held: makes the log short where over half of it
 * and ck_overlay_slack bytes more were written over since.
 */
void ck_overlay_compact(struct ck_overlay *o);
extern uint64_t ck_overlay_slack; /* 64 MiB; tests: less */
/* For the layer: of a struct ck_overlay. */
int ck_overlay_commit(void *ctx, struct ck_err *err);

#endif
