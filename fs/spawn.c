/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

void fs_catch_begin(struct fs_catch *c)
{
	fflush(stderr);
	c->saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	c->file = memfd_create("unshard-stderr", MFD_CLOEXEC);
	if (c->file >= 0)
		dup2(c->file, STDERR_FILENO);
}

void fs_catch_end(struct fs_catch *c, char *said, size_t size)
{
	ssize_t n = -1;

	fflush(stderr);
	if (c->file >= 0) {
		n = pread(c->file, said, size - 1, 0);
		close(c->file);
	}
	said[n > 0 ? n : 0] = '\0';
	said[strcspn(said, "\n")] = '\0';
	if (c->saved >= 0) {
		dup2(c->saved, STDERR_FILENO);
		close(c->saved);
	} else {
		close(STDERR_FILENO); /* it was closed before */
	}
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

int fs_spawn(const char *const argv[], char *said, size_t size)
{
	struct fs_catch c;
	pid_t pid;
	int ret;

	fs_catch_begin(&c);
	ret = -posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv,
			    environ);
	if (!ret)
		ret = wait_for(pid);
	fs_catch_end(&c, said, size);
	return ret;
}
