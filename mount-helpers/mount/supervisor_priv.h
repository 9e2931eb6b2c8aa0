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
	bool json; /* an object a line */
	const char *mnt;
	char part
		[1024]; /* of the worker's stderr: a line that has no end yet */
	size_t len;
};
void suplog_line(struct suplog *l, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Takes what there is to read from @fd; false at its end. */
bool suplog_take(struct suplog *l, int fd);

/*
 * notify.c: lines NAME=VALUE for the service manager that started this process,
 * if one did.
 */
void notify_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * spool.c: a folder of its own in @dir, and what says that it is used as long as
 * any process has *fd open.  First those are removed that nobody uses any more.
 */
int spool_make(const char *dir, char *out, size_t size, int *fd);
/* A folder in memory that is nowhere mounted; -1: that takes more rights. */
int spool_in_memory(void);

/* The worker's ends of its pipes, and what it serves. */
struct worker_in {
	const struct supervise_in *in;
	struct fs_session *session;
	int answer_fd; /* takes one struct ck_err: code 0, it answers */
	int log_fd;
	int askers_fd; /* -1: for its own user only */
	const char *spool; /* a folder of its own; NULL: none could be made */
	int spool_fd; /* kept open: it is used */
	int cache_fd; /* the folder of -o cache; -1 */
	int passthrough_fd; /* -1: nobody registers what is kept */
};
/* In the child: does not return. */
void worker_run(const struct worker_in *w) __attribute__((noreturn));

#endif
