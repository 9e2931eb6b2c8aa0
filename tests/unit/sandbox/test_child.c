/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/child.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static struct ck_err err;

static int call(int (*run)(void *, struct ck_err *), void *ctx, const int *keep,
		unsigned nr, unsigned seconds)
{
	struct ck_child c = {
		.what = "the parser",
		.hint = "",
		.run = run,
		.ctx = ctx,
		.keep = keep,
		.nr_keep = nr,
		.seconds = seconds,
	};

	return ck_child_call(&c, &err);
}

static int writes(void *ctx, struct ck_err *e)
{
	int *fd = ctx;

	return write(*fd, "image", 5) == 5 ? 0 : ck_fail(e, EIO, "write");
}

Test(child, works_on_kept_descriptors)
{
	int fd = memfd_create("t", MFD_CLOEXEC);
	char got[6] = "";

	cr_assert(!call(writes, &fd, &fd, 1, 5), "%s", err.msg);
	cr_assert(pread(fd, got, 5, 0) == 5);
	cr_expect_str_eq(got, "image");
}

/* Two ends of pipes: it ends when it has read what the other process writes. */
static int reads(void *ctx, struct ck_err *e)
{
	int *ends = ctx;
	char byte;

	return read(ends[0], &byte, 1) == 1 ? 0 : ck_fail(e, EIO, "read");
}

static void writes_meanwhile(void *ctx)
{
	int *ends = ctx;

	cr_assert(write(ends[1], "x", 1) == 1);
}

Test(child, caller_works_meanwhile)
{
	int ends[2];
	struct ck_child c = {
		.what = "the parser",
		.hint = "",
		.run = reads,
		.meanwhile = writes_meanwhile,
		.ctx = ends,
		.keep = ends,
		.nr_keep = 1,
		.seconds = 20,
	};

	cr_assert(!pipe(ends));
	cr_assert(!ck_child_call(&c, &err), "%s", err.msg);
}

static int is_closed(void *ctx, struct ck_err *e)
{
	int *fd = ctx;

	return fcntl(*fd, F_GETFD) < 0 ? 0 : ck_fail(e, EBUSY, "open");
}

Test(child, others_are_closed)
{
	int fd = memfd_create("t", MFD_CLOEXEC);

	cr_expect(!call(is_closed, &fd, NULL, 0, 5), "%s", err.msg);
	cr_expect(call(is_closed, &fd, &fd, 1, 5) == -EBUSY);
}

static int fails(void *ctx, struct ck_err *e)
{
	(void)ctx;
	return ck_fail(e, EXDEV, "x.bin, byte 7: expected 1, found 2");
}

Test(child, its_error_comes_back)
{
	cr_expect(call(fails, NULL, NULL, 0, 5) == -EXDEV);
	cr_expect(err.code == EXDEV);
	cr_expect_str_eq(err.msg, "x.bin, byte 7: expected 1, found 2");
}

static int crashes(void *ctx, struct ck_err *e)
{
	(void)e;
	raise(*(int *)ctx);
	return 0;
}

Test(child, its_death_is_an_error)
{
	int sig = SIGKILL;

	cr_expect(call(crashes, &sig, NULL, 0, 5) == -EINVAL);
	cr_expect(strstr(err.msg, "the parser died (signal 9"), "%s", err.msg);
	sig = SIGTERM;
	cr_expect(call(crashes, &sig, NULL, 0, 5) == -EINVAL);
	cr_expect(strstr(err.msg, "signal 15"), "%s", err.msg);
}

static int exits(void *ctx, struct ck_err *e)
{
	(void)ctx;
	(void)e;
	_exit(7);
	return 0;
}

Test(child, an_end_without_an_answer_is_an_error)
{
	cr_expect(call(exits, NULL, NULL, 0, 5) == -EINVAL);
	cr_expect(strstr(err.msg, "exit 7"), "%s", err.msg);
}

static int hangs(void *ctx, struct ck_err *e)
{
	(void)ctx;
	(void)e;
	while (pause())
		;
	return 0;
}

Test(child, a_hang_is_killed, .timeout = 10)
{
	time_t start = time(NULL);

	cr_expect(call(hangs, NULL, NULL, 0, 1) == -ETIMEDOUT);
	cr_expect(strstr(err.msg, "more than 1 s"), "%s", err.msg);
	cr_expect(time(NULL) - start <= 3);
}

static int spins(void *ctx, struct ck_err *e)
{
	volatile unsigned n = 0;

	(void)ctx;
	(void)e;
	for (;;)
		n++;
	return 0;
}

/* Of the time that it has a processor, however long others have it. */
Test(child, its_processor_time_has_a_limit, .timeout = 120)
{
	struct ck_child c = {
		.what = "the parser",
		.hint = "(more)",
		.run = spins,
		.seconds = 100,
		.cpu = 1,
	};

	cr_expect(ck_child_call(&c, &err) == -ETIMEDOUT);
	cr_expect_str_eq(err.msg, "the parser needed more than 1 s of "
				  "processor time (more)");
	c.run = exits;
	cr_expect(ck_child_call(&c, &err) == -EINVAL);
}

/* Handlers of the program neither run in the child nor are changed here. */
static void handler(int sig)
{
	(void)sig;
}

static int has_default(void *ctx, struct ck_err *e)
{
	struct sigaction sa;

	(void)ctx;
	sigaction(SIGUSR1, NULL, &sa);
	return sa.sa_handler == SIG_DFL ? 0 : ck_fail(e, EBUSY, "handler");
}

Test(child, signals_are_its_own)
{
	struct sigaction sa;

	signal(SIGUSR1, handler);
	cr_expect(!call(has_default, NULL, NULL, 0, 5), "%s", err.msg);
	sigaction(SIGUSR1, NULL, &sa);
	cr_expect(sa.sa_handler == handler);
}

static void *churn(void *stop)
{
	while (!atomic_load((atomic_bool *)stop))
		free(malloc(4096));
	return NULL;
}

static int allocates(void *ctx, struct ck_err *e)
{
	(void)ctx;
	for (int i = 0; i < 100; i++) {
		void *p = malloc((size_t)i * 1000 + 1);

		if (!p)
			return ck_fail(e, ENOMEM, "malloc");
		free(p);
	}
	return 0;
}

/* A library is called from programs that have threads inside malloc(). */
Test(child, works_beside_busy_threads, .timeout = 60)
{
	atomic_bool stop = false;
	pthread_t th[3];

	for (int i = 0; i < 3; i++)
		cr_assert(!pthread_create(&th[i], NULL, churn, &stop));
	for (int i = 0; i < 50; i++)
		cr_assert(!call(allocates, NULL, NULL, 0, 10), "%s", err.msg);
	atomic_store(&stop, true);
	for (int i = 0; i < 3; i++)
		pthread_join(th[i], NULL);
}
