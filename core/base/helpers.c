/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/helpers.h"

#include "core/base/check.h"
#include "core/base/clock.h"

#include <sched.h>

void ck_helpers_init(struct ck_helpers *h, const struct ck_helpers_in *in,
		     void *ctx, bool look)
{
	*h = (struct ck_helpers){ .in = in, .ctx = ctx, .look = look };
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->wake, NULL);
}

/* Under the lock, which it gives up: until there is work, or the end. */
static void await(struct ck_helpers *h, int64_t idle_since, bool may_look)
{
	if (may_look) {
		pthread_mutex_unlock(&h->lock);
		while (!h->in->has_work(h->ctx) &&
		       ck_now_ns() - idle_since < CK_HELPERS_LOOK_NS)
			sched_yield();
		pthread_mutex_lock(&h->lock);
	}
	while (!h->in->has_work(h->ctx) && !h->end)
		pthread_cond_wait(&h->wake, &h->lock);
}

static void *run(void *ctx)
{
	struct ck_helpers *h = ctx;
	int64_t idle_since = ck_now_ns();
	bool soon = false; /* the last piece came while it was looked for */

	pthread_mutex_lock(&h->lock);
	for (;;) {
		if (h->in->work(h->ctx)) {
			idle_since = ck_now_ns();
			continue;
		}
		if (h->end)
			break;
		await(h, idle_since, soon && h->look);
		soon = ck_now_ns() - idle_since < CK_HELPERS_LOOK_NS;
	}
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

unsigned ck_helpers_start(struct ck_helpers *h, unsigned nr)
{
	nr = CK_MIN(nr, CK_HELPERS_MAX);
	while (h->nr < nr && !pthread_create(&h->thread[h->nr], NULL, run, h))
		h->nr++;
	return h->nr;
}

void ck_helpers_stop(struct ck_helpers *h)
{
	pthread_mutex_lock(&h->lock);
	h->end = true;
	pthread_cond_broadcast(&h->wake);
	pthread_mutex_unlock(&h->lock);
	while (h->nr)
		pthread_join(h->thread[--h->nr], NULL);
}

void ck_helpers_free(struct ck_helpers *h)
{
	ck_helpers_stop(h);
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->lock);
}

/* ---- whether somebody waits ---- */

#define LOOK_NS 100000000

int64_t ck_stop_after_ms = 1000;

static _Thread_local struct {
	bool (*stopped)(void *ctx);
	void *ctx;
	int64_t since_ms; /* of the first question; 0: none yet */
} mine;

void ck_stop_by(bool (*stopped)(void *ctx), void *ctx)
{
	mine.stopped = stopped;
	mine.ctx = ctx;
	mine.since_ms = 0;
}

bool ck_stopped(void)
{
	int64_t now;

	if (!mine.stopped)
		return false;
	now = ck_now_ms();
	if (!mine.since_ms)
		mine.since_ms = now;
	return now - mine.since_ms >= ck_stop_after_ms &&
	       mine.stopped(mine.ctx);
}

bool ck_stop_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
	struct timespec t;

	if (ck_stopped())
		return false;
	t = ck_deadline(CLOCK_REALTIME, LOOK_NS);
	pthread_cond_timedwait(cond, lock, &t);
	return true;
}
