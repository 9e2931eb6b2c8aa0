/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead.c - threads that fetch blocks before they are asked for
 *
 *   IDLE --next--> QUEUED --a thread--> FILLING --the last piece--> READY
 *     ^----take------+  (the request is quicker)                      |
 *     ^----take, or too old, or another place-------------------------+
 *
 * A block is fetched in pieces, each by whoever comes for it: a request that
 * needs the block while it is FILLING fetches pieces of it too.  Each takes
 * half of what is left, so that one that is alone has few and all end together.
 * Of a file that is kept a block is one piece, for its copy fills up by whole ones;
 * and none that the copy has is fetched.
 */
#include "fs/cache/ahead.h"

#include "core/base/check.h"
#include "core/base/cpus.h"
#include "core/base/helpers.h"
#include "fs/kernel/buf.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#define LEAST (128u << 10) /* smaller blocks are not worth a wake-up */
#define PIECE ((size_t)256 << 10) /* smaller pieces are not worth a plan */
#define DEPTH 2 /* blocks of a file */
#define PLENTY 8 /* of all files: then one of each has to do */

int64_t fs_ahead_fresh_ns = 50000000;

enum state { IDLE, QUEUED, FILLING, READY };

struct block {
	struct fs_stream *of;
	struct block *next; /* in the queue */
	enum state state;
	uint64_t off;
	size_t len;
	size_t given; /* bytes of it that somebody has fetched, or fetches */
	unsigned busy; /* how many do */
	_Atomic bool bad; /* a piece is, or nobody waits for it any more */
	uint64_t seq; /* of writes, when it was fetched */
	char *buf; /* FILLING, READY */
	int64_t filled_ns;
};

struct fs_stream {
	struct fs_ahead *a;
	const struct ck_view *v;
	uint32_t nr;
	struct fs_copy *copy; /* NULL: of the shards alone */
	uint64_t expect; /* where the last request ended; at first 0 */
	struct block block[DEPTH];
};

struct fs_ahead {
	struct ck_helpers threads;
	pthread_cond_t filled;
	struct block *first, **last; /* not all of it is given */
	_Atomic unsigned nr_queued; /* read without the lock, too */
	unsigned nr_held; /* blocks that are not idle */
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Under the lock. */
static void be_idle(struct block *b)
{
	b->state = IDLE;
	b->of->a->nr_held--;
}

/* Under the lock. */
static void unqueue(struct fs_ahead *a, struct block *b)
{
	struct block **at = &a->first;

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	a->nr_queued--;
	if (!*at)
		a->last = at;
}

/* Under the lock; what is not given yet is not fetched any more. */
static void forget(struct fs_ahead *a, struct block *b)
{
	unqueue(a, b);
	b->given = b->len;
	b->bad = true;
}

static bool is_kept(const struct fs_stream *s, uint64_t off, size_t len)
{
	return s->copy && fs_copy_has(s->copy, len, off);
}

/* Under the lock: a queued block is begun, or dropped. */
static bool begin(struct fs_ahead *a, struct block *b)
{
	if (is_kept(b->of, b->off, b->len)) {
		unqueue(a, b);
		be_idle(b);
		return false;
	}
	b->seq = ck_ckpt_write_seq(b->of->v->ck);
	b->given = 0;
	b->busy = 0;
	b->bad = false;
	b->buf = fs_buf_get();
	b->state = FILLING;
	if (!b->buf) {
		unqueue(a, b);
		be_idle(b);
	}
	return b->buf;
}

/* Under the lock: all of a block is fetched, or what was begun of it. */
static void finish(struct fs_ahead *a, struct block *b)
{
	if (b->bad) {
		fs_buf_put(b->buf);
		b->buf = NULL;
	}
	b->filled_ns = now_ns();
	b->state = READY;
	if (!b->buf)
		be_idle(b);
	pthread_cond_broadcast(&a->filled);
}

/* Under the lock, which is given up meanwhile: a piece of a block. */
static void fetch_piece(struct fs_ahead *a, struct block *b)
{
	size_t at = b->given, left = b->len - at;
	size_t len = b->of->copy ? left : CK_MIN(left, CK_MAX(PIECE, left / 2));
	bool bad;

	b->given += len;
	b->busy++;
	if (b->given == b->len)
		unqueue(a, b);
	pthread_mutex_unlock(&a->threads.lock);
	bad = fs_copy_read(b->of->copy, b->of->v, b->of->nr, b->buf + at, len,
			   b->off + at, NULL);
	pthread_mutex_lock(&a->threads.lock);
	b->busy--;
	if (bad && !b->bad && b->given < b->len)
		forget(a, b);
	b->bad = b->bad || bad;
	if (!b->busy && b->given == b->len)
		finish(a, b);
}

static bool is_bad(void *ctx)
{
	struct block *b = ctx;

	return b->bad;
}

static bool has_block(void *ctx)
{
	struct fs_ahead *a = ctx;

	return a->nr_queued;
}

static bool fetch_some(void *ctx)
{
	struct fs_ahead *a = ctx;
	struct block *b = a->first;

	if (!b || a->threads.end)
		return false;
	if (b->state == FILLING || begin(a, b)) {
		ck_stop_by(is_bad, b);
		fetch_piece(a, b);
		ck_stop_by(NULL, NULL);
	}
	return true;
}

static const struct ck_helpers_in fetching = {
	.work = fetch_some,
	.has_work = has_block,
};

/* Half of the processors: the requests themselves need the others. */
static unsigned suitable(unsigned processors)
{
	return CK_MAX(1U, processors / 2);
}

struct fs_ahead *fs_ahead_new(unsigned threads)
{
	struct fs_ahead *a = calloc(1, sizeof(*a));
	unsigned processors = ck_cpus();

