/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/fds.h"

#include <criterion/criterion.h>
#include <fcntl.h>
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
