/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead.c - one thread that fetches blocks before they are asked for
 *
 *   IDLE --next--> QUEUED --thread--> FILLING --thread--> READY
 *     ^----take-----+  (the request is quicker)             |
 *     ^----take, or too old, or another place---------------+
 */
#include "fs/ahead.h"

#include "core/base/check.h"
#include "fs/buf.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#define LEAST (128u << 10) /* smaller blocks are not worth a wake-up */

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
	uint64_t seq; /* of writes, when it was fetched */
	void *buf; /* READY */
	int64_t filled_ns;
};

struct fs_ahead {
	pthread_mutex_t lock;
	pthread_cond_t work, filled;
	struct fs_stream *first, **last, *open;
	pthread_t thread;
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
	s->state = IDLE;
}

/* Under the lock, which is given up meanwhile. */
static void fill(struct fs_ahead *a, struct fs_stream *s)
{
	void *buf;

	unqueue(a, s);
	s->state = FILLING;
	s->seq = ck_ckpt_write_seq(s->v->ck);
	pthread_mutex_unlock(&a->lock);
	buf = fs_buf_get();
	if (buf && ck_view_read(s->v, s->nr, buf, s->len, s->off, NULL)) {
		fs_buf_put(buf);
		buf = NULL;
	}
	pthread_mutex_lock(&a->lock);
	s->buf = buf;
	s->filled_ns = now_ns();
	s->state = buf ? READY : IDLE;
	pthread_cond_broadcast(&a->filled);
}

static void *run(void *ctx)
{
	struct fs_ahead *a = ctx;

	pthread_mutex_lock(&a->lock);
	while (!a->end) {
		if (a->first)
			fill(a, a->first);
		else
			pthread_cond_wait(&a->work, &a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

struct fs_ahead *fs_ahead_new(void)
{
	struct fs_ahead *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->work, NULL);
	pthread_cond_init(&a->filled, NULL);
	a->last = &a->first;
	if (!pthread_create(&a->thread, NULL, run, a))
		return a;
	free(a);
	return NULL;
}

void fs_ahead_free(struct fs_ahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->end = true;
	pthread_cond_signal(&a->work);
	pthread_mutex_unlock(&a->lock);
	pthread_join(a->thread, NULL);
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

void fs_stream_close(struct fs_stream *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->a->lock);
	if (s->state == QUEUED)
		unqueue(s->a, s);
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

void *fs_stream_take(struct fs_stream *s, uint64_t off, size_t len)
{
	void *buf = NULL, *old = NULL;

	if (!s || len < LEAST)
		return NULL;
	pthread_mutex_lock(&s->a->lock);
	while (s->state == FILLING && s->off == off && s->len == len)
		pthread_cond_wait(&s->a->filled, &s->a->lock);
	if (s->state == QUEUED)
		unqueue(s->a, s);
	else if (s->state == READY)
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
