/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks against digests: by many threads at once, each is read once. */
#include "core/io/checked.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

enum { SHIFT = 12, BLOCK = 1 << SHIFT, READERS = 4 };

static unsigned char bytes[BLOCK]; /* of a file of one block */
static atomic_int reads, came;
static sem_t begun, go;
static struct ck_checked *s;

static void run(struct ck_engine *e, struct ck_io *io, unsigned nr)
{
	(void)e;
	for (unsigned i = 0; i < nr; i++) {
		reads++;
		sem_post(&begun);
		while (sem_wait(&go))
			;
		memcpy(io[i].iov->iov_base, bytes + io[i].off, io[i].len);
		io[i].res = 0;
	}
}

static struct ck_engine *open_it(struct ck_err *err);
static void close_it(struct ck_engine *e)
{
	(void)e;
}
static const struct ck_engine_ops ops = { "counts", open_it, run, close_it };
static struct ck_engine *open_it(struct ck_err *err)
{
	static struct ck_engine e = { &ops };

	(void)err;
	return &e;
}

static void *use(void *arg)
{
	struct ck_err err;

	(void)arg;
	came++;
	return (void *)(intptr_t)ck_checked_use(s, &ops, 0, -1, "f", 0, 16,
						&err);
}

/* All of them, the first of which is in the middle of the block when others come. */
static void read_by_all(int *ret)
{
	pthread_t t[READERS];
	struct timespec until;
	void *said;

	for (int i = 0; i < READERS; i++) {
		cr_assert(!pthread_create(&t[i], NULL, use, NULL));
		if (!i)
			cr_assert(!sem_wait(&begun));
	}
	while (came < READERS)
		sched_yield();
	/* None should; one that reads it too has begun by then, mostly. */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 50000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	sem_timedwait(&begun, &until);
	for (int i = 0; i < READERS; i++)
		sem_post(&go);
	for (int i = 0; i < READERS; i++) {
		cr_assert(!pthread_join(t[i], &said));
		ret[i] = (int)(intptr_t)said;
	}
}

static void setup(uint64_t add)
{
	uint64_t digest;

	memset(bytes, 7, sizeof(bytes));
	digest = XXH3_64bits(bytes, sizeof(bytes)) + add;
	cr_assert(!sem_init(&begun, 0, 0) && !sem_init(&go, 0, 0));
	s = ck_checked_new(1, SHIFT);
	cr_assert(s && !ck_checked_add(s, 0, BLOCK, &digest, NULL));
}

Test(checked, a_block_that_many_want_is_read_once, .timeout = 60)
{
	int ret[READERS];

	setup(0);
	read_by_all(ret);
	for (int i = 0; i < READERS; i++)
		cr_expect_eq(ret[i], 0);
	cr_expect_eq(reads, 1);
	ck_checked_free(s);
}

Test(checked, who_waits_for_a_bad_block_fails_too, .timeout = 60)
{
	int ret[READERS];

	setup(1);
	read_by_all(ret);
	for (int i = 0; i < READERS; i++)
		cr_expect_eq(ret[i], -EIO);
	cr_expect_eq(reads, READERS);
	ck_checked_free(s);
}
