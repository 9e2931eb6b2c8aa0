/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_priv.h - the reader and its parts
 *
 *	reader.c   the public calls; requests that go through tiles
 *	walk.c     segments of a cursor, batches, failover
 *	bounce.c    a segment of short runs, through a bounce buffer
 *	bytes.c    sources as descriptors
 *	fetch.c    requests to the engine, and what stands before it
 *	replicas.c replicas against each other
 *	mend.c     replicas made alike
 */
#ifndef CK_READ_PRIV_H
#define CK_READ_PRIV_H

#include "core/io/write_helper.h"
#include "core/io/bytes.h"
#include "core/io/self_writes.h"
#include "core/io/plan.h"
#include "core/io/read.h"
#include "core/io/decomp_cache.h"
#include "core/io/tiles.h"

#include <pthread.h>

#define CK_BOUNCE_SIZE \
	(UINT64_C(512) << 10) /* bytes of the bounce buffer of a thread */
#define CK_SHORT_RUN 512 /* shorter runs are copied, not given to readv */
#define CK_BATCH_SEGS 128

struct ck_reader {
	struct ck_reader_in in;
	struct ck_read_stats stats;
	struct ck_files *files;
	struct ck_files *wfiles; /* the same, for writing; NULL: read-only */
	struct ck_self_writes *self_writes;
	pthread_mutex_t touch_lock; /* of forgetting */
	_Atomic uint64_t forgotten; /* touches after which it was done */
	struct ck_write_helper *helper; /* NULL: read-only */
	struct ck_decomp_cache *spool;
	struct ck_tiles *tiles;
	_Atomic uint64_t *told; /* a bit a chunk: fault() was called */
};

/* Working memory of a thread, made at first use, freed when it ends. */
struct ck_scratch {
	struct ck_plan plan;
	struct ck_seg seg[CK_BATCH_SEGS];
	unsigned seg_bytes[CK_BATCH_SEGS]; /* index into bytes */
	bool bad[CK_BATCH_SEGS]; /* a read of it failed */
	unsigned nr_seg;
	struct ck_bytes bytes[CK_PLAN_SRCS];
	int code[CK_PLAN_SRCS]; /* no longer the described file: -errno */
	struct ck_err why[CK_PLAN_SRCS];
	unsigned nr_bytes;
	unsigned char stage[CK_BOUNCE_SIZE];
};
struct ck_scratch *ck_scratch_mine(void); /* NULL: no memory */
/* Around reads that happen within a read: they get another one. */
void ck_scratch_deeper(bool in);

/* The sources that a tile was made of. */
#define CK_SRCSET 64
struct ck_srcset {
	unsigned nr; /* more than CK_SRCSET: not all are in v */
	uint32_t v[CK_SRCSET];
};

/* A cursor's bytes into a buffer. */
struct ck_walk {
	struct ck_reader *r;
	struct ck_scratch *s;
	uint32_t t;
	struct ck_cursor *cur;
	unsigned char *buf;
	uint64_t len;
	struct ck_srcset *srcs; /* gathers what was read; or NULL */
	bool may_tile; /* -EREMOTE: better by tiles, because of tile_chunk */
	uint32_t tile_chunk;
};
int ck_walk_run(struct ck_walk *w, struct ck_err *err);
/*
 * The elements of @seg, of w->cur, from replica @chunk, or, CK_NONE, from the
 * first one that is good once all before it are resolved; read at once.
 */
int ck_walk_alt(struct ck_walk *w, const struct ck_seg *seg, uint32_t chunk,
		struct ck_err *err);

/* What the replicas of tensor @a.t hold, a piece of its bytes at a time. */
struct ck_ring_walk {
	struct ck_walk a, b; /* of two members of a ring */
	struct ck_cursor cur;
	uint64_t pos; /* of the piece in the tensor */
	struct ck_err why; /* of the segment, where it is not known */
};
/*
 * Each segment of tensor @t that has replicas, in pieces of up to @piece
 * bytes: the buffers of a and b have room for one.
 */
int ck_ring_walk(struct ck_ring_walk *w, struct ck_reader *r, uint32_t t,
		 uint64_t piece,
		 int (*each)(struct ck_ring_walk *w, const struct ck_seg *seg,
			     struct ck_err *err),
		 struct ck_err *err);

/* Reads @seg, all of it; @b is its source, not in memory. */
int ck_bounce_read(struct ck_reader *r, const struct ck_bytes *b,
		   const struct ck_seg *seg, unsigned char *buf,
		   struct ck_scratch *s, struct ck_err *err);
/*
 * Writes @seg, all of it, in stretches without gaps, by @put, which is given
 * requests without a descriptor; no two bytes of @seg are one in the source.
 */
typedef int (*ck_bounce_put)(void *ctx, struct ck_io *io, unsigned nr,
			     struct ck_err *err);
int ck_bounce_write(const struct ck_seg *seg, uint8_t dtype,
		    const unsigned char *buf, struct ck_scratch *s,
		    ck_bounce_put put, void *ctx, struct ck_err *err);
/* Whether @seg would read more than 4x its bytes, counted in pages. */
bool ck_bounce_wasteful(const struct ck_seg *seg);

/* Reads without tiles; @srcs: what it was made of. */
int ck_reader_fill(struct ck_reader *r, uint32_t t, unsigned char *buf,
		   uint64_t len, uint64_t off, struct ck_srcset *srcs,
		   struct ck_err *err);

/* Whether every copy of @seg lies in a source of @size bytes. */
bool ck_seg_inside(const struct ck_seg *seg, uint64_t size);
/* A part of one element that must be transformed as a whole. */
bool ck_seg_is_edge(const struct ck_seg *seg);
/* The stored strides of @chunk in elements; NULL: row-major. */
const int64_t *ck_chunk_strides(const struct ck_reader *r, uint32_t chunk);

/*
 * THE way of bytes to sources: at most CK_PUT requests.  -errno where none was
 * run because one may not be; else 0, and res says what became of each.
 */
#define CK_PUT 64
int ck_put(struct ck_reader *r, struct ck_io *io, unsigned nr,
	   struct ck_err *err);

static inline void ck_stat_add(_Atomic uint64_t *stat, uint64_t n)
{
	atomic_fetch_add_explicit(stat, n, memory_order_relaxed);
}

#endif
