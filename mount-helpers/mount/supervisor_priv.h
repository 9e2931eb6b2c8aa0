/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor_priv.h - the parts of supervisor.c */
#ifndef SUPERVISOR_PRIV_H
#define SUPERVISOR_PRIV_H

#include "mount-helpers/mount/supervisor.h"

#include "fs/session.h"

#include <stddef.h>
#include <sys/types.h>

/* Nothing of the caller's runs at the end, but a sanitizer counts leaks. */
#ifdef __SANITIZE_ADDRESS__
#define end_process exit
#else
#define end_process _exit
#endif

/* Where the lines of the supervisor and its worker go. */
struct suplog {
	int fd; /* -1: syslog */
	const char *mnt;
	char part
		[1024]; /* of the worker's stderr: a line that has no end yet */
	size_t len;
};
void suplog_line(struct suplog *l, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Takes what there is to read from @fd; false at its end. */
bool suplog_take(struct suplog *l, int fd);

/* The worker's ends of its pipes, and what it serves. */
struct worker_in {
	const struct supervise_in *in;
	struct fs_session *session;
	int answer_fd; /* takes one struct ck_err: code 0, it answers */
	int log_fd;
	const char *spool; /* a folder of its own; NULL: none could be made */
};
/* In the child: does not return. */
void worker_run(const struct worker_in *w) __attribute__((noreturn));

#endif
