/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/cpus.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <semaphore.h>
#include <stdbool.h>

Test(cpus, only_those_that_the_thread_may_run_on)
{
	cpu_set_t all, one;
	int first = 0;

	cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	cr_assert_eq(ck_cpus(), (unsigned)CPU_COUNT(&all));
	while (!CPU_ISSET((unsigned)first, &all))
		first++;
	CPU_ZERO(&one);
	CPU_SET((unsigned)first, &one);
	cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	cr_assert_eq(ck_cpus(), 1);
	cr_assert_eq(sched_setaffinity(0, sizeof(all), &all), 0);
	cr_assert_eq(ck_cpus(), (unsigned)CPU_COUNT(&all));
}

static sem_t end;
static pthread_t thread;
static cpu_set_t mine;
static struct ck_cpu_avoid cpu_avoid = { CK_CPU_AVOID_NOWHERE };

static void *sleeper(void *unused)
{
	sem_wait(&end);
	return unused;
}

static void start(void)
{
	cr_assert(!sched_getaffinity(0, sizeof(mine), &mine));
	sem_init(&end, 0, 0);
	cr_assert(!pthread_create(&thread, NULL, sleeper, NULL));
}

static void stop(void)
{
	sem_post(&end);
	pthread_join(thread, NULL);
}
TestSuite(cpu_avoid, .init = start, .fini = stop);

static cpu_set_t its(void)
{
	cpu_set_t set;

	cr_assert(!pthread_getaffinity_np(thread, sizeof(set), &set));
	return set;
}

static bool keep_and_look(void)
{
	int cpu = sched_getcpu();
	cpu_set_t set;

	ck_cpu_avoid_keep(&cpu_avoid, thread);
	if (sched_getcpu() != cpu)
		return false; /* moved meanwhile: which one was it? */
	set = its();
	cr_expect(!CPU_ISSET((unsigned)cpu, &set));
	CPU_SET((unsigned)cpu, &set);
	cr_expect(CPU_EQUAL(&set, &mine), "all the others");
	return true;
}

static void need(int nr)
{
	if (CPU_COUNT(&mine) < nr)
		cr_skip_test("needs %d processors", nr);
}

/* The @n-th processor of those there are. */
static unsigned nth(int n)
{
	unsigned cpu = 0;

	while (!CPU_ISSET(cpu, &mine) || n--)
		cpu++;
	return cpu;
}

static void go_to(int n)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(nth(n), &set);
	cr_assert(!sched_setaffinity(0, sizeof(set), &set));
}

Test(cpu_avoid, on_all_processors_but_the_callers)
{
	cpu_set_t now;

	need(2);
	while (!keep_and_look())
		;
	cr_assert(!sched_getaffinity(0, sizeof(now), &now));
	cr_expect(CPU_EQUAL(&now, &mine), "the caller's own stays");
}

Test(cpu_avoid, follows_the_caller)
{
	need(2);
	for (int i = 0; i < 6; i++) {
		go_to(i % 2);
		cr_assert(!sched_setaffinity(0, sizeof(mine), &mine));
		while (!keep_and_look())
			;
	}
}

Test(cpu_avoid, a_caller_with_one_processor_leaves_it_as_it_is)
{
	cpu_set_t before, after;

	go_to(0);
	before = its();
	ck_cpu_avoid_keep(&cpu_avoid, thread);
	after = its();
	cr_expect(CPU_EQUAL(&before, &after));
	cr_expect(cpu_avoid.from == CK_CPU_AVOID_NOWHERE);
}

/* As taskset -a does, with a processor less for all. */
Test(cpu_avoid, no_wider_than_the_caller)
{
	cpu_set_t fewer = mine, set;

	need(2);
	while (!keep_and_look())
		;
	CPU_CLR(nth(0), &fewer);
	cr_assert(!sched_setaffinity(0, sizeof(fewer), &fewer));
	cr_assert(!pthread_setaffinity_np(thread, sizeof(fewer), &fewer));
	cpu_avoid = CK_CPU_AVOID_INIT;
	ck_cpu_avoid_keep(&cpu_avoid, thread);
	set = its();
	cr_expect(CPU_COUNT(&set) > 0);
	CPU_OR(&set, &set, &fewer);
	cr_expect(CPU_EQUAL(&set, &fewer));
}

Test(cpu_avoid, what_fails_is_not_tried_again)
{
	cpu_set_t set;

	cpu_avoid.from = CK_CPU_AVOID_NEVER;
	ck_cpu_avoid_keep(&cpu_avoid, thread);
	cr_expect(cpu_avoid.from == CK_CPU_AVOID_NEVER);
	set = its();
	cr_expect(CPU_EQUAL(&set, &mine));
}
