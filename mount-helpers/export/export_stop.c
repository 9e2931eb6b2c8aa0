/* SPDX-License-Identifier: Apache-2.0 */
/* export_stop.c - signals between two processes; see the header */
#include "mount-helpers/export/export_stop.h"

#include "core/base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>

/* One that comes sooner is the same wish, sent to several of a group, or twice. */
#define AGAIN_NS INT64_C(1000000000)

static volatile sig_atomic_t asked; /* the one that came */
static volatile int64_t asked_ns; /* only the handler's */
static volatile pid_t writer;

/* Those that are ignored (nohup, a shell's background) stay so. */
static void on_signals(void (*handler)(int))
{
	static const int sigs[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction sa = { .sa_handler = handler }, old;

	sa.sa_flags = SA_RESTART;
	sigemptyset(&sa.sa_mask);
	for (size_t i = 0; i < sizeof(sigs) / sizeof(*sigs); i++)
		sigaddset(&sa.sa_mask, sigs[i]);
	for (size_t i = 0; i < sizeof(sigs) / sizeof(*sigs); i++)
		if (!sigaction(sigs[i], NULL, &old) &&
		    old.sa_handler != SIG_IGN)
			sigaction(sigs[i], &sa, NULL);
}

/* However often: who waits decides when it is enough, and takes this one along. */
static void stop(int sig)
{
	asked = sig;
}

static void pass_on(int sig)
{
	int saved = errno;
	int64_t now = ck_now_ns();

	if (!asked) {
		asked = sig;
		asked_ns = now;
		if (writer > 0)
			kill(writer, SIGTERM);
	} else if (now - asked_ns >= AGAIN_NS) {
		signal(sig, SIG_DFL);
		raise(sig); /* on return from here */
	}
	errno = saved;
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
