/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write_helper.c - one job at a time, whose requests two threads take one by
 * one
 *
 * Two writers at once need no help, and waking a thread costs them: nobody is
 * helped until CALM_NS after two have met.  A job lies on its owner's stack;
 * the helper holds it only while job->helped.
 *
 * The helper looks for the next job before it sleeps (core/base/helpers.h), and
 * who waits for its last part looks too.  It is kept off its owner's processor:
 * of a job that it finds there nothing is left when it comes to run.
 *
 * A file is written by one at a time, the kernel sees to that, and who waits
 * for it keeps a processor busy.  So two writers of the same files each take
 * next what the other is not at.
 */
#include "core/io/write_helper.h"

#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "core/base/helpers.h"

#include <stdatomic.h>
#include <stdlib.h>

#define MIN_BYTES (UINT64_C(256) << 10) /* less is done before one wakes up */
#define CALM_NS 50000000
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
	struct ck_helpers thread; /* one */
	pthread_cond_t done;
	struct ck_cpu_avoid apart;
	bool useless;
	_Atomic(struct job *) job; /* offered, or being helped with */
	_Atomic unsigned writers;
	_Atomic int64_t met_ns; /* when there were two */
	atomic_bool taken[FILES]; /* by source: somebody is writing to it */
};

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

static bool has_job(void *ctx)
{
	struct ck_write_helper *helper = ctx;

	return atomic_load(&helper->job);
}

static bool help(void *ctx)
{
	struct ck_write_helper *helper = ctx;
	struct job *job = helper->job;

	if (!job)
		return false;
	job->helped = true;
	pthread_mutex_unlock(&helper->thread.lock);
	take(job);
	pthread_mutex_lock(&helper->thread.lock);
	helper->job = NULL;
	job->helped = false;
	pthread_cond_signal(&helper->done);
	return true;
}

static const struct ck_helpers_in helping = {
	.work = help,
	.has_work = has_job,
};

struct ck_write_helper *ck_write_helper_new(bool may)
{
	struct ck_write_helper *helper = calloc(1, sizeof(*helper));

	if (!helper)
		return NULL;
	ck_helpers_init(&helper->thread, &helping, helper, true);
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
	ck_helpers_free(&helper->thread);
	pthread_cond_destroy(&helper->done);
	free(helper);
}

/* Under the lock. */
static bool has_thread(struct ck_write_helper *helper)
{
	if (!helper->useless)
		helper->useless = !ck_helpers_start(&helper->thread, 1);
	return !helper->useless;
}

static bool offer(struct ck_write_helper *helper, struct job *job)
{
	bool ok;

	pthread_mutex_lock(&helper->thread.lock);
	ok = !helper->job && has_thread(helper);
	if (ok) {
		ck_cpu_avoid_keep(&helper->apart, helper->thread.thread[0]);
		helper->job = job;
		pthread_cond_signal(&helper->thread.wake);
	}
	pthread_mutex_unlock(&helper->thread.lock);
	return ok;
}

/* Once all is begun: nothing to help with any more. */
static void withdraw(struct ck_write_helper *helper, struct job *job)
{
	int64_t since = ck_now_ns();

	while (atomic_load(&job->helped) && ck_now_ns() - since < LAST_NS)
		pause_a_little();
	pthread_mutex_lock(&helper->thread.lock);
	while (job->helped)
		pthread_cond_wait(&helper->done, &helper->thread.lock);
	if (helper->job == job)
		helper->job = NULL;
	pthread_mutex_unlock(&helper->thread.lock);
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
