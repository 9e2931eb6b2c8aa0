/* SPDX-License-Identifier: Apache-2.0 */
/* Journals of what was written: damaged, of another version, and many. */
#include "tests/lib/slicekit.h"

#include "core/slices/claims.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(claims, .init = slicekit_setup, .fini = slicekit_teardown);

static const char plain[] =
	"{\"unshard_layout\":1,\"mesh\":{\"axes\":[{\"name\":\"tp\","
	"\"size\":2}]},\"tensors\":[{\"glob\":\"*\",\"dtype\":\"float32\","
	"\"shape\":[64,16],\"placement\":{\"tp\":{\"shard\":0}}}],"
	"\"write\":{\"tensors\":[{\"name\":\"w\"}]}}";

/* The journal of the mount that wrote one of two slices. */
static int write_one(void)
{
	char pattern[128];
	struct slicekit j;
	glob_t g = { 0 };
	int fd;

	slicekit_open(&j, "step", plain);
	slicekit_write_piece(j.sl, 0, 100);
	slicekit_close(&j);
	snprintf(pattern, sizeof(pattern), "%s/.staging-step/slices/w-*.log",
		 slicekit_top);
	cr_assert_eq(glob(pattern, 0, NULL, &g), 0);
	cr_assert_eq(g.gl_pathc, 1);
	fd = open(g.gl_pathv[0], O_RDWR);
	cr_assert(fd >= 0);
	globfree(&g);
	return fd;
}

Test(claims, damage_is_said)
{
	struct ck_err err = { 0 };
	int fd = write_one();
	char c;

	cr_assert_eq(pread(fd, &c, 1, 70), 1);
	c ^= 4;
	cr_assert_eq(pwrite(fd, &c, 1, 70), 1);
	close(fd);
	cr_expect_eq(slicekit_publish("step", &err), -EIO);
	cr_expect(strstr(err.msg, "slices/w-") &&
			  strstr(err.msg, ".log: byte 64: expected record 1"),
		  "%s", err.msg);
}

/* Logs of a version that had no journals. */
Test(claims, another_version_is_refused)
{
	struct ck_err err = { 0 };
	int fd = write_one();

	cr_assert_eq(pwrite(fd, "unshclm", 8, 0), 8);
	close(fd);
	cr_expect_eq(slicekit_publish("step", &err), -EINVAL);
	cr_expect(strstr(err.msg, "only the version that wrote it"), "%s",
		  err.msg);
}

/* ---- several that begin at once ---- */

#define WRITERS 4
#define TURNS 500
#define PART UINT64_C(64)

static struct begins {
	pthread_barrier_t all;
	int dir;
	const struct ck_slice_plan *plan;
	struct ck_claims *c[WRITERS];
} begins;

static void *begin(void *nr)
{
	uint64_t i = (uintptr_t)nr;
	struct ck_err err = { 0 };

	cr_assert_eq(
		ck_claims_open(&begins.c[i], begins.dir, begins.plan, &err), 0,
		"%s", err.msg);
	pthread_barrier_wait(&begins.all);
	cr_assert_eq(ck_claims_add(begins.c[i], 0, i * PART, PART, &err), 0,
		     "%s", err.msg);
	return NULL;
}

/* An earlier try's, which all that follow take over from each other. */
static void claim_the_last(struct begins *b)
{
	struct ck_err err = { 0 };
	struct ck_claims *c;

	cr_assert_eq(ck_claims_open(&c, b->dir, b->plan, &err), 0, "%s",
		     err.msg);
	cr_assert_eq(ck_claims_add(c, 0, WRITERS * PART, PART, &err), 0, "%s",
		     err.msg);
	ck_claims_close(c);
}

static void expect_all(const struct begins *b, unsigned turn)
{
	uint64_t from = 0, to = 0, end = (WRITERS + 1) * PART;
	struct ck_err err = { 0 };
	struct ck_claims *c;

	cr_assert_eq(ck_claims_open(&c, b->dir, b->plan, &err), 0, "%s",
		     err.msg);
	ck_claims_gap(c, 0, 0, end, &from, &to);
	cr_assert_eq(from, end, "turn %u: bytes %" PRIu64 " to %" PRIu64, turn,
		     from, to);
	ck_claims_close(c);
}

static void let_go(struct begins *b)
{
	struct ck_err err = { 0 };

	for (unsigned i = 0; i < WRITERS; i++) {
		cr_assert_eq(ck_claims_cut(b->c[i], 0, i * PART, PART, &err), 0,
			     "%s", err.msg);
		ck_claims_close(b->c[i]);
	}
}

