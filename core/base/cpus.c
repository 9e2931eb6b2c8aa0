/* SPDX-License-Identifier: Apache-2.0 */
/* cpus.c - affinity; and all there are, where a mask is too short for them */
#include "core/base/cpus.h"

#include <sched.h>
#include <unistd.h>

unsigned ck_cpus(void)
{
	cpu_set_t set;
	long all;

	if (!sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) > 0)
		return (unsigned)CPU_COUNT(&set);
	all = sysconf(_SC_NPROCESSORS_ONLN);
	return all > 0 ? (unsigned)all : 1;
}
