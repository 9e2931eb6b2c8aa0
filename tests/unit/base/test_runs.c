/* SPDX-License-Identifier: Apache-2.0 */
/* Stretches of a file, against a plain array of flags. */
#include "core/base/runs.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define N 4000

static void compare(const struct ck_runs *r, const bool *flag)
{
	const struct ck_run *run;
	size_t total = 0;
	uint64_t at = 0;

	while ((run = ck_runs_at(r, at))) {
		for (; at < run->off; at++)
			cr_assert(!flag[at], "%llu is missing",
				  (unsigned long long)at);
		for (; at < run->end; at++)
			cr_assert(flag[at], "%llu was never put in",
				  (unsigned long long)at);
		cr_assert(!flag[at], "two that touch");
		total++;
	}
	for (; at < N; at++)
		cr_assert(!flag[at]);
	cr_assert_eq(total, r->total);
}

static void drive(unsigned seed, unsigned longest, int rounds, int cuts)
{
	static bool flag[N + 1];
	struct ck_runs r = { 0 };

	memset(flag, 0, sizeof(flag));
	srandom(seed);
	for (int i = 0; i < rounds; i++) {
		uint64_t off = (uint64_t)random() % N;
		uint64_t end = off + (uint64_t)random() % longest;
		bool put = random() % 10 >= cuts;

		end = end > N ? N : end;
		if (end > off)
			memset(flag + off, put, end - off);
		cr_assert_eq(put ? ck_runs_add(&r, off, end) :
				   ck_runs_cut(&r, off, end),
			     0);
		if (i % 64 == 0)
			compare(&r, flag);
	}
	compare(&r, flag);
	ck_runs_free(&r);
}

Test(runs, short_ones)
{
	/* more than one block of them */
	drive(1, 3, 6000, 3);
}

Test(runs, long_ones)
{
	drive(2, 400, 3000, 5);
}

Test(runs, only_added)
{
	drive(3, 2, 20000, 0);
}

Test(runs, one_after_the_other_is_one)
{
	struct ck_runs r = { 0 };

	for (uint64_t i = 0; i < 100000; i++)
		cr_assert_eq(ck_runs_add(&r, i * 7, i * 7 + 7), 0);
	cr_assert_eq(r.total, 1);
	cr_assert_eq(r.nr, 1);
	ck_runs_free(&r);
}
