/* SPDX-License-Identifier: Apache-2.0 */
/* Runs in any order become few reads, and every byte has its place. */
#include "core/io/plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct ck_plan *p;
static unsigned char buf[1 << 20];
static const int fds[3] = { 10, 11, 12 };

static void setup(void)
{
	p = malloc(sizeof(*p));
	ck_plan_reset(p);
}

TestSuite(plan, .init = setup, .timeout = 30);

static bool add_run(uint64_t off, uint64_t len, size_t dst, unsigned src)
{
	const struct ck_seg seg = { .src_off = off, .dst = dst, .run = len };
	struct ck_runs it;

	ck_runs_init(&it, &seg);
	return ck_plan_add_all(p, &it, buf, src, 0);
}

static void add(uint64_t off, uint64_t len, size_t dst, unsigned src)
{
	cr_assert(add_run(off, len, dst, src));
}

Test(plan, neighbours_are_one_read)
{
	add(1000, 100, 0, 0);
	add(1100, 100, 100, 0);
	cr_expect_eq(p->nr_run, 1u);
	add(1200, 100, 500, 0);
	add(5, 10, 300, 1);
	ck_plan_make(p, fds);
	cr_assert_eq(p->nr_io, 2u);
	cr_expect_eq(p->io[0].fd, 10);
	cr_expect_eq(p->io[0].off, 1000u);
	cr_expect_eq(p->io[0].len, 300u);
	cr_expect_eq(p->io[0].nr_iov, 2u);
	cr_expect_eq(p->io[1].fd, 11);
	cr_expect_eq(ck_plan_bytes(p), 310u);
}

Test(plan, runs_are_sorted)
{
	add(3000, 1000, 0, 1);
	add(1000, 1000, 1000, 1);
	add(2000, 1000, 2000, 1);
	ck_plan_make(p, fds);
	cr_assert_eq(p->nr_io, 1u);
	cr_expect_eq(p->io[0].off, 1000u);
	cr_expect_eq(p->io[0].nr_iov, 2u); /* two are neighbours in buf too */
	cr_expect_eq(p->io[0].iov[0].iov_base, buf + 1000);
	cr_expect_eq(p->io[0].iov[0].iov_len, 2000u);
}

Test(plan, small_gaps_are_read_through)
{
	add(0, 1000, 0, 0);
	add(1000 + CK_PLAN_GAP, 1000, 1000, 0);
	ck_plan_make(p, fds);
	cr_assert_eq(p->nr_io, 1u);
	cr_expect_eq(p->io[0].nr_iov, 3u);
	cr_expect_eq(p->io[0].iov[1].iov_base, p->gap);
	cr_expect_eq(p->io[0].len, 2000u + CK_PLAN_GAP);
}

Test(plan, big_gaps_are_not)
{
	add(0, 2000, 0, 0);
	add(2001 + CK_PLAN_GAP, 2000, 2000, 0);
	add(20000, 10, 4000, 0);
	add(20000 + 10 + 71, 10, 4010, 0); /* 91 for 20 wanted */
	ck_plan_make(p, fds);
	cr_expect_eq(p->nr_io, 4u);
}

Test(plan, what_overlaps_is_read_twice)
{
	add(0, 1000, 0, 0);
	add(500, 1000, 1000, 0);
	ck_plan_make(p, fds);
	cr_expect_eq(p->nr_io, 2u);
}

Test(plan, full)
{
	for (unsigned i = 0; i < CK_PLAN_RUNS; i++)
		add((i + 1) * 100, 10, i * 20, 0);
	cr_expect_not(add_run(0, 10, 0, 0));
}

