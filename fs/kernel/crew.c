/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew.c - workers at the device, at work, and parked
 *
 *	enter            leave            answer
 *	  | [ parked ] at the device | at work | ...
 *
 * Of those that are parked one keeps watch: it looks every WATCH_NS whether
 * anybody came to the device since.
 */
#include "fs/kernel/crew.h"

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
#define SEATS 64

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
	uint64_t seats; /* processors that are some worker's own */
} crew = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Thread_local bool active; /* counted so */
static _Thread_local bool writing;
static _Thread_local int seat = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

/* ---- a processor of its own ---- */

/*
 * Where the loop's own thread may run, which never has a seat: somebody may set
 * it for all threads while some have, and new ones have their makers'.
 */
static bool where(cpu_set_t *set)
{
	return !sched_getaffinity(getpid(), sizeof(*set), set);
}

/* The worker's processor, or the next that is free; or -1. */
static int take_seat(const cpu_set_t *set)
{
	int cpu = sched_getcpu(), found = -1;

	pthread_mutex_lock(&crew.lock);
	for (int i = 0; cpu >= 0 && i < SEATS && found < 0; i++) {
		unsigned at = (unsigned)(cpu + i) % SEATS;

		if (CPU_ISSET(at, set) && !(crew.seats & UINT64_C(1) << at))
			found = (int)at;
	}
	if (found >= 0)
		crew.seats |= UINT64_C(1) << found;
	pthread_mutex_unlock(&crew.lock);
	return found;
}

static void sit_down(void)
{
	cpu_set_t set;

	if (seat >= 0 || !where(&set))
		return;
	seat = take_seat(&set);
	if (seat < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned)seat, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void stand_up(void)
{
	cpu_set_t set;

	if (seat < 0)
		return;
	if (where(&set))
		sched_setaffinity(0, sizeof(set), &set);
	pthread_mutex_lock(&crew.lock);
	crew.seats &= ~(UINT64_C(1) << seat);
	pthread_mutex_unlock(&crew.lock);
	seat = -1;
}

/* ---- under the lock ---- */

static void note_large(int64_t now)
{
	int64_t gone = now - crew.since_ns;

	crew.large_ns = now;
	crew.writing++;
	if (gone > LATELY_NS) {
		crew.most_before = gone > 2 * LATELY_NS ? 0 : crew.most;
		crew.most = 0;
		crew.since_ns = now;
	}
	crew.most = CK_MAX(crew.most, crew.writing);
}

static unsigned writers(void)
{
	return CK_MAX(crew.most, crew.most_before);
}

/* How many workers are of use. */
static unsigned useful(void)
{
	int64_t now = ck_now_ns();

	if (now - crew.large_ns > LATELY_NS || now - crew.other_ns < OTHER_NS)
		return UINT32_MAX;
	return CK_MAX(CK_MIN(writers() + 1, crew.processors), 2u);
}

static void wait_watching(void)
{
	int64_t end = ck_now_ns() + WATCH_NS;
	struct timespec t = { .tv_sec = end / SECOND, .tv_nsec = end % SECOND };
	uint64_t seen = crew.entries;

	crew.watched = true;
	pthread_cond_timedwait(&crew.called, &crew.lock, &t);
	crew.watched = false;
	if (crew.calls || ck_now_ns() < end)
		return;
	if (useful() == UINT32_MAX || (!crew.waiting && crew.entries == seen))
		crew.calls++;
}

static void give_up(void *ctx)
{
	(void)ctx;
	crew.watched = false;
	pthread_mutex_unlock(&crew.lock);
}

static void park(void)
{
	active = false;
	crew.active--;
	crew.parked++;
	pthread_cleanup_push(give_up, NULL); /* libfuse cancels its workers */
	while (!crew.calls) {
		if (crew.watched)
			pthread_cond_wait(&crew.called, &crew.lock);
		else
			wait_watching();
	}
	pthread_cleanup_pop(0);
	crew.calls--;
	crew.parked--;
	crew.active++;
	active = true;
	if (crew.parked && !crew.watched)
		pthread_cond_signal(&crew.called);
}

/* ---- the calls ---- */

static void end_worker(void *ctx)
{
	(void)ctx;
	pthread_mutex_lock(&crew.lock);
	crew.active -= active;
	pthread_mutex_unlock(&crew.lock);
}

static void begin(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&crew.called, &attr);
	pthread_condattr_destroy(&attr);
	if (pthread_key_create(&key, end_worker))
		abort();
	crew.processors = ck_cpus();
}

static void begin_worker(void)
{
	cpu_set_t set;

	if (active)
		return;
	pthread_once(&once, begin);
	pthread_setspecific(key, &crew);
	if (where(&set))
		sched_setaffinity(0, sizeof(set), &set);
	active = true;
	pthread_mutex_lock(&crew.lock);
	crew.active++;
	pthread_mutex_unlock(&crew.lock);
}

void fs_crew_enter(void)
{
	begin_worker();
	fs_crew_answer();
	pthread_mutex_lock(&crew.lock);
	crew.entries++;
	if (crew.active > useful()) {
		pthread_mutex_unlock(&crew.lock);
		stand_up();
		pthread_mutex_lock(&crew.lock);
		if (crew.active > useful())
			park();
	}
	crew.waiting++;
	pthread_mutex_unlock(&crew.lock);
}

void fs_crew_leave(bool large)
{
	bool full;

	writing = large;
	pthread_mutex_lock(&crew.lock);
	crew.waiting--;
	if (large)
		note_large(ck_now_ns());
	else
		crew.other_ns = ck_now_ns();
	full = large && writers() >= crew.processors;
	if (!crew.waiting && crew.parked > crew.calls &&
	    crew.active < useful()) {
		crew.calls++;
		pthread_cond_signal(&crew.called);
	}
	pthread_mutex_unlock(&crew.lock);
	if (full)
		sit_down();
	else
		stand_up();
}

void fs_crew_none(void)
{
	pthread_mutex_lock(&crew.lock);
	crew.waiting--;
	crew.other_ns = ck_now_ns();
	crew.calls = crew.parked;
	pthread_cond_broadcast(&crew.called);
	pthread_mutex_unlock(&crew.lock);
}

void fs_crew_answer(void)
{
	if (!writing)
		return;
	writing = false;
	pthread_mutex_lock(&crew.lock);
	crew.writing--;
	pthread_mutex_unlock(&crew.lock);
}
