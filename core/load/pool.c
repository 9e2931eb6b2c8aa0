/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.c - the threads of a pool, what each does next, and the calls of load.h
 *
 * One lock guards who does what; jobs are some milliseconds long.  Several loads
 * of a pool are served in turns.
 */
#include "core/load/load_priv.h"

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/cpus.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RESOLVE_ITEMS 8
#define SLOW_BYTES (UINT64_C(8) << 20) /* of an item, by one thread */
#define TELL_NS INT64_C(100000000)

struct ck_load_pool {
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct ck_load *loads; /* the one to be served next is the first */
	unsigned nr;
	bool stop;
	struct worker {
		pthread_t thread;
		struct ck_load_pool *pool;
		struct ck_load_job *job;
	} v[CK_LOAD_THREADS];
};

/* ---- what is to be done; under the lock ---- */

static bool take_resolve(struct ck_load *load, struct ck_load_job *job)
{
	if (load->resolve_at >= load->batch_end)
		return false;
	job->what = CK_LOAD_DO_RESOLVE;
	job->from = load->resolve_at;
	job->to = CK_MIN(job->from + RESOLVE_ITEMS, load->batch_end);
	load->resolve_at = job->to;
	return true;
}

static void begin_batch(struct ck_load *load)
{
	uint64_t cells = 0;
	size_t at = load->batch_end;

	load->batch = load->resolve_at = at;
	while (at < load->nr && (at == load->batch || cells < CK_LOAD_CELLS)) {
		uint32_t tensor = load->item[load->order[at++]].in.tensor;

		cells += load->img->tensors[tensor].nr;
	}
	load->batch_end = at;
	if (!load->deferred)
		load->resolve_at = at;
	load->phase = load->batch < at ? CK_LOAD_RESOLVE : CK_LOAD_END;
	if (load->phase == CK_LOAD_END && load->share)
		ck_share_end(load->share);
}

/* A job of the phase; or, once all of the phase are done, of the next. */
static bool take_phase(struct ck_load *load, struct ck_load_job *job)
{
	while (load->phase != CK_LOAD_END) {
		if (load->phase == CK_LOAD_RESOLVE && take_resolve(load, job))
			return true;
		if (load->phase == CK_LOAD_RUN) {
			if (!ck_load_arrived(load) ||
			    !ck_load_slot_try(load, job))
				return false;
			if (ck_load_take_stretch(load, job)) {
				ck_load_enter(load, job);
				return true;
			}
			ck_load_slot_leave(job);
		}
		if (load->busy)
			return false;
		if (load->phase == CK_LOAD_RESOLVE) {
			load->phase = CK_LOAD_PLAN;
			job->what = CK_LOAD_DO_PLAN;
			return true;
		}
		if (load->phase == CK_LOAD_PLAN) {
			load->phase = CK_LOAD_RUN;
		} else if (load->plan_at < load->batch_end) {
			load->phase = CK_LOAD_PLAN;
			job->what = CK_LOAD_DO_PLAN;
			return true;
		} else {
			begin_batch(load);
		}
	}
	return false;
}

static bool take_slow(struct ck_load *load, struct ck_load_job *job)
{
	struct ck_load_wish *w;

	if (load->slow_at == load->nr_slow || !ck_load_slot_try(load, job))
		return false;
	job->what = CK_LOAD_DO_SLOW;
	job->from = load->slow[load->slow_at];
	w = &load->item[job->from];
	job->lo = w->slow_at;
	job->hi = CK_MIN(w->bytes, job->lo + SLOW_BYTES / w->elem * w->elem);
	w->slow_at = job->hi;
	if (job->hi == w->bytes)
		load->slow_at++;
	return true;
}

static bool take(struct ck_load_pool *pool, struct ck_load_job *job)
{
	for (struct ck_load **at = &pool->loads; *at; at = &(*at)->next) {
		struct ck_load *load = *at, **last = at;

		if (load->cancel || load->finished)
			continue;
		job->load = load;
		if (take_phase(load, job))
			load->busy++;
		else if (!take_slow(load, job))
			continue;
		load->running++;
		*at = load->next; /* the others come first now */
		while (*last)
			last = &(*last)->next;
		load->next = NULL;
		*last = load;
		return true;
	}
	return false;
}