	if (!a)
		return NULL;
	ck_helpers_init(&a->threads, &fetching, a, processors > 1);
	pthread_cond_init(&a->filled, NULL);
	a->last = &a->first;
	if (ck_helpers_start(&a->threads,
			     threads ? threads : suitable(processors)))
		return a;
	fs_ahead_free(a);
	return NULL;
}

void fs_ahead_free(struct fs_ahead *a)
{
	if (!a)
		return;
	ck_helpers_stop(&a->threads);
	ck_helpers_free(&a->threads);
	pthread_cond_destroy(&a->filled);
	free(a);
}

struct fs_stream *fs_stream_open(struct fs_ahead *a, const struct ck_view *v,
				 uint32_t nr, struct fs_copy *copy)
{
	struct fs_stream *s = a ? calloc(1, sizeof(*s)) : NULL;

	if (s) {
		s->a = a;
		s->v = v;
		s->nr = nr;
		s->copy = copy;
		for (unsigned i = 0; i < DEPTH; i++)
			s->block[i].of = s;
	}
	return s;
}

/* Under the lock: what nobody has begun is not fetched. */
static void drop_queued(struct block *b)
{
	if (b->state != QUEUED)
		return;
	unqueue(b->of->a, b);
	be_idle(b);
}

/* Under the lock, which is given up meanwhile: until nobody fetches any. */
static void cancel(struct fs_stream *s)
{
	struct fs_ahead *a = s->a;

	for (unsigned i = 0; i < DEPTH; i++) {
		struct block *b = &s->block[i];

		drop_queued(b);
		if (b->state == FILLING && b->given < b->len)
			forget(a, b);
		if (b->state == FILLING && !b->busy)
			finish(a, b);
		else if (b->state == FILLING)
			b->bad = true;
	}
	for (unsigned i = 0; i < DEPTH; i++) {
		while (s->block[i].state == FILLING)
			pthread_cond_wait(&a->filled, &a->threads.lock);
		if (s->block[i].state == READY)
			be_idle(&s->block[i]);
	}
}

void fs_stream_close(struct fs_stream *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->a->threads.lock);
	cancel(s);
	pthread_mutex_unlock(&s->a->threads.lock);
	for (unsigned i = 0; i < DEPTH; i++)
		fs_buf_put(s->block[i].buf);
	free(s);
}