/* Any runs: the iovecs of the reads put each byte where its run says. */
Test(plan, random)
{
	for (unsigned seed = 1; seed <= 300; seed++) {
		unsigned nr, dst = 0;
		uint64_t wanted = 0;
		unsigned char *file = malloc(1 << 16), *want = malloc(1 << 20);

		srand(seed);
		for (unsigned i = 0; i < 1 << 16; i++)
			file[i] = (unsigned char)rand();
		memset(want, 0, 1 << 20);
		memset(buf, 0, sizeof(buf));
		ck_plan_reset(p);
		nr = (unsigned)rand() % 60 + 1;
		for (unsigned i = 0; i < nr; i++) {
			unsigned len = (unsigned)rand() % 3000 + 1;
			unsigned off = (unsigned)rand() % (65536 - len);

			memcpy(want + dst, file + off, len);
			add(off, len, dst, 0);
			dst += len + (unsigned)rand() % 3;
			wanted += len;
		}
		ck_plan_make(p, fds);
		for (unsigned i = 0; i < p->nr_io; i++) {
			uint64_t at = p->io[i].off, sum = 0;

			for (unsigned k = 0; k < p->io[i].nr_iov; k++) {
				struct iovec *v = &p->io[i].iov[k];

				memcpy(v->iov_base, file + at, v->iov_len);
				at += v->iov_len;
				sum += v->iov_len;
			}
			cr_assert_eq(sum, p->io[i].len);
		}
		cr_assert_arr_eq(buf, want, 1 << 20);
		cr_assert_leq(ck_plan_bytes(p), 4 * wanted);
		free(file);
		free(want);
	}
}

/* Rows of @run bytes, @step apart in the buffer; @twice, with a gap between. */
static struct ck_seg rows(uint64_t run, uint64_t n, int64_t step, bool twice)
{
	struct ck_seg seg = { .src_off = 5000, .run = run, .elem = 1 };

	if (twice)
		seg.ax[seg.nax++] =
			(struct ck_seg_axis){ 2, (int64_t)(n * run) + 8000,
					      (int64_t)n * step };
	seg.ax[seg.nax++] = (struct ck_seg_axis){ n, (int64_t)run, step };
	seg.nbytes = run * n << twice;
	return seg;
}

Test(plan, rows_that_are_one_stretch_of_the_source_are_one_run)
{
	struct ck_seg seg = rows(600, 7, 1000, true);
	struct ck_runs it;

	p->op = CK_IO_WRITE;
	ck_runs_init(&it, &seg);
	cr_assert(ck_plan_add_all(p, &it, buf, 2, 0));
	cr_expect_eq(p->nr_run, 2u);
	ck_plan_make(p, fds);
	cr_assert_eq(p->nr_io, 2u);
	for (unsigned i = 0; i < 2; i++) {
		cr_expect_eq(p->io[i].fd, 12);
		cr_expect_eq(p->io[i].off, 5000u + i * (7 * 600 + 8000));
		cr_expect_eq(p->io[i].len, 7u * 600);
		cr_assert_eq(p->io[i].nr_iov, 7u);
		for (unsigned k = 0; k < 7; k++) {
			cr_expect_eq(p->io[i].iov[k].iov_base,
				     buf + (i * 7 + k) * 1000);
			cr_expect_eq(p->io[i].iov[k].iov_len, 600u);
		}
	}
}

Test(plan, more_rows_than_fit_come_in_turns)
{
	struct ck_seg seg = rows(1, CK_PLAN_RUNS + 10, 200, false);
	struct ck_runs it;

	add(0, 10, 0, 1);
	ck_runs_init(&it, &seg);
	cr_assert_not(ck_plan_add_all(p, &it, buf, 0, 0));
	cr_expect_eq(p->nr_piece, (unsigned)CK_PLAN_RUNS);
	ck_plan_make(p, fds);
	cr_assert_eq(p->nr_io, 2u);
	cr_expect_eq(p->io[0].len, CK_PLAN_RUNS - 1u);
	ck_plan_reset(p);
	cr_assert(ck_plan_add_all(p, &it, buf, 0, 0));
	ck_plan_make(p, fds);
	cr_assert_eq(p->nr_io, 1u);
	cr_expect_eq(p->io[0].off, 5000u + CK_PLAN_RUNS - 1);
	cr_expect_eq(p->io[0].len, 11u);
	cr_expect_eq(p->io[0].iov[0].iov_base,
		     buf + (CK_PLAN_RUNS - 1) * UINT64_C(200));
}
