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
 */
#include "fs/ahead.h"

#include "core/base/check.h"
#include "fs/buf.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LEAST (128u << 10) /* smaller blocks are not worth a wake-up */
#define PIECE ((size_t)256 << 10) /* smaller pieces are not worth a plan */
#define MAX_THREADS 4

int64_t fs_ahead_fresh_ns = 50000000;

enum state { IDLE, QUEUED, FILLING, READY };

struct fs_stream {
	struct fs_ahead *a;
	const struct ck_view *v;
	uint32_t nr;
	struct fs_stream *next; /* in the queue */
	struct fs_stream *after, **at; /* among all that are open */
	enum state state;
	uint64_t expect; /* where the last request ended */
	uint64_t off;
	size_t len;
	size_t given; /* bytes of it that somebody has fetched, or fetches */
	unsigned busy; /* how many do */
	bool bad; /* a piece is */
	uint64_t seq; /* of writes, when it was fetched */
	char *buf; /* FILLING, READY */
	int64_t filled_ns;
};

struct fs_ahead {
	pthread_mutex_t lock;
	pthread_cond_t work, filled;
	struct fs_stream *first, **last; /* not all of it is given */
	struct fs_stream *open;
	unsigned nr;
	pthread_t thread[MAX_THREADS];
	bool end;
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Under the lock. */
static void unqueue(struct fs_ahead *a, struct fs_stream *s)
{
	struct fs_stream **at = &a->first;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	if (!*at)
		a->last = at;
}

/* Under the lock; what is not given yet is not fetched any more. */
static void forget(struct fs_ahead *a, struct fs_stream *s)
{
	unqueue(a, s);
	s->given = s->len;
	s->bad = true;
}

/* Under the lock: a queued block is begun, or dropped. */
static bool begin(struct fs_ahead *a, struct fs_stream *s)
{
	s->seq = ck_ckpt_write_seq(s->v->ck);
	s->given = 0;
	s->busy = 0;
	s->bad = false;
	s->buf = fs_buf_get();
	s->state = s->buf ? FILLING : IDLE;
	if (!s->buf)
		unqueue(a, s);
	return s->buf;
}

/* Under the lock: all of a block is fetched, or what was begun of it. */
static void finish(struct fs_ahead *a, struct fs_stream *s)
{
	if (s->bad) {
		fs_buf_put(s->buf);
		s->buf = NULL;
	}
	s->filled_ns = now_ns();
	s->state = s->buf ? READY : IDLE;
	pthread_cond_broadcast(&a->filled);
}

/* Under the lock, which is given up meanwhile: a piece of a block. */
static void fetch_piece(struct fs_ahead *a, struct fs_stream *s)
{
	size_t at = s->given, left = s->len - at;
	size_t len = CK_MIN(left, CK_MAX(PIECE, left / 2));
	bool bad;

	s->given += len;
	s->busy++;
	if (s->given == s->len)
		unqueue(a, s);
	pthread_mutex_unlock(&a->lock);
	bad = ck_view_read(s->v, s->nr, s->buf + at, len, s->off + at, NULL);
	pthread_mutex_lock(&a->lock);
	s->busy--;
	if (bad && !s->bad && s->given < s->len)
		forget(a, s);
	s->bad = s->bad || bad;
	if (!s->busy && s->given == s->len)
		finish(a, s);
}

static void *run(void *ctx)
{
	struct fs_ahead *a = ctx;

	pthread_mutex_lock(&a->lock);
	while (!a->end) {
		struct fs_stream *s = a->first;

		if (!s)
			pthread_cond_wait(&a->work, &a->lock);
		else if (s->state == FILLING || begin(a, s))
			fetch_piece(a, s);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

/* Half of the processors: the requests themselves need the others. */
static unsigned threads(void)
{
	long nr = sysconf(_SC_NPROCESSORS_ONLN) / 2;

	return (unsigned)CK_MAX(1, CK_MIN(nr, MAX_THREADS));
}

static void stop(struct fs_ahead *a)
{
	pthread_mutex_lock(&a->lock);
	a->end = true;
	pthread_cond_broadcast(&a->work);
	pthread_mutex_unlock(&a->lock);
	while (a->nr)
		pthread_join(a->thread[--a->nr], NULL);
}

struct fs_ahead *fs_ahead_new(void)
{
	struct fs_ahead *a = calloc(1, sizeof(*a));
	unsigned nr = threads();

	if (!a)
		return NULL;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->work, NULL);
	pthread_cond_init(&a->filled, NULL);
	a->last = &a->first;
	while (a->nr < nr && !pthread_create(&a->thread[a->nr], NULL, run, a))
		a->nr++;
	if (a->nr)
		return a;
	free(a);
	return NULL;
}

void fs_ahead_free(struct fs_ahead *a)
{
	if (!a)
		return;
	stop(a);
	while (a->open) /* a lost mount closes no files */
		fs_stream_close(a->open);
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->work);
	pthread_cond_destroy(&a->filled);
	free(a);
}

struct fs_stream *fs_stream_open(struct fs_ahead *a, const struct ck_view *v,
				 uint32_t nr)
{
	struct fs_stream *s = a ? calloc(1, sizeof(*s)) : NULL;

	if (s) {
		s->a = a;
		s->v = v;
		s->nr = nr;
		s->expect = UINT64_MAX;
		pthread_mutex_lock(&a->lock);
		s->at = &a->open;
		s->after = a->open;
		if (s->after)
			s->after->at = &s->after;
		a->open = s;
		pthread_mutex_unlock(&a->lock);
	}
	return s;
}

/* Under the lock. */
static void drop_queued(struct fs_stream *s)
{
	if (s->state != QUEUED)
		return;
	unqueue(s->a, s);
	s->state = IDLE;
}

void fs_stream_close(struct fs_stream *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->a->lock);
	drop_queued(s);
	if (s->state == FILLING && s->given < s->len)
		forget(s->a, s);
	if (s->state == FILLING && !s->busy)
		finish(s->a, s);
	while (s->state == FILLING)
		pthread_cond_wait(&s->a->filled, &s->a->lock);
	*s->at = s->after;
	if (s->after)
		s->after->at = s->at;
	pthread_mutex_unlock(&s->a->lock);
	fs_buf_put(s->buf);
	free(s);
}

