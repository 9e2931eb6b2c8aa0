/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/cpus.h"

#include <criterion/criterion.h>
#include <sched.h>

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
