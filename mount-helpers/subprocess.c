/* SPDX-License-Identifier: Apache-2.0 */
/* subprocess.c - fork, and wait */
#include "mount-helpers/subprocess.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int cmd_subprocess(const struct cmd *c, const char *what, int (*fn)(void *ctx),
		   void *ctx)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return cmd_fail(c, CMD_SYSTEM, "fork: %s", strerror(errno));
	if (!pid)
		_exit(fn(ctx));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return cmd_fail(c, CMD_SYSTEM, "wait: %s",
					strerror(errno));
	if (WIFSIGNALED(status))
		return cmd_fail(c, CMD_SYSTEM, "%s was killed: %s", what,
				strsignal(WTERMSIG(status)));
	return WEXITSTATUS(status);
}
