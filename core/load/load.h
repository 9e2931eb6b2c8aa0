/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h - many boxes of many tensors into memory, as one plan
 *
 *	ck_load_pool_new(&pool, 2, &err);
 *	ck_load_start(&load, pool, &in, &err);
 *	while (!ck_load_next(load, -1, &item, &err)) ...
 *	ret = ck_load_wait(load, -1, &item, &err);
 *	ck_load_free(load);
 *	ck_load_pool_free(pool);
 *
 * The parts of all items are sorted by file and offset and read in that order by
 * the pool's threads, each stored byte once.  Long runs go straight to where they
 * belong, others by way of buffers of the pool's.
 *
 * Memory of a device is filled by way of a ring of buffers (core/device/ring.h):
 * while some are copied from, others are read into.
 *
 * Ranks that load of the same checkpoint at once, by a communicator
 * (core/comm/comm.h), read each byte once between them.
 *
 * Memory: at most 8 MiB a thread, 24 MiB for parts, and about 200 bytes an item;
 * nothing else, however many pieces the tensors are stored in.
 *
 * Threads: any, but that one thread at a time may be in next(), wait() or free()
 * of a load.  In a thread of a pool, which is where progress() is, they and read()
 * are -EDEADLK.  After a fork() of the process none of this may be called in the
 * child.
 */
#ifndef CK_LOAD_H
#define CK_LOAD_H

#include "core/base/err.h"
#include "core/geom/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ck_comm;
struct ck_device;
struct ck_load;
struct ck_load_pool;
struct ck_reader;
struct ck_ring;

/* Threads that load, and their buffers.  @threads 0: as many as CPUs, up to 4. */
int ck_load_pool_new(struct ck_load_pool **out, unsigned threads,
		     struct ck_err *err);
/* No load of it, nor a ring, may be left.  NULL: nothing. */
void ck_load_pool_free(struct ck_load_pool *pool);

#define CK_LOAD_CHUNK_MIN (UINT64_C(256) << 10)
/*
 * Buffers between the pool's threads and @dev, of @chunk bytes, whole pages.  Let
 * go with ck_ring_free(), when no load of it is left.
 */
int ck_load_ring_new(struct ck_ring **out, struct ck_load_pool *pool,
		     struct ck_device *dev, unsigned slots, uint64_t chunk,
		     struct ck_err *err);

struct ck_load_item {
	uint32_t tensor; /* of the catalog */
	/* CK_DT_NONE: as stored; else floats are cast as PyTorch does (geom/cast.h). */
	enum ck_dtype dtype;
	/*
	 * A box of the shape, a value a dimension; start NULL: from 0 on, len
	 * NULL: to the end.
	 */
	const uint64_t *start, *len;
	/*
	 * Where the first element of the box goes, an address of the load's
	 * device; the caller's until the end.
	 */
	void *mem;
	/*
	 * Elements (of the memory's dtype) from one to its neighbour along each
	 * dimension, negative too; no two may meet.  NULL: row-major.
	 */
	const int64_t *stride;
	bool optional; /* its failure is not the load's */
};

struct ck_load_in {
	struct ck_reader *reader; /* stays until the load was freed */
	struct ck_ring *ring; /* to the memory's device; NULL: the host's */
	const struct ck_load_item *item; /* copied, as what it points to */
	size_t nr;
	/*
	 * Ten times a second and at the end, by threads of the pool, one at a
	 * time; not 0: cancel.  May call ck_load_cancel() alone.  Or NULL.
	 */
	int (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
	bool no_prefault; /* fresh memory is touched by the reads themselves */
	enum ck_load_cache {
		CK_LOAD_CACHED, /* as files are read */
		CK_LOAD_DIRECT, /* past the page cache, where that can be */
		CK_LOAD_DROPPED /* of files that were not in it: not kept */
	} cache;
	bool no_dstore; /* the device reads no file itself */
	/*
	 * Of the ring's device, the caller's: the memory is not written before
	 * what is in it by now is done.  NULL: none.
	 */
	void *stream;
	/*
	 * Every rank of it loads now, whatever it wants; stays until the load was
	 * freed.  NULL: nobody else.  Who is gone is done without.
	 */
	struct ck_comm *comm;
	uint64_t digest
		[2]; /* of the catalog; of another one: -ESTALE, for all */
	bool never_alone; /* -ECONNRESET where a rank is gone */
};

/*
 * Begins.  -EINVAL with a line, and nothing is read: a tensor that is not there,
 * a box outside of it, strides by which elements meet, a cast that there is not;
 * *bad (or NULL) is the item.
 */
int ck_load_start(struct ck_load **out, struct ck_load_pool *pool,
		  const struct ck_load_in *in, size_t *bad, struct ck_err *err);
/*
 * The next item that is finished, each once: 0: *item is whole; -errno with a
 * line and its number in *item: that item failed, and its memory holds anything;
 * 1: there are no more; -ETIMEDOUT.  After a cancel, 1; -errno without a number:
 * ranks do not agree.  @timeout_ms -1: for ever;
 * 0: do not wait.
 */
int ck_load_next(struct ck_load *load, int timeout_ms, size_t *item,
		 struct ck_err *err);
/*
 * Until all is done: 0; -errno of the first item that failed and is not optional
 * (all others are whole) and its number in *item (or NULL; SIZE_MAX: of no item);
 * -ECANCELED: no byte is written from now on; -ETIMEDOUT: under way.
 */
int ck_load_wait(struct ck_load *load, int timeout_ms, size_t *item,
		 struct ck_err *err);
/*
 * An eventfd of the load's, readable while next() would not wait; not to be read.
 * -errno: none could be had.
 */
int ck_load_fd(struct ck_load *load);
void ck_load_cancel(struct ck_load *load);
/* Whether the load that the calling thread works for is cancelled. */
bool ck_load_is_cancelled(void);
/* The tensor of item @i; UINT32_MAX: there is no such item. */
uint32_t ck_load_tensor(const struct ck_load *load, size_t i);
/*
 * Cancels what is under way, and waits until nothing is.  NULL: nothing.
 * -EDEADLK: it is not freed.
 */
int ck_load_free(struct ck_load *load);

struct ck_load_stats {
	uint64_t wanted; /* bytes of the items, as stored */
	uint64_t done; /* of them */
	uint64_t source_bytes, source_ops; /* read, gaps and all */
	uint64_t slow; /* of done, by ck_reader_read_box_bytes() */
	uint64_t cast; /* elements */
	uint64_t prefaulted; /* bytes of memory */
	uint64_t ns_plan, ns_read, ns_copy; /* of all threads together */
	uint64_t left_to_reader; /* items */
	uint64_t direct; /* of source_bytes, past the page cache */
	uint64_t by_device; /* of source_bytes, by the device itself */
	/* Of source_bytes, of reads that were asked of: was in the page cache. */
	uint64_t resident;
	uint32_t ring; /* its slots; 0: memory of the host */
	uint64_t received; /* bytes that another rank has read */
	uint64_t sent; /* bytes to others, by sockets */
	uint64_t ns_comm; /* until they were there */
	char why[256]; /* why something is not as it was asked for; or "" */
};
/* At any time; any thread. */
void ck_load_stats(const struct ck_load *load, struct ck_load_stats *out);

/* Now: as start, wait and free. */
int ck_load_read(struct ck_load_pool *pool, const struct ck_load_in *in,
		 struct ck_err *err);

#endif
