/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aid.c - one job at a time, whose requests two threads take one by one
 *
 * Two writers at once need no help, and waking a thread costs them: nobody is
 * helped until CALM_NS after two have met.  A job lies on its owner's stack;
 * the helper holds it only while job->helped.
 *
 * To wake a thread takes as long as a part of the job does, so the helper
 * looks for the next job for LOOK_NS before it sleeps, letting others run in
 * between, and who waits for its last part looks too.  When jobs come more
 * seldom it sleeps at once.  It is kept off its owner's processor: of a job
 * that it finds there nothing is left when it comes to run.
 *
 * A file is written by one at a time, the kernel sees to that, and who waits
 * for it keeps a processor busy.  So two writers of the same files each take
 * next what the other is not at.
 */
#include "core/io/aid.h"

#include "core/base/apart.h"
#include "core/base/clock.h"
#include "core/base/cpus.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define MIN_BYTES (UINT64_C(256) << 10) /* less is done before one wakes up */
#define CALM_NS 50000000
#define LOOK_NS 300000
#define LAST_NS 100000
#define FILES 64

struct job {
	const struct ck_engine_ops *ops;
	struct ck_io *io;
	unsigned nr;
	_Atomic unsigned next; /* of io, to be begun */
	atomic_bool helped; /* set under the lock */
};

struct ck_aid {
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	pthread_t thread;
	struct ck_apart apart;
	bool started, useless, end;
	_Atomic(struct job *) job; /* offered, or being helped with */
	_Atomic unsigned writers;
	_Atomic int64_t met_ns; /* when there were two */
	atomic_bool taken[FILES]; /* by source: somebody is writing to it */
};

struct ck_aid *ck_aid_new(bool may)
{
	struct ck_aid *aid = calloc(1, sizeof(*aid));

	if (!aid)
		return NULL;
	pthread_mutex_init(&aid->lock, NULL);
	pthread_cond_init(&aid->work, NULL);
	pthread_cond_init(&aid->done, NULL);
	aid->useless = !may || ck_cpus() < 2;
	aid->met_ns = INT64_MIN / 2;
	aid->apart = CK_APART_INIT;
	return aid;
}

void ck_aid_free(struct ck_aid *aid)
{
	if (!aid)
		return;
	if (aid->started) {
		pthread_mutex_lock(&aid->lock);
		aid->end = true;
		pthread_cond_signal(&aid->work);
		pthread_mutex_unlock(&aid->lock);
		pthread_join(aid->thread, NULL);
	}
	pthread_cond_destroy(&aid->work);
	pthread_cond_destroy(&aid->done);
	pthread_mutex_destroy(&aid->lock);
	free(aid);
}

static void take(struct job *job)
{
	struct ck_engine *e = ck_engine_mine(job->ops);
	unsigned i;

	while ((i = atomic_fetch_add(&job->next, 1)) < job->nr)
		e->ops->run(e, &job->io[i], 1);
}

