/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpus.c - affinities of threads
 *
 * What the caller may is asked for each time, so that a mask that somebody sets
 * for the whole process, or its cpuset, holds for the other thread as well.
 */
#include "core/base/cpus.h"

#include <sched.h>
#include <stdbool.h>
#include <unistd.h>

unsigned ck_cpus(void)
{
	cpu_set_t set;
	long all;

	if (!sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) > 0)
		return (unsigned)CPU_COUNT(&set);
	/* the mask is too short for all there are */
	all = sysconf(_SC_NPROCESSORS_ONLN);
	return all > 0 ? (unsigned)all : 1;
}

/* Whether there is one besides @cpu where this thread may run. */
static bool others(cpu_set_t *set, int cpu)
{
	if (cpu < 0 || sched_getaffinity(0, sizeof(*set), set))
		return false;
	CPU_CLR((unsigned)cpu, set);
	return CPU_COUNT(set) > 0;
}

void ck_cpu_avoid_keep(struct ck_cpu_avoid *a, pthread_t thread)
{
	int cpu = a->from == CK_CPU_AVOID_NEVER ? -1 : sched_getcpu();
	cpu_set_t set;

	if (cpu == a->from || !others(&set, cpu))
		return;
	a->from = cpu;
	if (pthread_setaffinity_np(thread, sizeof(set), &set))
		a->from = CK_CPU_AVOID_NEVER;
}
