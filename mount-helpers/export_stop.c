/* SPDX-License-Identifier: Apache-2.0 */
/* export_stop.c - signals between two processes; see the header */
#include "mount-helpers/export_stop.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

static volatile sig_atomic_t asked; /* the one that came */
static volatile pid_t writer;

/* Those that are ignored (nohup, a shell's background) stay so. */
static void on_signals(void (*handler)(int))
{
	static const int sigs[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa = { .sa_handler = handler }, old;

	sa.sa_flags = (int)SA_RESETHAND | SA_RESTART;
	for (size_t i = 0; i < sizeof(sigs) / sizeof(*sigs); i++)
		if (!sigaction(sigs[i], NULL, &old) &&
		    old.sa_handler != SIG_IGN)
			sigaction(sigs[i], &sa, NULL);
}

static void stop(int sig)
{
	asked = sig;
}

static void pass_on(int sig)
{
	asked = sig;
	if (writer > 0)
		kill(writer, SIGTERM);
}

void export_stop_begin(void)
{
	on_signals(stop);
}

bool export_stop_asked(void)
{
	return asked;
}

int export_stop_wait(pid_t pid, int *status)
{
	siginfo_t info;

	writer = pid;
	on_signals(pass_on);
	while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0)
		if (errno != EINTR)
			return -errno;
	writer = 0; /* before its id can be another's */
	return waitpid(pid, status, 0) < 0 ? -errno : 0;
}

void export_stop_end(void)
{
	if (!asked)
		return;
	signal(asked, SIG_DFL);
	raise(asked);
}
