/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which opens the kernel is told to read by itself: a thread stands in for the
 * process that asks it, and numbers what it is sent.
 */
#include "fs/cache/passed.h"

#include "core/base/fds.h"
#include "fs/kernel/passthrough.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define INO UINT64_C(0x100000007)

static int own;
static int32_t refusal; /* in place of a number */
static int added, dropped; /* how many were */
static struct fs_kernel kernel;
static struct fs_passed *p;
static pthread_t thread;
static int a, b;

static void *answers(void *arg)
{
	uint32_t drop;
	ssize_t n;

	(void)arg;
	do {
		int fd[2] = { -1, -1 };
		unsigned nr = 2;
		int32_t said;

		n = ck_fds_receive(own, &drop, sizeof(drop), fd, &nr, 0);
		for (unsigned i = 0; i < nr; i++)
			close(fd[i]);
		if (n != sizeof(drop))
			break;
		dropped += drop > 0;
		said = drop ? 0 : refusal ? refusal : ++added;
		n = send(own, &said, sizeof(said), MSG_NOSIGNAL);
	} while (n > 0);
	return NULL;
}

static void start(void)
{
	struct fs_passed_in in = { .kernel = &kernel };

	a = memfd_create("a", MFD_CLOEXEC);
	b = memfd_create("b", MFD_CLOEXEC);
	in.dev = a;
	kernel.passthrough = true;
	cr_assert(!fs_passthrough_pair(&own, &in.worker, NULL));
	p = fs_passed_new(&in);
	cr_assert(p);
	cr_assert(!pthread_create(&thread, NULL, answers, NULL));
}

static void stop(void)
{
	fs_passed_free(p);
	pthread_join(thread, NULL);
	close(own);
	close(a);
	close(b);
}

TestSuite(passed, .init = start, .fini = stop);

Test(passed, one_number_for_all_that_have_it_open)
{
	cr_assert_eq(fs_passed_open(p, INO, a, false), 1);
	cr_assert_eq(fs_passed_open(p, INO, a, false), 1);
	cr_assert_eq(kernel.cache.passthrough, 1);
	fs_passed_close(p, INO, 1);
	cr_assert_eq(dropped, 0);
	fs_passed_close(p, INO, 1);
	cr_assert_eq(dropped, 1, "nobody has it open");
	cr_assert_eq(fs_passed_open(p, INO, b, false), 2, "another file then");
	fs_passed_close(p, INO, 2);
}

/* A kept copy: until it is dropped, or another stands for it. */
Test(passed, rests)
{
	cr_assert_eq(fs_passed_open(p, INO, a, true), 1);
	fs_passed_close(p, INO, 1);
	cr_assert_eq(fs_passed_open(p, INO, a, true), 1);
	fs_passed_close(p, INO, 1);
	cr_assert_eq(dropped, 0);
	cr_assert_eq(fs_passed_open(p, INO, b, true), 2);
	cr_assert_eq(dropped, 1);
	fs_passed_forget(p, INO);
	fs_passed_close(p, INO, 2);
	cr_assert_eq(dropped, 2, "forgotten while it was open");
	cr_assert_eq(fs_passed_open(p, fs_ino_turn(INO, 3), b, true), 3);
	fs_passed_close(p, fs_ino_turn(INO, 3), 3);
	fs_passed_forget(p, INO);
	cr_assert_eq(dropped, 3);
	cr_assert_eq(fs_passed_open(p, INO, -1, false), 0);
	fs_passed_close(p, INO, 0);
}

Test(passed, not_beside_who_reads_otherwise)
{
	cr_assert_eq(fs_passed_open(p, INO, -1, false), 0);
	cr_assert_eq(fs_passed_open(p, INO, a, false), 0);
	fs_passed_close(p, INO, 0);
	cr_assert_eq(fs_passed_open(p, INO, a, false), 0);
	fs_passed_close(p, INO, 0);
	fs_passed_close(p, INO, 0);
	cr_assert_eq(added, 0);
	cr_assert_eq(fs_passed_open(p, INO, a, false), 1);
	fs_passed_close(p, INO, 1);
}

