/* SPDX-License-Identifier: Apache-2.0 */
/* Stretches of a file, against a plain array of flags. */
#include "core/base/intervals.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define N 4000

static void compare(const struct ck_intervals *r, const bool *flag)
{
	const struct ck_interval *run;
	size_t total = 0;
	uint64_t at = 0;

	while ((run = ck_intervals_at(r, at))) {
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
	struct ck_intervals r = { 0 };

	memset(flag, 0, sizeof(flag));
	srandom(seed);
	for (int i = 0; i < rounds; i++) {
		uint64_t off = (uint64_t)random() % N;
		uint64_t end = off + (uint64_t)random() % longest;
		bool put = random() % 10 >= cuts;

		end = end > N ? N : end;
		if (end > off)
			memset(flag + off, put, end - off);
		cr_assert_eq(put ? ck_intervals_add(&r, off, end) :
				   ck_intervals_cut(&r, off, end),
			     0);
		if (i % 64 == 0)
			compare(&r, flag);
	}
	compare(&r, flag);
	ck_intervals_free(&r);
}

Test(intervals, short_ones)
{
	/* more than one block of them */
	drive(1, 3, 6000, 3);
}

Test(intervals, long_ones)
{
	drive(2, 400, 3000, 5);
}

Test(intervals, only_added)
{
	drive(3, 2, 20000, 0);
}

Test(intervals, one_after_the_other_is_one)
{
	struct ck_intervals r = { 0 };

	for (uint64_t i = 0; i < 100000; i++)
		cr_assert_eq(ck_intervals_add(&r, i * 7, i * 7 + 7), 0);
	cr_assert_eq(r.total, 1);
	cr_assert_eq(r.nr, 1);
	ck_intervals_free(&r);
}
