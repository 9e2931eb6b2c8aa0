/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child.h - one call in a short-lived process of its own
 *
 * @run's error comes back as if it had been called here; its death, or a
 * hang, becomes an error too.  Only @keep and the standard descriptors are
 * open in it.  It may allocate, but it must not touch locks of the program,
 * for other threads may have held them when it was made.
 *
 * Threads: any may call.
 */
#ifndef CK_CHILD_H
#define CK_CHILD_H

#include "core/base/err.h"

struct ck_child {
	const char *what; /* "the parser", for messages */
	const char *hint; /* "(-o parse-time=N allows more)", or "" */
	int (*run)(void *ctx, struct ck_err *err);
	void *ctx;
	const int *keep; /* negative ones are ignored */
	unsigned nr_keep;
	unsigned seconds; /* then it is killed: -ETIMEDOUT */
	unsigned cpu; /* the same of processor time; 0: no limit */
};

/* -EINVAL: it died; -ETIMEDOUT; or what @run gave.  @err may not be NULL. */
int ck_child_call(const struct ck_child *c, struct ck_err *err);

#endif
