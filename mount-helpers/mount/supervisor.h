/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supervisor.h - the process that mounts, waits and unmounts
 *
 *	caller ──fork──> supervisor ──fork──> worker (sandboxed)
 *	  │ waits          │ signals, log        │ answers the kernel
 *	  └<─ one answer ──┘<─── "it answers" ───┘
 *
 * The supervisor keeps the right to unmount and reads nothing from the
 * checkpoint.  When the worker dies, however, the mount is gone at once;
 * SIGTERM, SIGINT and SIGHUP unmount.  When the supervisor itself is killed,
 * the worker goes on until somebody unmounts.
 */
#ifndef SUPERVISOR_H
#define SUPERVISOR_H

#include "core/base/err.h"
#include "core/base/opts.h"
#include "core/catalog/catalog.h"
#include "core/root/root.h"

#include <stdbool.h>

struct supervise_in {
	const char *src; /* what df shows */
	const char *mnt; /* absolute, without links */
	struct ck_root *root; /* closed where it is not needed any more */
	struct ck_catalog *img; /* moved; of no bytes: many of them */
	struct ck_opts *opts; /* spool= is added */
	int lock_fd; /* closed when the mount answers; or -1 */
	int log_fd; /* -1: syslog, or stderr in the foreground */
};

/* Returns when the mount answers, or -errno with a line. */
int supervise_background(const struct supervise_in *in, struct ck_err *err);
/* Returns when the mount is gone: 0, or -errno where the worker failed. */
int supervise_foreground(const struct supervise_in *in, struct ck_err *err);

#endif