/* None takes over the journal of another that is just being made. */
Test(claims, begun_at_once)
{
	pthread_t thread[WRITERS];
	char path[128];
	struct slicekit j;

	slicekit_open(&j, "step", plain);
	snprintf(path, sizeof(path), "%s/.staging-step/slices", slicekit_top);
	begins.dir = open(path, O_RDONLY | O_DIRECTORY);
	cr_assert(begins.dir >= 0);
	begins.plan = ck_slices_plan(j.sl);
	claim_the_last(&begins);
	pthread_barrier_init(&begins.all, NULL, WRITERS);
	for (unsigned turn = 0; turn < TURNS; turn++) {
		for (uintptr_t i = 0; i < WRITERS; i++)
			cr_assert(!pthread_create(&thread[i], NULL, begin,
						  (void *)i));
		for (unsigned i = 0; i < WRITERS; i++)
			pthread_join(thread[i], NULL);
		expect_all(&begins, turn);
		let_go(&begins);
	}
	pthread_barrier_destroy(&begins.all);
	close(begins.dir);
	slicekit_close(&j);
}

/* ---- what one mount cuts ---- */

static struct ck_claims *open_claims(void)
{
	struct ck_err err = { 0 };
	struct ck_claims *c;

	cr_assert_eq(ck_claims_open(&c, begins.dir, begins.plan, &err), 0, "%s",
		     err.msg);
	return c;
}

static void claim(struct ck_claims *c, uint64_t off, uint64_t len)
{
	struct ck_err err = { 0 };

	cr_assert_eq(ck_claims_add(c, 0, off, len, &err), 0, "%s", err.msg);
}

static void cut(struct ck_claims *c, uint64_t off, uint64_t len)
{
	struct ck_err err = { 0 };

	cr_assert_eq(ck_claims_cut(c, 0, off, len, &err), 0, "%s", err.msg);
}

static void expect_bytes(uint64_t off, uint64_t len, uint64_t bytes,
			 const char *when)
{
	struct ck_claims *c = open_claims();

	cr_expect_eq(ck_claims_bytes(c, 0, off, off + len), bytes,
		     "%s: %" PRIu64, when,
		     ck_claims_bytes(c, 0, off, off + len));
	ck_claims_close(c);
}

static void begin_cuts(struct slicekit *j)
{
	char path[128];

	slicekit_open(j, "step", plain);
	snprintf(path, sizeof(path), "%s/.staging-step/slices", slicekit_top);
	begins.dir = open(path, O_RDONLY | O_DIRECTORY);
	cr_assert(begins.dir >= 0);
	begins.plan = ck_slices_plan(j->sl);
}

static void end_cuts(struct slicekit *j)
{
	close(begins.dir);
	slicekit_close(j);
}

/* Journals are read in the order of the folder, which is any. */
Test(claims, a_cut_is_of_what_came_before)
{
	struct slicekit j;

	begin_cuts(&j);
	for (unsigned turn = 0; turn < 20; turn++) {
		struct ck_claims *x = open_claims(), *y = open_claims();

		claim(x, 0, PART);
		cut(x, 0, PART);
		claim(x, PART, PART);
		claim(y, 0, PART);
		expect_bytes(0, 2 * PART, 2 * PART, "cut, then written");
		cut(y, 0, 2 * PART);
		expect_bytes(0, 2 * PART, 0, "all are cut");
		ck_claims_close(x);
		ck_claims_close(y);
	}
	end_cuts(&j);
}