/* Whatever stands for it now, or nothing: a number of its own. */
Test(passed, another_file_is_another_inode)
{
	uint64_t second;

	cr_assert_eq(fs_passed_ino(p, INO), INO);
	cr_assert_eq(fs_passed_open(p, INO, a, false), 1);
	cr_assert_eq(fs_passed_ino(p, INO), INO);
	cr_assert_eq(fs_passed_open(p, INO, b, false), -ESTALE);
	second = fs_passed_ino(p, INO);
	cr_assert_eq(second, fs_ino_turn(INO, 1));
	cr_assert_eq(fs_passed_open(p, second, b, false), 2);
	cr_assert_eq(fs_passed_open(p, INO, a, false), -ESTALE, "it is left");
	cr_assert_eq(fs_passed_open(p, second, -1, false), -ESTALE);
	cr_assert_eq(fs_passed_ino(p, second), fs_ino_turn(INO, 2));
	fs_passed_close(p, INO, 1);
	cr_assert_eq(fs_passed_ino(p, INO), INO);
	fs_passed_close(p, second, 2);
	cr_assert_eq(dropped, 2);
}

Test(passed, left_by_who_knows_better)
{
	cr_assert_eq(fs_passed_open(p, INO, -1, false), 0);
	fs_passed_leave(p, INO);
	cr_assert_eq(fs_passed_open(p, INO, -1, false), -ESTALE);
	cr_assert_eq(fs_passed_ino(p, INO), fs_ino_turn(INO, 1));
	fs_passed_close(p, INO, 0);
	cr_assert_eq(fs_passed_open(p, INO, -1, false), 0);
	fs_passed_close(p, INO, 0);
}

Test(passed, more_contents_than_numbers)
{
	uint64_t ino = INO;

	for (unsigned i = 0; i < FS_INO_TURNS; i++) {
		ino = fs_passed_ino(p, INO);
		cr_assert_eq(ino, fs_ino_turn(INO, i));
		cr_assert_eq(fs_passed_open(p, ino, -1, false), 0);
		fs_passed_leave(p, INO);
	}
	cr_assert_eq(fs_passed_open(p, fs_passed_ino(p, INO), -1, false),
		     -ESTALE);
	fs_passed_close(p, fs_ino_turn(INO, 5), 0);
	cr_assert_eq(fs_passed_ino(p, INO), fs_ino_turn(INO, 5));
	for (unsigned i = 0; i < FS_INO_TURNS; i++)
		if (i != 5)
			fs_passed_close(p, fs_ino_turn(INO, i), 0);
}

/* One file system is stacked: the others may not be. */
Test(passed, a_file_that_cannot_be)
{
	refusal = -ELOOP;
	cr_assert_not(fs_passed_can(p, a));
	cr_assert_eq(fs_passed_open(p, INO, a, false), 0);
	refusal = 0;
	cr_assert_eq(fs_passed_open(p, INO + 1, b, false), 1);
	fs_passed_close(p, INO + 1, 1);
	fs_passed_close(p, INO, 0);
}

Test(passed, nobody_may)
{
	refusal = -EPERM;
	cr_assert_not(fs_passed_can(p, a));
	refusal = 0;
	cr_assert_eq(fs_passed_open(p, INO, a, false), 0,
		     "it is not asked again");
	cr_assert_eq(added, 0);
	fs_passed_close(p, INO, 0);
}

Test(passed, the_other_process_ends)
{
	cr_assert_eq(fs_passed_open(p, INO, a, false), 1);
	shutdown(own, SHUT_RDWR);
	cr_assert_eq(fs_passed_open(p, INO, a, false), 1,
		     "as long as it is open");
	cr_assert_eq(fs_passed_open(p, INO + 1, b, false), 0);
	cr_assert_eq(kernel.cache.passthrough, 0);
	fs_passed_close(p, INO, 1);
	fs_passed_close(p, INO, 1);
	fs_passed_close(p, INO + 1, 0);
	cr_assert_eq(fs_passed_open(p, INO, a, false), 0);
	fs_passed_close(p, INO, 0);
}

Test(passed, not_agreed_on)
{
	kernel.passthrough = false;
	cr_assert_not(fs_passed_can(p, a));
	cr_assert_eq(fs_passed_open(p, INO, a, false), 0);
	fs_passed_close(p, INO, 0);
}
