/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_priv.h - a load and its parts
 *
 *	pool.c     threads; who does what next; the calls of load.h
 *	new.c      what a load has of its own
 *	item.c     what was asked for, and what became of it; statistics
 *	plan.c     items -> parts, a window of them sorted by place; stretches
 *	stretch.c  the parts of a stretch of a source, read and handed out
 *	uncached.c past the page cache, or what was read dropped from it
 *	by_device.c  stretches that the device reads itself
 *	together.c the bytes that another rank has read
 *	slow.c     items that are read through the reader instead
 *	deliver.c  bytes to where they belong: copies, casts, fresh pages
 *	device.c   the same where that is memory of a device
 *
 * A load goes round: resolve what is deferred of some items (many threads), plan
 * a window of parts (one), run its stretches (many).  What cannot be planned, or
 * failed, is read by the reader, which knows replicas and says what is wrong.
 */
#ifndef CK_LOAD_PRIV_H
#define CK_LOAD_PRIV_H

#include "core/load/load.h"

#include "core/comm/share.h"
#include "core/device/ring.h"
#include "core/geom/cursor.h"
#include "core/io/plan.h"
#include "core/io/read.h"

#include <pthread.h>
#include <stdatomic.h>

#define CK_LOAD_STRETCH (UINT64_C(4) << 20) /* of a file, by one thread */
#define CK_LOAD_SLOT (UINT64_C(1) << 20) /* what is copied goes through it */
#define CK_LOAD_COPIES 256 /* that are queued together */
#define CK_LOAD_INSIDE 4096 /* of a stretch, in the device's memory */
#define CK_LOAD_LINE 2048 /* elements that are cast together */
#define CK_LOAD_THREADS 64 /* of a pool, at most */
#define CK_LOAD_PARTS 2048 /* of a stretch, together */
#define CK_LOAD_ARENA (UINT64_C(20) << 20) /* bytes of parts of a window */
#define CK_LOAD_CELLS (UINT32_C(256) << 10) /* of items resolved together */

struct ck_load_wish {
	struct ck_load_item in; /* start, len and stride: own copies */
	uint8_t from, to; /* dtypes; the same: no cast */
	uint8_t elem, to_size; /* bytes of their elements */
	bool dense; /* row-major memory without gaps */
	bool slow; /* is read by the reader; under the pool's lock */
	_Atomic bool redo; /* a part could not be read */
	_Atomic bool failed;
	_Atomic uint64_t left; /* bytes, as stored, that are not settled */
	uint64_t bytes; /* of it, as stored */
	uint64_t slow_at; /* bytes given to threads; under the lock */
	/* Whole huge pages of its memory; empty: not to be populated. */
	uintptr_t huge, huge_end;
	_Atomic bool advised;
	int code; /* why it failed */
	char *why; /* or NULL: no memory for the line */
	const char *file; /* where, as struct ck_err has it */
	uint64_t off;
};

/* A segment in the order of its source, in the arena. */
struct ck_load_part {
	uint64_t off, end; /* in the source */
	uint64_t dst, run;
	uint32_t item, src;
	uint8_t nax, elem, xform, pad[5];
	struct ck_seg_axis ax[];
};

enum ck_load_phase { CK_LOAD_RESOLVE, CK_LOAD_PLAN, CK_LOAD_RUN, CK_LOAD_END };

/* Of stretches: what is left of a window; under the lock. */
struct ck_load_sweep {
	uint32_t next; /* part to be looked at */
	uint32_t nr_active, turn; /* parts that reach past @lo; those given */
	uint32_t src;
	uint64_t lo, hi;
};

struct ck_load {
	struct ck_load_pool *pool;
	struct ck_load *next; /* of the pool; under the lock, as what follows */
	enum ck_load_phase phase;
	unsigned busy, running; /* jobs: of the phase; all */
	size_t batch, batch_end, resolve_at; /* places in order */
	uint32_t *done, *slow; /* items, in order */
	size_t nr_done, nr_taken, nr_slow, slow_at;
	size_t bad; /* the first failed one; SIZE_MAX */
	int event; /* or -1 */
	bool started, finished, told_end, in_progress;
	int64_t told_ns;
	uint64_t touches; /* of files, before the first was read */
	pthread_cond_t changed;
	struct ck_load_sweep sweep;
	const struct ck_load_job *at[CK_LOAD_THREADS]; /* at stretches */
	unsigned nr_at;
	struct ck_err refusal; /* of all of it: nothing is done for it */