/* Under the lock: what was fetched, if it is what is wanted, and fresh. */
static void *take_ready(struct fs_stream *s, uint64_t off, size_t len,
			void **old)
{
	bool good = s->off == off && s->len == len &&
		    now_ns() - s->filled_ns < fs_ahead_fresh_ns &&
		    s->seq == ck_ckpt_write_seq(s->v->ck);
	void *buf = s->buf;

	s->buf = NULL;
	s->state = IDLE;
	*old = good ? NULL : buf;
	return good ? buf : NULL;
}

/* Under the lock: until the block is there, if it is being fetched. */
static void help(struct fs_stream *s, uint64_t off, size_t len)
{
	while (s->state == FILLING && s->off == off && s->len == len)
		if (s->given < s->len)
			fetch_piece(s->a, s);
		else
			pthread_cond_wait(&s->a->filled, &s->a->lock);
}

void *fs_stream_take(struct fs_stream *s, uint64_t off, size_t len)
{
	void *buf = NULL, *old = NULL;

	if (!s || len < LEAST)
		return NULL;
	pthread_mutex_lock(&s->a->lock);
	help(s, off, len);
	drop_queued(s);
	if (s->state == READY)
		buf = take_ready(s, off, len, &old);
	pthread_mutex_unlock(&s->a->lock);
	fs_buf_put(old);
	return buf;
}

void fs_stream_next(struct fs_stream *s, uint64_t off, size_t len,
		    uint64_t size)
{
	uint64_t next = off + len;

	if (!s || len < LEAST)
		return;
	pthread_mutex_lock(&s->a->lock);
	if (s->expect == off && next < size && s->state == IDLE) {
		s->state = QUEUED;
		s->off = next;
		s->len = (size_t)CK_MIN(len, size - next);
		s->next = NULL;
		*s->a->last = s;
		s->a->last = &s->next;
		pthread_cond_signal(&s->a->work);
	}
	s->expect = next;
	pthread_mutex_unlock(&s->a->lock);
}