static void pause_a_little(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Under the lock, which it gives up: until there is a job, or the end. */
static void await_job(struct ck_aid *aid, int64_t idle_since, bool may_look)
{
	pthread_mutex_unlock(&aid->lock);
	while (may_look && !atomic_load(&aid->job) &&
	       ck_now_ns() - idle_since < LOOK_NS)
		sched_yield();
	pthread_mutex_lock(&aid->lock);
	while (!aid->job && !aid->end)
		pthread_cond_wait(&aid->work, &aid->lock);
}

static void *help(void *ctx)
{
	struct ck_aid *aid = ctx;
	int64_t idle_since = ck_now_ns();
	bool soon = true; /* the last job came while it was looked for */

	pthread_mutex_lock(&aid->lock);
	while (!aid->end) {
		struct job *job = aid->job;

		if (!job) {
			await_job(aid, idle_since, soon);
			soon = ck_now_ns() - idle_since < LOOK_NS;
			continue;
		}
		job->helped = true;
		pthread_mutex_unlock(&aid->lock);
		take(job);
		pthread_mutex_lock(&aid->lock);
		aid->job = NULL;
		job->helped = false;
		pthread_cond_signal(&aid->done);
		idle_since = ck_now_ns();
	}
	pthread_mutex_unlock(&aid->lock);
	return NULL;
}

/* Under the lock. */
static bool has_thread(struct ck_aid *aid)
{
	if (!aid->started && !aid->useless) {
		aid->started = !pthread_create(&aid->thread, NULL, help, aid);
		aid->useless = !aid->started;
	}
	return aid->started;
}

static bool offer(struct ck_aid *aid, struct job *job)
{
	bool ok;

	pthread_mutex_lock(&aid->lock);
	ok = !aid->job && has_thread(aid);
	if (ok) {
		ck_apart_keep(&aid->apart, aid->thread);
		aid->job = job;
		pthread_cond_signal(&aid->work);
	}
	pthread_mutex_unlock(&aid->lock);
	return ok;
}

/* Once all is begun: nothing to help with any more. */
static void withdraw(struct ck_aid *aid, struct job *job)
{
	int64_t since = ck_now_ns();

	while (atomic_load(&job->helped) && ck_now_ns() - since < LAST_NS)
		pause_a_little();
	pthread_mutex_lock(&aid->lock);
	while (job->helped)
		pthread_cond_wait(&aid->done, &aid->lock);
	if (aid->job == job)
		aid->job = NULL;
	pthread_mutex_unlock(&aid->lock);
}

/* Whether this writer is alone, and has been for a while. */
static bool enter(struct ck_aid *aid)
{
	int64_t now = ck_now_ns();

	if (!atomic_fetch_add(&aid->writers, 1))
		return now - atomic_load(&aid->met_ns) > CALM_NS;
	atomic_store(&aid->met_ns, now);
	return false;
}

static bool is_worth_it(const struct ck_io *io, unsigned nr)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < nr; i++)
		sum += io[i].len;
	return nr > 1 && sum >= MIN_BYTES;
}

static bool claim(struct ck_aid *aid, const struct ck_io *io)
{
	atomic_bool *taken = &aid->taken[io->src % FILES];

	return !atomic_load(taken) && !atomic_exchange(taken, true);
}

/* Of the requests @left, one whose file is free; *claimed: there is one. */
static unsigned choose(struct ck_aid *aid, const struct ck_io *io,
		       uint64_t left, bool *claimed)
{
	for (uint64_t m = left; m; m &= m - 1) {
		unsigned i = (unsigned)__builtin_ctzll(m);

		*claimed = claim(aid, &io[i]);
		if (*claimed)
			return i;
	}
	return (unsigned)__builtin_ctzll(left);
}

/* Up to 64 requests, in the order in which their files are free. */
static void run_apart(struct ck_aid *aid, const struct ck_engine_ops *ops,
		      struct ck_io *io, unsigned nr)
{
	struct ck_engine *e = ck_engine_mine(ops);
	uint64_t left = UINT64_MAX >> (64 - nr);

	while (left) {
		bool claimed;
		unsigned i = choose(aid, io, left, &claimed);
		uint32_t src = io[i].src;

		e->ops->run(e, &io[i], 1);
		if (claimed)
			atomic_store(&aid->taken[src % FILES], false);
		left &= ~(UINT64_C(1) << i);
	}
}

void ck_aid_run(struct ck_aid *aid, const struct ck_engine_ops *ops,
		struct ck_io *io, unsigned nr)
{
	struct job job = { .ops = ops, .io = io, .nr = nr };
	bool alone = enter(aid);

	if (alone && is_worth_it(io, nr) && offer(aid, &job)) {
		take(&job);
		withdraw(aid, &job);
	} else if (nr > 1 && nr <= 64) {
		run_apart(aid, ops, io, nr);
	} else {
		struct ck_engine *e = ck_engine_mine(ops);

		e->ops->run(e, io, nr);
	}
	atomic_fetch_sub(&aid->writers, 1);
}