	_Atomic bool cancel;
	_Atomic uint64_t bytes_done, source_bytes, source_ops, slow_bytes, cast,
		prefaulted, ns_plan, ns_read, ns_copy, left_to_reader, direct,
		resident, by_device;
	_Atomic(const char *) why; /* the first note; or NULL */
	_Atomic uint8_t *drop; /* a source each; NULL: nothing is dropped */

	struct ck_err broken; /* the device; of the ring's thread */

	/* Does not change: */
	struct ck_share *share; /* NULL: nobody else reads for it */
	bool is_near; /* what is shared lies in the ring's device's memory */
	struct ck_ring *ring; /* NULL: memory of the host */
	uint64_t stretch; /* bytes of a file, by one thread */
	struct ck_reader *reader;
	const struct ck_catalog *img;
	int (*progress)(void *arg, uint64_t done, uint64_t total);
	void *arg;
	bool no_prefault;
	bool is_direct;
	bool no_dstore;
	bool deferred; /* something of the catalog is */
	struct ck_load_wish *item;
	size_t nr;
	uint64_t *dims; /* of items */
	uint32_t *order; /* of items, by where they begin */
	uint64_t total;

	/* Of who plans, and then of who runs: */
	size_t plan_at; /* in order */
	bool within; /* cur is in the middle of that item */
	uint64_t got; /* bytes of it that are planned */
	struct ck_cursor cur;
	unsigned char *arena;
	size_t arena_used, arena_room;
	uint32_t *part; /* place in the arena / 8, sorted */
	uint32_t *active;
	uint32_t nr_parts, max_parts;
};

/* A run of bytes of a source, to one place. */
struct ck_load_run {
	uint64_t off, len;
	unsigned char *dst;
	unsigned part;
};
/* The same bytes once more. */
struct ck_load_again {
	unsigned char *dst;
	const unsigned char *from;
	uint64_t len;
	unsigned part, of;
};

enum ck_load_what {
	CK_LOAD_DO_RESOLVE,
	CK_LOAD_DO_PLAN,
	CK_LOAD_DO_STRETCH,
	CK_LOAD_DO_SLOW
};

/* Of a source, what a stretch wants of it; read into a room of the device. */
struct ck_load_span {
	uint64_t lo, hi, wanted, copies, shortest; /* run */
	uint64_t room;
};

/* What a thread is at, and its buffers. */
struct ck_load_job {
	struct ck_load *load;
	enum ck_load_what what;
	size_t from, to; /* RESOLVE: in order; SLOW: from: the item */
	uint64_t lo, hi; /* STRETCH: of the source; SLOW: of the item */
	uint64_t ahead; /* STRETCH: what will be wanted next ends there */
	uint32_t src;
	unsigned nr; /* parts */
	uint32_t part[CK_LOAD_PARTS]; /* as load->part */
	bool bad[CK_LOAD_PARTS];
	unsigned nr_run, nr_again;
	struct ck_load_run run[CK_PLAN_RUNS];
	struct ck_load_again again[CK_PLAN_RUNS];
	struct ck_plan plan;
	uint64_t slot_used;
	unsigned char slot[CK_LOAD_SLOT + 64];
	unsigned char line[2][CK_LOAD_LINE * 8]; /* of a cast */
	unsigned char *direct; /* CK_DIRECT_ROOM bytes, once needed; or NULL */
	struct ck_ring_slot *ring_slot; /* NULL: it has none */
	uint64_t ring_used; /* bytes of it */
	struct ck_load_span span;
	enum ck_device_way way; /* of copies */
	unsigned nr_copies;
	struct ck_device_copy copies[CK_LOAD_COPIES]; /* to be queued */
};

/* new.c */
struct ck_load *ck_load_new(struct ck_load_pool *pool,
			    const struct ck_load_in *in);
/* Checks what is asked for, and has all memory that the load needs. */
int ck_load_prepare(struct ck_load *load, const struct ck_load_in *in,
		    size_t *bad, struct ck_err *err);
void ck_load_delete(struct ck_load *load);