/* Of all that mounts have claimed, alive or not, before or since. */
Test(claims, a_cut_is_of_others_too)
{
	struct ck_claims *x, *y, *z;
	struct ck_err err = { 0 };
	uint64_t from, to;
	struct slicekit j;

	ck_claims_slack = 1024;
	begin_cuts(&j);
	x = open_claims();
	y = open_claims();
	claim(x, 0, 3 * PART);
	cut(y, 0, 2 * PART);
	expect_bytes(0, 3 * PART, PART, "cut by another");
	claim(y, 0, PART);
	expect_bytes(0, 3 * PART, 2 * PART, "a part is written");
	/* and by who had claimed it */
	cr_assert_eq(ck_claims_refresh(x, &err), 0, "%s", err.msg);
	ck_claims_gap(x, 0, 0, 3 * PART, &from, &to);
	cr_expect(from == PART && to == 2 * PART, "%" PRIu64 " %" PRIu64, from,
		  to);
	claim(x, PART, PART);
	expect_bytes(0, 3 * PART, 3 * PART, "all is written");
	cut(y, 2 * PART, PART);
	/* journals that are written anew, and of mounts that have ended */
	for (unsigned i = 0; i < 100; i++) {
		claim(x, 6 * PART, PART);
		cut(x, 6 * PART, PART);
		claim(y, 7 * PART, PART);
		cut(y, 7 * PART, PART);
	}
	expect_bytes(0, 3 * PART, 2 * PART, "written anew");
	ck_claims_close(y);
	expect_bytes(0, 3 * PART, 2 * PART, "one has ended");
	z = open_claims();
	claim(z, 5 * PART, PART);
	expect_bytes(0, 6 * PART, 3 * PART, "and was taken over");
	ck_claims_close(x);
	ck_claims_close(z);
	z = open_claims();
	claim(z, 4 * PART, PART);
	expect_bytes(0, 6 * PART, 4 * PART, "all have ended");
	cut(z, 0, 6 * PART);
	expect_bytes(0, 6 * PART, 0, "nothing is left");
	ck_claims_close(z);
	end_cuts(&j);
}

/* Who has not heard that his claims are over claims what he writes then. */
Test(claims, written_after_a_cut_by_another)
{
	struct ck_claims *x, *y;
	struct slicekit j;

	begin_cuts(&j);
	x = open_claims();
	y = open_claims();
	claim(x, 0, 2 * PART);
	cut(y, 0, 2 * PART);
	claim(x, PART, PART);
	expect_bytes(0, 2 * PART, PART, "written after the cut");
	ck_claims_close(x);
	ck_claims_close(y);
	end_cuts(&j);
}

static void sync_it(struct ck_claims *c, int fd, bool really, const char *what)
{
	struct ck_err err = { 0 };
	bool lost;

	cr_expect_eq(ck_claims_unsafe(c, 0), really, "%s", what);
	cr_assert_eq(ck_claims_sync(c, 0, fd, &lost, &err), 0, "%s: %s", what,
		     err.msg);
	cr_expect_not(ck_claims_unsafe(c, 0), "%s: afterwards", what);
}

/* What is durable and is written once more is made durable once more. */
Test(claims, written_again_is_not_durable)
{
	struct ck_claims *x, *y;
	struct slicekit j;

	begin_cuts(&j);
	x = open_claims();
	y = open_claims();
	claim(x, 0, 2 * PART);
	sync_it(x, begins.dir, true, "written");
	sync_it(x, begins.dir, false, "nothing since");
	claim(x, PART / 2, 4);
	sync_it(x, begins.dir, true, "written again");
	cut(y, 0, 2 * PART);
	claim(x, PART, 4);
	sync_it(x, begins.dir, true, "written again after a cut");
	expect_bytes(0, 2 * PART, 4, "what is left");
	claim(x, PART, 4);
	cut(x, 0, 2 * PART);
	sync_it(x, begins.dir, true, "cut again");
	expect_bytes(0, 2 * PART, 0, "nothing is left");
	ck_claims_close(x);
	ck_claims_close(y);
	end_cuts(&j);
}

/* A journal is written anew, or taken over, while another mount cuts what it says. */
struct busy {
	struct ck_claims *c;
	atomic_bool stop;
};

static void *write_anew(void *ctx)
{
	struct busy *b = ctx;

	while (!atomic_load(&b->stop)) {
		claim(b->c, 6 * PART, PART);
		cut(b->c, 6 * PART, PART);
	}
	return NULL;
}

Test(claims, cut_while_it_is_written_anew)
{
	struct ck_err err = { 0 };
	struct busy x = { 0 };
	struct ck_claims *y;
	pthread_t thread;
	struct slicekit j;

	ck_claims_slack = 1024;
	begin_cuts(&j);
	x.c = open_claims();
	y = open_claims();
	claim(y, 5 * PART, PART);
	claim(x.c, 0, PART);
	cr_assert(!pthread_create(&thread, NULL, write_anew, &x));
	for (unsigned turn = 0; turn < 300; turn++) {
		claim(x.c, 0, PART);
		/* who looked a moment ago might not look again */
		cr_assert_eq(ck_claims_refresh(y, &err), 0, "%s", err.msg);
		cut(y, 0, PART);
		expect_bytes(0, PART, 0, "cut");
	}
	atomic_store(&x.stop, true);
	pthread_join(thread, NULL);
	ck_claims_close(x.c);
	ck_claims_close(y);
	end_cuts(&j);
}