/* Under the lock: the block there that is not idle. */
static struct block *find(struct fs_stream *s, uint64_t off)
{
	for (unsigned i = 0; i < DEPTH; i++)
		if (s->block[i].state != IDLE && s->block[i].off == off)
			return &s->block[i];
	return NULL;
}

/* Under the lock: what was fetched, and whether it is fresh. */
static void *take_ready(struct block *b, bool *fresh)
{
	void *buf = b->buf;

	*fresh = now_ns() - b->filled_ns < fs_ahead_fresh_ns &&
		 b->seq == ck_ckpt_write_seq(b->of->v->ck);
	b->buf = NULL;
	be_idle(b);
	return buf;
}

/*
 * Under the lock: until the block is there, if it is being fetched, or nobody
 * waits for it any more.
 */
static void help(struct block *b, uint64_t off, size_t len)
{
	struct fs_ahead *a = b->of->a;

	while (b->state == FILLING && b->off == off && b->len == len) {
		if (b->given < b->len) {
			fetch_piece(a, b);
		} else if (!ck_stop_wait(&a->filled, &a->threads.lock)) {
			b->bad = true;
			return;
		}
	}
}

/* Under the lock: all but the block at @keep; what is ready, to be freed. */
static void drop_others(struct fs_stream *s, uint64_t keep, void **old)
{
	bool fresh;

	for (unsigned i = 0; i < DEPTH; i++) {
		struct block *b = &s->block[i];

		if (b->off == keep)
			continue;
		drop_queued(b);
		if (b->state == READY)
			old[i] = take_ready(b, &fresh);
	}
}

void *fs_stream_take(struct fs_stream *s, uint64_t off, size_t len)
{
	void *old[DEPTH + 1] = { NULL }, *buf = NULL;
	struct block *b;
	bool fresh = false;

	if (!s || len < LEAST)
		return NULL;
	pthread_mutex_lock(&s->a->threads.lock);
	b = find(s, off);
	if (b)
		help(b, off, len);
	if (b && b->state == READY && b->off == off && b->len == len)
		buf = take_ready(b, &fresh);
	if (!fresh) {
		old[DEPTH] = buf;
		buf = NULL;
	}
	drop_others(s, off + len, old);
	pthread_mutex_unlock(&s->a->threads.lock);
	for (unsigned i = 0; i <= DEPTH; i++)
		fs_buf_put(old[i]);
	return buf;
}

/* Under the lock: has a block fetched, unless it is or there is no room. */
static void want(struct fs_stream *s, uint64_t off, size_t len)
{
	struct fs_ahead *a = s->a;
	unsigned i = 0;

	while (i < DEPTH && s->block[i].state != IDLE)
		i++;
	if (i == DEPTH || find(s, off) || is_kept(s, off, len))
		return;
	s->block[i] = (struct block){
		.of = s, .state = QUEUED, .off = off, .len = len
	};
	*a->last = &s->block[i];
	a->last = &s->block[i].next;
	a->nr_queued++;
	a->nr_held++;
	pthread_cond_signal(&a->threads.wake);
}

void fs_stream_next(struct fs_stream *s, uint64_t off, size_t len,
		    uint64_t size)
{
	uint64_t next = off + len, end = next + DEPTH * len;

	if (!s || len < LEAST)
		return;
	pthread_mutex_lock(&s->a->threads.lock);
	if (s->expect == off && s->a->nr_held >= PLENTY)
		end = next + len;
	for (; s->expect == off && next < CK_MIN(size, end); next += len)
		want(s, next, (size_t)CK_MIN(len, size - next));
	s->expect = off + len;
	pthread_mutex_unlock(&s->a->threads.lock);
}