/* item.c */
/* Checks all of @in and copies it; -EINVAL with *bad. */
int ck_load_items(struct ck_load *load, const struct ck_load_in *in,
		  size_t *bad, struct ck_err *err);
void ck_load_box(const struct ck_load *load, const struct ck_load_wish *w,
		 struct ck_box *box);
/* @n more bytes of item @i are settled; without the lock. */
void ck_load_settle(struct ck_load *load, uint32_t i, uint64_t n, bool bad);
/* Why item @i failed, the first time; without the lock. */
void ck_load_item_fail(struct ck_load *load, uint32_t i,
		       const struct ck_err *err);
/* pool.c: all of item @i is settled. */
void ck_load_item_done(struct ck_load *load, uint32_t i);
/* A slot was submitted; it landed, and what it held is settled. */
void ck_load_in_flight(struct ck_load *load);
void ck_load_landed(struct ck_load *load);
/* There may be work: a slot is free.  @pool: struct ck_load_pool. */
void ck_load_pool_wake(void *pool);

/* plan.c */
int ck_load_plan_new(struct ck_load *load, struct ck_err *err);
void ck_load_resolve(struct ck_load_job *job);
void ck_load_plan(struct ck_load *load);
/* Where the next stretch of the window begins; under the lock.  False: no more. */
bool ck_load_next_at(const struct ck_load *load, uint32_t *src, uint64_t *lo);
/* That stretch; under the lock.  False: no more. */
bool ck_load_take_stretch(struct ck_load *load, struct ck_load_job *job);
static inline const struct ck_load_part *ck_load_part(
	const struct ck_load *load, uint32_t at)
{
	return (const void *)(load->arena + (size_t)at * 8);
}

/* uncached.c */
struct ck_bytes;
/* The file past the page cache; -1, with a note: it cannot be had so. */
int ck_load_direct_fd(struct ck_load *load, const struct ck_bytes *b);
/* Reads the plan so; false: not one request of it was. */
bool ck_load_direct(struct ck_load_job *job, const struct ck_bytes *b);
/* Whether what is read of it is to be dropped; asked before it is read. */
bool ck_load_drops(struct ck_load *load, const struct ck_bytes *b);
void ck_load_drop(const struct ck_load_job *job, const struct ck_bytes *b);
/* For the statistics: @why, which lasts. */
static inline void ck_load_note(struct ck_load *load, const char *why)
{
	const char *none = NULL;

	atomic_compare_exchange_strong(&load->why, &none, why);
}

/* by_device.c */
/* All of the stretch was, and is copied; false: nothing of it. */
/*
 * Bytes of the source from its first to its last; 0: it does not go forward in both.
 * Adds how many copies with steps it is.
 */
uint64_t ck_load_span_of(const struct ck_seg *seg, uint64_t *copies);
bool ck_load_by_device(struct ck_load_job *job, const struct ck_bytes *b);
/* The same by direct reads into the slot of the ring, from where it is copied. */
bool ck_load_by_slot(struct ck_load_job *job, const struct ck_bytes *b);

/* together.c; where nothing is shared they do nothing */
int ck_load_together(struct ck_load *load, const struct ck_load_in *in,
		     struct ck_err *err);
/* The window's parts are wanted. */
void ck_load_post(struct ck_load *load);
/* Whether the next stretch may be taken, if there is one; under the lock. */
bool ck_load_arrived(struct ck_load *load);
/* Who is at a stretch, and is not; then what lies before all; under the lock. */
void ck_load_enter(struct ck_load *load, const struct ck_load_job *job);
void ck_load_leave(struct ck_load *load, const struct ck_load_job *job);
void ck_load_passed(struct ck_load *load);
/* False: the runs of the job are to be read. */
bool ck_load_copy_shared(struct ck_load_job *job, const struct ck_bytes *b);
/* All of the stretch lay in the device's memory, and is copied; false: nothing of it. */
bool ck_load_from_shared(struct ck_load_job *job, const struct ck_bytes *b);
/* pool.c; @load: struct ck_load */
void ck_load_changed(void *load);
void ck_load_refused(void *load, const struct ck_err *why);

/* stretch.c, slow.c */
/* It is copied as it is stored, in long runs. */
bool ck_load_is_straight(const struct ck_load_wish *w,
			 const struct ck_seg *seg);
