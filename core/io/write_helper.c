/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_helper.c - one job at a time, whose requests two threads take one by
 * one
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
#include "core/io/write_helper.h"

#include "core/base/cpu_avoid.h"
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

struct ck_write_helper {
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	pthread_t thread;
	struct ck_cpu_avoid apart;
	bool started, useless, end;
	_Atomic(struct job *) job; /* offered, or being helped with */
	_Atomic unsigned writers;
	_Atomic int64_t met_ns; /* when there were two */
	atomic_bool taken[FILES]; /* by source: somebody is writing to it */
};

struct ck_write_helper *ck_write_helper_new(bool may)
{
	struct ck_write_helper *helper = calloc(1, sizeof(*helper));

	if (!helper)
		return NULL;
	pthread_mutex_init(&helper->lock, NULL);
	pthread_cond_init(&helper->work, NULL);
	pthread_cond_init(&helper->done, NULL);
	helper->useless = !may || ck_cpus() < 2;
	helper->met_ns = INT64_MIN / 2;
	helper->apart = CK_CPU_AVOID_INIT;
	return helper;
}

void ck_write_helper_free(struct ck_write_helper *helper)
{
	if (!helper)
		return;
	if (helper->started) {
		pthread_mutex_lock(&helper->lock);
		helper->end = true;
		pthread_cond_signal(&helper->work);
		pthread_mutex_unlock(&helper->lock);
		pthread_join(helper->thread, NULL);
	}
	pthread_cond_destroy(&helper->work);
	pthread_cond_destroy(&helper->done);
	pthread_mutex_destroy(&helper->lock);
	free(helper);
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
static void await_job(struct ck_write_helper *helper, int64_t idle_since,
		      bool may_look)
{
	pthread_mutex_unlock(&helper->lock);
	while (may_look && !atomic_load(&helper->job) &&
	       ck_now_ns() - idle_since < LOOK_NS)
		sched_yield();
	pthread_mutex_lock(&helper->lock);
	while (!helper->job && !helper->end)
		pthread_cond_wait(&helper->work, &helper->lock);
}

static void *help(void *ctx)
{
	struct ck_write_helper *helper = ctx;
	int64_t idle_since = ck_now_ns();
	bool soon = true; /* the last job came while it was looked for */

	pthread_mutex_lock(&helper->lock);
	while (!helper->end) {
		struct job *job = helper->job;

		if (!job) {
			await_job(helper, idle_since, soon);
			soon = ck_now_ns() - idle_since < LOOK_NS;
			continue;
		}
		job->helped = true;
		pthread_mutex_unlock(&helper->lock);
		take(job);
		pthread_mutex_lock(&helper->lock);
		helper->job = NULL;
		job->helped = false;
		pthread_cond_signal(&helper->done);
		idle_since = ck_now_ns();
	}
	pthread_mutex_unlock(&helper->lock);
	return NULL;
}

/* Under the lock. */
static bool has_thread(struct ck_write_helper *helper)
{
	if (!helper->started && !helper->useless) {
		helper->started =
			!pthread_create(&helper->thread, NULL, help, helper);
		helper->useless = !helper->started;
	}
	return helper->started;
}

static bool offer(struct ck_write_helper *helper, struct job *job)
{
	bool ok;

	pthread_mutex_lock(&helper->lock);
	ok = !helper->job && has_thread(helper);
	if (ok) {
		ck_cpu_avoid_keep(&helper->apart, helper->thread);
		helper->job = job;
		pthread_cond_signal(&helper->work);
	}
	pthread_mutex_unlock(&helper->lock);
	return ok;
}

/* Once all is begun: nothing to help with any more. */
static void withdraw(struct ck_write_helper *helper, struct job *job)
{
	int64_t since = ck_now_ns();

	while (atomic_load(&job->helped) && ck_now_ns() - since < LAST_NS)
		pause_a_little();
	pthread_mutex_lock(&helper->lock);
	while (job->helped)
		pthread_cond_wait(&helper->done, &helper->lock);
	if (helper->job == job)
		helper->job = NULL;
	pthread_mutex_unlock(&helper->lock);
}

/* Whether this writer is alone, and has been for a while. */
static bool enter(struct ck_write_helper *helper)
{
	int64_t now = ck_now_ns();

	if (!atomic_fetch_add(&helper->writers, 1))
		return now - atomic_load(&helper->met_ns) > CALM_NS;
	atomic_store(&helper->met_ns, now);
	return false;
}

static bool is_worth_it(const struct ck_io *io, unsigned nr)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < nr; i++)
		sum += io[i].len;
	return nr > 1 && sum >= MIN_BYTES;
}

static bool claim(struct ck_write_helper *helper, const struct ck_io *io)
{
	atomic_bool *taken = &helper->taken[io->src % FILES];

	return !atomic_load(taken) && !atomic_exchange(taken, true);
}

/* Of the requests @left, one whose file is free; *claimed: there is one. */
static unsigned choose(struct ck_write_helper *helper, const struct ck_io *io,
		       uint64_t left, bool *claimed)
{
	for (uint64_t m = left; m; m &= m - 1) {
		unsigned i = (unsigned)__builtin_ctzll(m);

		*claimed = claim(helper, &io[i]);
		if (*claimed)
			return i;
	}
	return (unsigned)__builtin_ctzll(left);
}

/* Up to 64 requests, in the order in which their files are free. */
static void run_apart(struct ck_write_helper *helper,
		      const struct ck_engine_ops *ops, struct ck_io *io,
		      unsigned nr)
{
	struct ck_engine *e = ck_engine_mine(ops);
	uint64_t left = UINT64_MAX >> (64 - nr);

	while (left) {
		bool claimed;
		unsigned i = choose(helper, io, left, &claimed);
		uint32_t src = io[i].src;

		e->ops->run(e, &io[i], 1);
		if (claimed)
			atomic_store(&helper->taken[src % FILES], false);
		left &= ~(UINT64_C(1) << i);
	}
}

void ck_write_helper_run(struct ck_write_helper *helper,
			 const struct ck_engine_ops *ops, struct ck_io *io,
			 unsigned nr)
{
	struct job job = { .ops = ops, .io = io, .nr = nr };
	bool alone = enter(helper);

	if (alone && is_worth_it(io, nr) && offer(helper, &job)) {
		take(&job);
		withdraw(helper, &job);
	} else if (nr > 1 && nr <= 64) {
		run_apart(helper, ops, io, nr);
	} else {
		struct ck_engine *e = ck_engine_mine(ops);

		e->ops->run(e, io, nr);
	}
	atomic_fetch_sub(&helper->writers, 1);
}
