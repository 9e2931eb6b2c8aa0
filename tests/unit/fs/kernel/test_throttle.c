/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/kernel/throttle.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#define WORKERS 8
#define TRIES 100

/* What a worker is asked for: a message of one byte. */
enum { LARGE = 'L', STUCK = 'S', SMALL = 's', END = 'e' };

static int device[2];
static sem_t release; /* those that are stuck */
static atomic_uint taken, stuck;
static atomic_uint serves[WORKERS], cpus[WORKERS];

static unsigned my_cpus(void)
{
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	return (unsigned)CPU_COUNT(&set);
}

static void *work(void *ctx)
{
	atomic_uint *served = ctx;
	char what = 0;

	while (what != END) {
		fs_throttle_enter();
		if (recv(device[1], &what, 1, 0) != 1) {
			fs_throttle_none();
			break;
		}
		fs_throttle_leave(what == LARGE || what == STUCK);
		atomic_store(&cpus[served - serves], my_cpus());
		atomic_fetch_add(served, 1);
		atomic_fetch_add(&taken, 1);
		if (what == STUCK) {
			atomic_fetch_add(&stuck, 1);
			sem_wait(&release);
		}
		fs_throttle_answer();
		if (what == LARGE && send(device[1], "", 1, 0) != 1)
			break;
	}
	return NULL;
}

static void start(pthread_t *t)
{
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, device), 0);
	sem_init(&release, 0, 0);
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_create(&t[i], NULL, work, &serves[i]);
}

static void ask(char what)
{
	cr_assert_eq(send(device[0], &what, 1, 0), 1);
}

static void end(pthread_t *t)
{
	for (unsigned i = 0; i < WORKERS; i++)
		ask(END);
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_join(t[i], NULL);
}

/* One writer's @nr requests; how many workers served them. */
static unsigned write_one_by_one(unsigned nr)
{
	unsigned before[WORKERS], used = 0;
	char c;

	for (unsigned i = 0; i < WORKERS; i++)
		before[i] = atomic_load(&serves[i]);
	for (unsigned i = 0; i < nr; i++) {
		ask(LARGE);
		cr_assert_eq(recv(device[0], &c, 1, 0), 1);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		used += atomic_load(&serves[i]) != before[i];
	return used;
}

static void park_most(void)
{
	unsigned used = WORKERS;

	/* a loaded machine may need more than one try */
	for (unsigned i = 0; used > 2 && i < TRIES; i++)
		used = write_one_by_one(100);
	cr_assert_leq(used, 2);
}

static void await(const atomic_uint *what, unsigned nr)
{
	for (unsigned ms = 0; atomic_load(what) < nr && ms < 10000; ms++)
		usleep(1000);
	cr_assert_geq(atomic_load(what), nr);
}

Test(throttle, large_writes_are_served_by_few)
{
	pthread_t t[WORKERS];

	start(t);
	park_most();
	end(t);
}

Test(throttle, where_all_are_stuck_others_come)
{
	pthread_t t[WORKERS];
	unsigned before;

	start(t);
	park_most();
	for (unsigned i = 1; i < WORKERS; i++)
		ask(STUCK);
	await(&stuck, WORKERS - 1);
	before = atomic_load(&taken);
	ask(SMALL);
	await(&taken, before + 1);
	for (unsigned i = 1; i < WORKERS; i++)
		sem_post(&release);
	end(t);
}

Test(throttle, the_parked_can_be_cancelled)
{
	pthread_t t[WORKERS];

	start(t);
	park_most();
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_cancel(t[i]);
	for (unsigned i = 0; i < WORKERS; i++) {
		void *how = NULL;

		pthread_join(t[i], &how);
		cr_expect_eq(how, PTHREAD_CANCELED);
	}
	fs_throttle_enter(); /* nobody left it locked */
	fs_throttle_none();
}

/* Two processors, where there are two, so that two writers are enough. */
static unsigned keep_two(void)
{
	cpu_set_t set;
	unsigned nr = 0;

	sched_getaffinity(0, sizeof(set), &set);
	for (unsigned i = 0; i < CPU_SETSIZE; i++) {
		if (nr == 2)
			CPU_CLR(i, &set);
		nr += !!CPU_ISSET(i, &set);
	}
	sched_setaffinity(0, sizeof(set), &set);
	return nr;
}

/* The fewest processors of a worker that has served. */
static unsigned fewest(void)
{
	unsigned nr = CPU_SETSIZE;

	for (unsigned i = 0; i < WORKERS; i++) {
		unsigned now = atomic_load(&cpus[i]);

		nr = now && now < nr ? now : nr;
	}
	return nr;
}

Test(throttle, with_many_writers_each_has_a_processor_until_others_ask)
{
	unsigned all = keep_two(), nr = 0, before;
	pthread_t t[WORKERS];

	start(t);
	ask(SMALL);
	await(&taken, 1);
	cr_assert_eq(fewest(), all);
	do {
		ask(STUCK);
		ask(STUCK);
		await(&stuck, nr += 2);
		sem_post(&release);
		sem_post(&release);
	} while (fewest() > 1 && nr < 2 * TRIES);
	cr_assert_eq(fewest(), 1);
	for (unsigned i = 0; i < WORKERS; i++)
		atomic_store(&cpus[i], 0);
	before = atomic_load(&taken);
	for (unsigned i = 1; i <= TRIES; i++) {
		ask(SMALL);
		await(&taken, before + i);
	}
	cr_assert_eq(fewest(), all);
	end(t);
}
