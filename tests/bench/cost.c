/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost.c - what a command takes: "SECONDS PEAK_KIB" on stdout
 *
 *	cost COMMAND...		(its own output goes to /dev/null)
 *
 * The peak is that of the largest single process below the command that was
 * waited for, such as the parser's.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	double begin = seconds();
	struct rusage use;
	int status;
	pid_t pid;

	if (argc < 2)
		return 2;
	pid = fork();
	if (!pid) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, STDOUT_FILENO);
		execvp(argv[1], argv + 1);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return 1;
	begin = seconds() - begin;
	getrusage(RUSAGE_CHILDREN, &use);
	printf("%.3f %ld\n", begin, use.ru_maxrss);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