/* ---- what was done ---- */

static void run(struct ck_load_job *job)
{
	switch (job->what) {
	case CK_LOAD_DO_RESOLVE:
		ck_load_resolve(job);
		break;
	case CK_LOAD_DO_PLAN:
		ck_load_plan(job->load);
		break;
	case CK_LOAD_DO_STRETCH:
		ck_load_stretch(job);
		break;
	case CK_LOAD_DO_SLOW:
		ck_load_slow(job);
		break;
	}
}

static void wake(struct ck_load *load)
{
	uint64_t one = 1;

	pthread_cond_broadcast(&load->changed);
	if (load->event >= 0 && write(load->event, &one, sizeof(one)) < 0)
		return; /* it is readable */
}

/* Calls progress() where it is time to; the lock is given up meanwhile. */
static void tell(struct ck_load *load, struct ck_load_pool *pool)
{
	bool end = load->nr_done == load->nr;
	int64_t now = ck_now_ns();
	uint64_t done = CK_MIN(load->bytes_done, load->total);

	if (!load->progress || load->in_progress || load->told_end ||
	    load->cancel || (!end && now - load->told_ns < TELL_NS))
		return;
	load->in_progress = true;
	load->told_end = end;
	load->told_ns = now;
	load->running++;
	pthread_mutex_unlock(&pool->lock);
	if (load->progress(load->arg, end ? load->total : done, load->total))
		load->cancel = true;
	pthread_mutex_lock(&pool->lock);
	load->running--;
	load->in_progress = false;
}

static void finish(struct ck_load *load)
{
	bool all = load->nr_done == load->nr;

	if (load->share && all)
		ck_share_end(load->share);
	else if (load->share && load->cancel)
		ck_share_abort(load->share);
	/* Who wants nothing learns whether the others were refused. */
	if (load->share && !load->nr && !load->cancel &&
	    !ck_share_is_over(load->share))
		return;
	if (load->running || load->finished || (!all && !load->cancel))
		return;
	load->finished = true;
	wake(load);
}

static void end_one(struct ck_load_pool *pool, struct ck_load *load)
{
	load->running--;
	do
		tell(load, pool);
	while (load->progress && load->nr_done == load->nr && !load->told_end &&
	       !load->in_progress && !load->cancel);
	finish(load);
}

static void did(struct ck_load_pool *pool, const struct ck_load_job *job)
{
	struct ck_load *load = job->load;

	if (job->what == CK_LOAD_DO_STRETCH)
		ck_load_leave(load, job);
	if (job->what == CK_LOAD_DO_STRETCH || job->what == CK_LOAD_DO_PLAN)
		ck_load_passed(load);
	if (job->what != CK_LOAD_DO_SLOW && !--load->busy)
		pthread_cond_broadcast(&pool->work);
	end_one(pool, load);
}

/* Whether the calling thread is one of a pool's, which must not wait for it. */
static _Thread_local bool in_pool;
/* What it works for; NULL: nothing. */
static _Thread_local const struct ck_load *mine;

bool ck_load_is_cancelled(void)
{
	return mine && mine->cancel;
}

