/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - threads that are started, watched and waited for */
#include "core/base/pool.h"

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/cpus.h"

#include <pthread.h>

#define MAX_JOBS 64
#define TICK_NS 100000000

struct pool {
	const struct ck_pool_in *in;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	unsigned left; /* threads that are still at it */
};

/* Storage answers several requests at once even where one core hashes. */
static unsigned suggested(void)
{
	return CK_MAX(4U, ck_cpus());
}

static void *work(void *arg)
{
	struct pool *p = arg;

	p->in->work(p->in->ctx);
	pthread_mutex_lock(&p->lock);
	p->left--;
	pthread_cond_signal(&p->ended);
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void wait_a_bit(struct pool *p)
{
	struct timespec at = ck_deadline(CLOCK_REALTIME, TICK_NS);

	pthread_cond_timedwait(&p->ended, &p->lock, &at);
}

static void wait_all(struct pool *p)
{
	pthread_mutex_lock(&p->lock);
	while (p->left) {
		wait_a_bit(p);
		if (!p->in->tick)
			continue;
		pthread_mutex_unlock(&p->lock);
		p->in->tick(p->in->ctx);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
}

void ck_pool_run(const struct ck_pool_in *in)
{
	unsigned want = CK_MIN(in->jobs ? in->jobs : suggested(), MAX_JOBS);
	struct pool p = { .in = in, .left = want };
	pthread_t thread[MAX_JOBS];
	unsigned nr = 0;

	pthread_mutex_init(&p.lock, NULL);
	pthread_cond_init(&p.ended, NULL);
	while (nr < want && !pthread_create(&thread[nr], NULL, work, &p))
		nr++;
	pthread_mutex_lock(&p.lock);
	p.left -= want - nr;
	pthread_mutex_unlock(&p.lock);
	if (!nr) /* a sandbox, a limit of processes */
		in->work(in->ctx);
	wait_all(&p);
	for (unsigned i = 0; i < nr; i++)
		pthread_join(thread[i], NULL);
	if (in->tick) /* threads that were too quick to be watched */
		in->tick(in->ctx);
	pthread_cond_destroy(&p.ended);
	pthread_mutex_destroy(&p.lock);
}