typedef bool (*ck_load_piece_fn)(struct ck_load_job *job,
				 struct ck_load_wish *w,
				 const struct ck_seg *seg, unsigned part);
/* Calls @each with what of each part begins in [lo, hi); false: one said so. */
bool ck_load_each_piece(struct ck_load_job *job, uint64_t lo, uint64_t hi,
			ck_load_piece_fn each);
/*
 * Asks storage for bytes that are about to be read, and @more behind them, if they
 * are not in memory.
 */
void ck_load_ask(struct ck_load *load, int fd, uint64_t off, uint64_t len,
		 uint64_t more);
void ck_load_stretch(struct ck_load_job *job);
void ck_load_slow(struct ck_load_job *job);

/* deliver.c */
/*
 * Elements of item @w, along @nr axes (in bytes as stored) in runs of @run, from
 * @src to @dst bytes as stored from its first element.
 */
void ck_load_deliver(struct ck_load_job *job, const struct ck_load_wish *w,
		     const struct ck_seg_axis *ax, unsigned nr, uint64_t run,
		     const unsigned char *src, uint64_t dst);
/* The same to @to, in memory of the host. */
void ck_load_deliver_to(struct ck_load_job *job, const struct ck_load_wish *w,
			const struct ck_seg_axis *ax, unsigned nr, uint64_t run,
			const unsigned char *src, unsigned char *to);
/* Where in memory byte @dst, as stored, of @w is. */
unsigned char *ck_load_place(const struct ck_load_wish *w, uint64_t dst);
/* @seg is about to be written: fresh pages, as huge ones. */
void ck_load_populate(struct ck_load *load, struct ck_load_wish *w,
		      const struct ck_seg *seg);

/* device.c; all but the last three do nothing for memory of the host */
/* A slot for the job; false: none is free. */
bool ck_load_slot_try(struct ck_load *load, struct ck_load_job *job);
void ck_load_slot_leave(struct ck_load_job *job);
void ck_load_slot_begin(struct ck_load_job *job);
void ck_load_slot_end(struct ck_load_job *job);
/* Another slot; false: nothing is in this one yet. */
bool ck_load_slot_next(struct ck_load_job *job);
/* ck_load_settle() when the slot has landed; of the host, at once. */
void ck_load_settle_late(struct ck_load_job *job, uint32_t item, uint64_t n,
			 bool bad);
/* Where a piece of an item lies in the slot. */
struct ck_load_packed {
	unsigned char *mem; /* all of it, in the order of the device's memory */
	unsigned char *to; /* its first element along its axes */
	uint64_t first; /* bytes as stored between them */
	struct ck_seg_axis ax[CK_COPY_AXES]; /* with steps in the slot */
};
/* Elements along axes as in deliver(); false: the slot has not as much room. */
bool ck_load_pack(struct ck_load_job *job, const struct ck_load_wish *w,
		  const struct ck_seg_axis *ax, unsigned nr, uint64_t run,
		  struct ck_load_packed *out);
/* Queues copies of them from there to @dst bytes as stored from the first. */
void ck_load_send(struct ck_load_job *job, const struct ck_load_wish *w,
		  const struct ck_seg_axis *ax, unsigned nr, uint64_t run,
		  uint64_t dst, const struct ck_load_packed *packed);
/* The same of @seg from @src in the device's memory. */
void ck_load_send_from(struct ck_load_job *job, const struct ck_load_wish *w,
		       const struct ck_seg *seg, uint64_t src);
/* What is sent from now on comes from the device's memory. */
void ck_load_slot_inside(struct ck_load_job *job);
/* Until what was sent is there. */
void ck_load_slot_wait(struct ck_load_job *job);
/* A room of the device, which is let go once the slot has landed. */
void ck_load_slot_room(struct ck_load_job *job, uint64_t room);
/* deliver(), by way of the slot; not more than an eighth of it. */
void ck_load_put(struct ck_load_job *job, const struct ck_load_wish *w,
		 const struct ck_seg_axis *ax, unsigned nr, uint64_t run,
		 const unsigned char *src, uint64_t dst);

static inline void ck_load_add(_Atomic uint64_t *stat, uint64_t n)
{
	atomic_fetch_add_explicit(stat, n, memory_order_relaxed);
}

#endif
