/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/whole.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define LEN ((uint64_t)5 * 128 * 1024 + 77)
#define OFF UINT64_C(1001)

static unsigned char *numbered(void)
{
	unsigned char *all = malloc(LEN);

	cr_assert(all);
	for (uint64_t i = 0; i < LEN; i++)
		all[i] = (unsigned char)(i * 7 + i / 4096);
	return all;
}

/* More than one call is to write. */
Test(whole, writes_what_many_calls_take)
{
	unsigned char *all = numbered(), *got = malloc(LEN + 1);
	int fd = memfd_create("whole", MFD_CLOEXEC);

	cr_assert(got && fd >= 0);
	cr_assert_eq(ck_pwrite_whole(fd, all, LEN, OFF), 0);
	cr_assert_eq(ck_pread_most(fd, got, LEN + 1, OFF), (ssize_t)LEN);
	cr_expect_eq(ck_pread_whole(fd, got, LEN, OFF), 0);
	cr_expect_eq(ck_pread_whole(fd, got, LEN + 1, OFF), -EIO);
	cr_assert_eq(memcmp(got, all, LEN), 0);
	close(fd);
	free(got);
	free(all);
}

/* The first calls had room. */
Test(whole, says_what_a_later_call_met)
{
	struct rlimit most = { OFF + LEN / 2, OFF + LEN / 2 };
	unsigned char *all = numbered();
	char path[] = "/tmp/unshard-whole.XXXXXX";
	int fd = mkstemp(path);

	cr_assert(fd >= 0 && !unlink(path));
	signal(SIGXFSZ, SIG_IGN);
	cr_assert(!setrlimit(RLIMIT_FSIZE, &most));
	cr_assert_eq(ck_pwrite_whole(fd, all, LEN, OFF), -EFBIG);
	close(fd);
	free(all);
}
