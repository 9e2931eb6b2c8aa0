/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_range_lock.c - nobody has a byte that another has; nobody waits for ever
 */
#include "core/write/range_lock.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>

#define KEYS 3
#define BYTES 16
#define THREADS 6

static struct ck_range_locks range_locks;
static _Atomic int used[KEYS][BYTES];
static _Atomic int clashes;

static void use(const struct ck_range_lock *s, int by)
{
	for (unsigned i = 0; i < s->nr; i++)
		for (uint64_t b = s->part[i].from; b < s->part[i].to; b++)
			if (atomic_fetch_add(&used[s->part[i].key][b], by) !=
			    (by > 0 ? 0 : 1))
				clashes++;
}

static void *work(void *seed)
{
	unsigned r = (unsigned)(uintptr_t)seed;

	for (int n = 0; n < 3000; n++) {
		struct ck_range_lock s = { .nr = 1 +
						 (unsigned)(rand_r(&r) % 2) };

		for (unsigned i = 0; i < s.nr; i++) {
			uint64_t from = (unsigned)rand_r(&r) % BYTES;

			s.part[i].key = ((unsigned)n + i) % KEYS;
			s.part[i].from = from;
			s.part[i].to = from + (unsigned)rand_r(&r) %
						      (BYTES - from + 1);
		}
		ck_range_lock_begin(&range_locks, &s);
		use(&s, 1);
		use(&s, -1);
		ck_range_lock_end(&range_locks, &s);
	}
	return NULL;
}

Test(range_locks, one_writer_of_a_byte)
{
	pthread_t t[THREADS];

	ck_range_locks_init(&range_locks);
	for (uintptr_t i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&t[i], NULL, work, (void *)(i + 1)),
			     0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	cr_expect_eq(clashes, 0);
	cr_expect_null(range_locks.first);
	ck_range_locks_destroy(&range_locks);
}
