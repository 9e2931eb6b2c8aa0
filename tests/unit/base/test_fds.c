/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/fds.h"
#include "core/base/whole.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int open_null(void)
{
	return open("/dev/null", O_RDONLY);
}

static int is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* Runs in a child, for it closes what the test framework uses. */
static int child(void)
{
	int a = open_null(), b = open_null(), c = open_null();
	int keep[] = { c, -1, a, a };

	ck_fds_close_others(keep, 4);
	return is_open(a) && !is_open(b) && is_open(c) && !is_open(0) &&
			       !is_open(c + 1) ?
		       42 :
		       1;
}

Test(fds, only_those_kept_stay_open)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(child());
	cr_assert(waitpid(pid, &status, 0) == pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42, "%x", status);
}

static unsigned nr_open(void)
{
	unsigned nr = 0;

	for (int fd = 0; fd < 200; fd++)
		nr += (unsigned)is_open(fd);
	return nr;
}

Test(fds, a_message_brings_them)
{
	int s[2], out[3], in[3];
	unsigned nr = 3, before;
	char said[8];

	cr_assert(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s));
	for (unsigned i = 0; i < 3; i++)
		out[i] = open_null();
	cr_assert_eq(
		ck_fds_receive(s[1], said, sizeof(said), in, &nr, MSG_DONTWAIT),
		-EAGAIN);
	cr_assert_eq(nr, 0);
	for (unsigned room = 0; room <= 3; room++) {
		cr_assert_eq(ck_fds_send(s[0], "abc", 3, out, 3, 0), 3);
		before = nr_open();
		nr = room;
		cr_assert_eq(
			ck_fds_receive(s[1], said, sizeof(said), in, &nr, 0),
			3);
		cr_assert(!memcmp(said, "abc", 3));
		cr_assert_eq(nr, room);
		cr_assert_eq(nr_open(), before + room, "room for %u", room);
		for (unsigned i = 0; i < nr; i++)
			cr_assert(fcntl(in[i], F_GETFD) == FD_CLOEXEC);
	}
	nr = 1;
	cr_assert_eq(ck_fds_send(s[0], "x", 1, NULL, 0, 0), 1);
	cr_assert_eq(ck_fds_receive(s[1], said, 1, in, &nr, 0), 1);
	cr_assert_eq(nr, 0);
	close(s[1]);
	cr_assert_eq(ck_fds_send(s[0], "x", 1, NULL, 0, 0), -EPIPE);
}

/* What is there goes as a whole, and what was left of an earlier try with it. */
Test(fds, puts_a_file_in_place)
{
	char path[] = "/tmp/unshard-put.XXXXXX", *bytes;
	int dir, fd;
	size_t len;

	cr_assert(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY);
	cr_assert_eq(ck_fds_put_file(dir, "a", NULL, 0600, "one", 3), 0);
	cr_expect_eq(ck_fds_put_file(dir, "a", NULL, 0600, "two", 3), -EEXIST);
	cr_assert(!linkat(dir, "a", dir, "b", 0));
	cr_expect_eq(ck_fds_put_file(dir, "a", "b", 0600, "three", 5), 0);
	cr_expect(!ck_fds_has(dir, "b"));
	fd = openat(dir, "a", O_RDONLY);
	cr_expect_eq(ck_read_file(fd, 4, &bytes, &len), -EFBIG);
	cr_assert_eq(ck_read_file(fd, 5, &bytes, &len), 0);
	cr_expect(len == 5 && !strcmp(bytes, "three"));
	cr_expect_eq(ck_read_file(dir, 5, &bytes, &len), -EINVAL);
	free(bytes);
	close(fd);
	unlinkat(dir, "a", 0);
	close(dir);
	rmdir(path);
}

/* Of open files, not of processes. */
Test(fds, locks_a_byte)
{
	char path[] = "/tmp/unshard-lock.XXXXXX";
	int a = mkstemp(path), b = open(path, O_RDWR);

	cr_assert(a >= 0 && b >= 0 && !unlink(path));
	cr_assert_eq(ck_fds_lock(a, 1, F_RDLCK), 0);
	cr_expect_eq(ck_fds_lock(b, 1, F_RDLCK), 0);
	cr_expect_eq(ck_fds_lock(b, 1, F_WRLCK), -EBUSY);
	cr_expect(ck_fds_is_locked(b, 1) && !ck_fds_is_locked(b, 0));
	cr_expect_eq(ck_fds_lock(a, 1, F_UNLCK), 0);
	cr_expect(!ck_fds_is_locked(b, 1));
	cr_expect_eq(ck_fds_lock(b, 1, F_WRLCK), 0);
	close(b);
	cr_expect(!ck_fds_is_locked(a, 1));
	close(a);
	cr_expect_eq(ck_fds_lock(a, 0, F_RDLCK), -EOPNOTSUPP);
}
