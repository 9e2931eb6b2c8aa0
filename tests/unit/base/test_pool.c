/* SPDX-License-Identifier: Apache-2.0 */
/* Work by several threads, and by its caller where there are none. */
#include "core/base/pool.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>

TestSuite(pool, .timeout = 60);

struct did {
	atomic_uint works, mine, ticks;
	pthread_t caller;
};

static void work(void *ctx)
{
	struct did *d = ctx;

	d->works++;
	if (pthread_equal(pthread_self(), d->caller))
		d->mine++;
}

static void tick(void *ctx)
{
	struct did *d = ctx;

	cr_expect(pthread_equal(pthread_self(), d->caller));
	d->ticks++;
}

static void run(struct did *d)
{
	const struct ck_pool_in in = {
		.jobs = 3, .ctx = d, .work = work, .tick = tick
	};

	*d = (struct did){ .caller = pthread_self() };
	ck_pool_run(&in);
}

Test(pool, threads)
{
	struct did d;

	run(&d);
	cr_expect_eq(d.works, 3);
	cr_expect_eq(d.mine, 0);
	cr_expect_geq(d.ticks, 1);
}

/* As in a sandbox that lets nobody make any. */
Test(pool, no_thread_can_be_had)
{
	pthread_attr_t none;
	struct did d;

	pthread_attr_init(&none);
	/* more than there are addresses */
	cr_assert(!pthread_attr_setstacksize(&none, (size_t)1 << 60));
	cr_assert(!pthread_setattr_default_np(&none));
	run(&d);
	cr_expect_eq(d.works, 1);
	cr_expect_eq(d.mine, 1);
	cr_expect_geq(d.ticks, 1);
	pthread_attr_destroy(&none);
}
