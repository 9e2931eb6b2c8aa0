/* SPDX-License-Identifier: Apache-2.0 */
/*
 * throttle.c - workers at the device, at work, and parked
 *
 *	enter            leave            answer
 *	  | [ parked ] at the device | at work | ...
 *
 * Of those that are parked one keeps watch: it looks every WATCH_NS whether
 * anybody came to the device since.
 */
#include "fs/kernel/throttle.h"

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/cpus.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define LATELY_NS INT64_C(50000000)
#define OTHER_NS INT64_C(2000000) /* after any other request */
#define WATCH_NS INT64_C(10000000)
#define SECOND INT64_C(1000000000)
#define PINNED_CPUS 64

static struct {
	pthread_mutex_t lock;
	pthread_cond_t called;
	unsigned processors;
	unsigned active; /* workers that are not parked */
	unsigned waiting; /* of them, at the device */
	unsigned writing; /* of them, at a large write */
	unsigned parked;
	unsigned calls; /* so many of the parked are to go on */
	bool watched;
	uint64_t entries; /* to the device, ever */
	int64_t large_ns, other_ns; /* when the last one came */
	/* The most that wrote at once since @since_ns, and in the time before. */
	int64_t since_ns;
	unsigned most, most_before;
	uint64_t pinned_cpus; /* processors that are some worker's own */
} throttle = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Thread_local bool active; /* counted so */
static _Thread_local bool writing;
static _Thread_local int pinned_cpu = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

/* ---- a processor of its own ---- */

/*
 * Where the loop's own thread may run, which is never pinned: somebody may set
 * it for all threads while some have, and new ones have their makers'.
 */
static bool where(cpu_set_t *set)
{
	return !sched_getaffinity(getpid(), sizeof(*set), set);
}

/* The worker's processor, or the next that is free; or -1. */
static int take_cpu(const cpu_set_t *set)
{
	int cpu = sched_getcpu(), found = -1;

	pthread_mutex_lock(&throttle.lock);
	for (int i = 0; cpu >= 0 && i < PINNED_CPUS && found < 0; i++) {
		unsigned at = (unsigned)(cpu + i) % PINNED_CPUS;

		if (CPU_ISSET(at, set) &&
		    !(throttle.pinned_cpus & UINT64_C(1) << at))
			found = (int)at;
	}
	if (found >= 0)
		throttle.pinned_cpus |= UINT64_C(1) << found;
	pthread_mutex_unlock(&throttle.lock);
	return found;
}