static int deadlock(struct ck_err *err)
{
	return ck_fail(err, EDEADLK,
		       "progress() may not wait for a load, nor free one");
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct ck_load_pool *pool = w->pool;

	in_pool = true;
	pthread_mutex_lock(&pool->lock);
	while (!pool->stop) {
		if (!take(pool, w->job)) {
			pthread_cond_wait(&pool->work, &pool->lock);
			continue;
		}
		pthread_mutex_unlock(&pool->lock);
		mine = w->job->load;
		run(w->job);
		mine = NULL;
		pthread_mutex_lock(&pool->lock);
		did(pool, w->job);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

void ck_load_item_done(struct ck_load *load, uint32_t i)
{
	struct ck_load_wish *w = &load->item[i];
	struct ck_load_pool *pool = load->pool;

	pthread_mutex_lock(&pool->lock);
	if (w->redo && !w->slow && w->bytes) {
		w->slow = true;
		w->left = w->bytes;
		load->slow[load->nr_slow++] = i;
		ck_load_add(&load->left_to_reader, 1);
		pthread_cond_broadcast(&pool->work);
	} else {
		load->done[load->nr_done++] = i;
		if (w->failed && !w->in.optional && load->bad == SIZE_MAX)
			load->bad = i;
		wake(load);
	}
	pthread_mutex_unlock(&pool->lock);
}

void ck_load_in_flight(struct ck_load *load)
{
	pthread_mutex_lock(&load->pool->lock);
	load->running++;
	pthread_mutex_unlock(&load->pool->lock);
}

/* By the ring's thread, in which progress() may be called then. */
void ck_load_landed(struct ck_load *load)
{
	struct ck_load_pool *pool = load->pool;

	in_pool = true;
	pthread_mutex_lock(&pool->lock);
	end_one(pool, load);
	pthread_mutex_unlock(&pool->lock);
}

void ck_load_pool_wake(void *arg)
{
	struct ck_load_pool *pool = arg;

	pthread_mutex_lock(&pool->lock);
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
}

void ck_load_changed(void *arg)
{
	struct ck_load *load = arg;
	struct ck_load_pool *pool = load->pool;

	pthread_mutex_lock(&pool->lock);
	if (load->started)
		finish(load);
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
}

void ck_load_refused(void *arg, const struct ck_err *why)
{
	struct ck_load *load = arg;

	pthread_mutex_lock(&load->pool->lock);
	load->refusal = *why;
	load->cancel = true;
	pthread_mutex_unlock(&load->pool->lock);
}

/* ---- the pool ---- */

/* Signals of the process are not for these threads. */
static int start(struct ck_load_pool *pool, unsigned threads)
{
	sigset_t all, was;
	int ret = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	while (!ret && pool->nr < threads) {
		struct worker *w = &pool->v[pool->nr];

		w->pool = pool;
		w->job = malloc(sizeof(*w->job));
		if (w->job) {
			w->job->direct = NULL;
			w->job->ring_slot = NULL;
		}
		ret = w->job ? pthread_create(&w->thread, NULL, work, w) :
			       ENOMEM;
		if (ret)
			free(w->job);
		else
			pool->nr++;
	}
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return pool->nr ? 0 : ret;
}

int ck_load_pool_new(struct ck_load_pool **out, unsigned threads,
		     struct ck_err *err)
{
	struct ck_load_pool *pool = calloc(1, sizeof(*pool));
	int ret;

	if (!pool)
		return ck_no_memory(err);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	if (!threads)
		threads = CK_MIN(ck_cpus(), 4u);
	ret = start(pool, CK_MIN(threads, (unsigned)CK_LOAD_THREADS));
	if (ret) {
		ck_load_pool_free(pool);
		return ck_fail(err, ret, "threads to load with: %s",
			       strerror(ret));
	}
	*out = pool;
	return 0;
}

void ck_load_pool_free(struct ck_load_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned i = 0; i < pool->nr; i++) {
		pthread_join(pool->v[i].thread, NULL);
		free(pool->v[i].job->direct);
		free(pool->v[i].job);
	}
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

/* ---- a load ---- */

int ck_load_start(struct ck_load **out, struct ck_load_pool *pool,
		  const struct ck_load_in *in, size_t *bad, struct ck_err *err)
{
	struct ck_load *load = ck_load_new(pool, in);
	int ret;

	if (!load)
		return ck_no_memory(err);
	if (bad)
		*bad = SIZE_MAX;
	ret = ck_load_prepare(load, in, bad, err);
	if (!ret && in->ring && in->stream)
		ret = ck_ring_behind(in->ring, in->stream, err);
	if (ret) {
		ck_load_delete(load);
		return ret;
	}
	pthread_mutex_lock(&pool->lock);
	begin_batch(load);
	load->started = true;
	finish(load);
	load->next = pool->loads;
	pool->loads = load;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	*out = load;
	return 0;
}

/* Waits for a change; false: no longer. */
static bool wait_on(struct ck_load *load, int timeout_ms,
		    const struct timespec *until)
{
	if (timeout_ms < 0)
		return !pthread_cond_wait(&load->changed, &load->pool->lock);
	return pthread_cond_timedwait(&load->changed, &load->pool->lock,
				      until) != ETIMEDOUT;
}

static int item_result(const struct ck_load *load, size_t i, struct ck_err *err)
{
	const struct ck_load_wish *w = &load->item[i];

	if (!w->failed)
		return 0;
	return ck_fail_at(err, w->code, w->file, w->off, "%s",
			  w->why ? w->why : strerror(w->code));
}

int ck_load_next(struct ck_load *load, int timeout_ms, size_t *item,
		 struct ck_err *err)
{
	struct timespec until = ck_deadline(
		CLOCK_MONOTONIC, CK_MAX(timeout_ms, 0) * INT64_C(1000000));
	uint64_t drop;
	bool more;
	int ret = 1;

	if (in_pool)
		return deadlock(err);
	pthread_mutex_lock(&load->pool->lock);
	while (load->nr_taken == load->nr_done && !load->finished && ret)
		if (!wait_on(load, timeout_ms, &until))
			ret = 0;
	more = load->nr_taken < load->nr_done;
	if (!ret && !more && !load->finished) {
		ret = -ETIMEDOUT;
	} else if (more) {
		*item = load->done[load->nr_taken++];
		ret = item_result(load, *item, err);
	} else {
		ret = load->refusal.code ? ck_fail_as(err, &load->refusal) : 1;
	}
	if (load->event >= 0 && load->nr_taken == load->nr_done &&
	    !load->finished && read(load->event, &drop, sizeof(drop)) < 0)
		drop = 0; /* nothing was in it */
	pthread_mutex_unlock(&load->pool->lock);
	return ret;
}

int ck_load_wait(struct ck_load *load, int timeout_ms, size_t *item,
		 struct ck_err *err)
{
	struct timespec until = ck_deadline(
		CLOCK_MONOTONIC, CK_MAX(timeout_ms, 0) * INT64_C(1000000));
	int ret = 0;

	if (item)
		*item = SIZE_MAX;
	if (in_pool)
		return deadlock(err);
	pthread_mutex_lock(&load->pool->lock);
	while (!load->finished && !ret)
		if (!wait_on(load, timeout_ms, &until) && !load->finished)
			ret = -ETIMEDOUT;
	if (!ret && load->nr_done < load->nr)
		ret = load->refusal.code ?
			      ck_fail_as(err, &load->refusal) :
			      ck_fail(err, ECANCELED, "the load was cancelled");
	else if (!ret && load->bad != SIZE_MAX) {
		ret = item_result(load, load->bad, err);
		if (item)
			*item = load->bad;
	}
	pthread_mutex_unlock(&load->pool->lock);
	return ret;
}

int ck_load_fd(struct ck_load *load)
{
	int fd;

	pthread_mutex_lock(&load->pool->lock);
	if (load->event < 0) {
		bool ready = load->nr_taken < load->nr_done || load->finished;

		fd = eventfd(ready, EFD_CLOEXEC | EFD_NONBLOCK);
		load->event = fd;
	}
	fd = load->event >= 0 ? load->event : -errno;
	pthread_mutex_unlock(&load->pool->lock);
	return fd;
}

/* The lock is not needed to say so, and progress() may be who does. */
void ck_load_cancel(struct ck_load *load)
{
	load->cancel = true;
	pthread_mutex_lock(&load->pool->lock);
	finish(load);
	pthread_mutex_unlock(&load->pool->lock);
}

int ck_load_free(struct ck_load *load)
{
	struct ck_load_pool *pool;
	struct ck_load **at;

	if (!load)
		return 0;
	if (in_pool)
		return deadlock(NULL);
	pool = load->pool;
	ck_load_cancel(load);
	ck_load_wait(load, -1, NULL, NULL);
	pthread_mutex_lock(&pool->lock);
	for (at = &pool->loads; *at != load; at = &(*at)->next)
		;
	*at = load->next;
	pthread_mutex_unlock(&pool->lock);
	ck_load_delete(load);
	return 0;
}

int ck_load_read(struct ck_load_pool *pool, const struct ck_load_in *in,
		 struct ck_err *err)
{
	struct ck_load *load;
	int ret = in_pool ? deadlock(err) :
			    ck_load_start(&load, pool, in, NULL, err);

	if (ret)
		return ret;
	ret = ck_load_wait(load, -1, NULL, err);
	ck_load_free(load);
	return ret;
}