static void pin_cpu(void)
{
	cpu_set_t set;

	if (pinned_cpu >= 0 || !where(&set))
		return;
	pinned_cpu = take_cpu(&set);
	if (pinned_cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned)pinned_cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void unpin_cpu(void)
{
	cpu_set_t set;

	if (pinned_cpu < 0)
		return;
	if (where(&set))
		sched_setaffinity(0, sizeof(set), &set);
	pthread_mutex_lock(&throttle.lock);
	throttle.pinned_cpus &= ~(UINT64_C(1) << pinned_cpu);
	pthread_mutex_unlock(&throttle.lock);
	pinned_cpu = -1;
}

/* ---- under the lock ---- */

static void note_large(int64_t now)
{
	int64_t gone = now - throttle.since_ns;

	throttle.large_ns = now;
	throttle.writing++;
	if (gone > LATELY_NS) {
		throttle.most_before = gone > 2 * LATELY_NS ? 0 : throttle.most;
		throttle.most = 0;
		throttle.since_ns = now;
	}
	throttle.most = CK_MAX(throttle.most, throttle.writing);
}

static unsigned writers(void)
{
	return CK_MAX(throttle.most, throttle.most_before);
}

/* How many workers are of use. */
static unsigned useful(void)
{
	int64_t now = ck_now_ns();

	if (now - throttle.large_ns > LATELY_NS ||
	    now - throttle.other_ns < OTHER_NS)
		return UINT32_MAX;
	return CK_MAX(CK_MIN(writers() + 1, throttle.processors), 2u);
}

static void wait_watching(void)
{
	int64_t end = ck_now_ns() + WATCH_NS;
	struct timespec t = { .tv_sec = end / SECOND, .tv_nsec = end % SECOND };
	uint64_t seen = throttle.entries;

	throttle.watched = true;
	pthread_cond_timedwait(&throttle.called, &throttle.lock, &t);
	throttle.watched = false;
	if (throttle.calls || ck_now_ns() < end)
		return;
	if (useful() == UINT32_MAX ||
	    (!throttle.waiting && throttle.entries == seen))
		throttle.calls++;
}

static void give_up(void *ctx)
{
	(void)ctx;
	throttle.watched = false;
	pthread_mutex_unlock(&throttle.lock);
}

static void park(void)
{
	active = false;
	throttle.active--;
	throttle.parked++;
	pthread_cleanup_push(give_up, NULL); /* libfuse cancels its workers */
	while (!throttle.calls) {
		if (throttle.watched)
			pthread_cond_wait(&throttle.called, &throttle.lock);
		else
			wait_watching();
	}
	pthread_cleanup_pop(0);
	throttle.calls--;
	throttle.parked--;
	throttle.active++;
	active = true;
	if (throttle.parked && !throttle.watched)
		pthread_cond_signal(&throttle.called);
}

/* ---- the calls ---- */

static void end_worker(void *ctx)
{
	(void)ctx;
	pthread_mutex_lock(&throttle.lock);
	throttle.active -= active;
	pthread_mutex_unlock(&throttle.lock);
}

static void begin(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&throttle.called, &attr);
	pthread_condattr_destroy(&attr);
	if (pthread_key_create(&key, end_worker))
		abort();
	throttle.processors = ck_cpus();
}

static void begin_worker(void)
{
	cpu_set_t set;

	if (active)
		return;
	pthread_once(&once, begin);
	pthread_setspecific(key, &throttle);
	if (where(&set))
		sched_setaffinity(0, sizeof(set), &set);
	active = true;
	pthread_mutex_lock(&throttle.lock);
	throttle.active++;
	pthread_mutex_unlock(&throttle.lock);
}

void fs_throttle_enter(void)
{
	begin_worker();
	fs_throttle_answer();
	pthread_mutex_lock(&throttle.lock);
	throttle.entries++;
	if (throttle.active > useful()) {
		pthread_mutex_unlock(&throttle.lock);
		unpin_cpu();
		pthread_mutex_lock(&throttle.lock);
		if (throttle.active > useful())
			park();
	}
	throttle.waiting++;
	pthread_mutex_unlock(&throttle.lock);
}

void fs_throttle_leave(bool large)
{
	bool full;

	writing = large;
	pthread_mutex_lock(&throttle.lock);
	throttle.waiting--;
	if (large)
		note_large(ck_now_ns());
	else
		throttle.other_ns = ck_now_ns();
	full = large && writers() >= throttle.processors;
	if (!throttle.waiting && throttle.parked > throttle.calls &&
	    throttle.active < useful()) {
		throttle.calls++;
		pthread_cond_signal(&throttle.called);
	}
	pthread_mutex_unlock(&throttle.lock);
	if (full)
		pin_cpu();
	else
		unpin_cpu();
}

void fs_throttle_none(void)
{
	pthread_mutex_lock(&throttle.lock);
	throttle.waiting--;
	throttle.other_ns = ck_now_ns();
	throttle.calls = throttle.parked;
	pthread_cond_broadcast(&throttle.called);
	pthread_mutex_unlock(&throttle.lock);
}

void fs_throttle_answer(void)
{
	if (!writing)
		return;
	writing = false;
	pthread_mutex_lock(&throttle.lock);
	throttle.writing--;
	pthread_mutex_unlock(&throttle.lock);
}
