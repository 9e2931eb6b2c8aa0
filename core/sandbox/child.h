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

#include <stdbool.h>
#include <sys/types.h>

/* What a child says through the pipe: no pointer of another process is in it. */
struct ck_child_answer {
	int code; /* 0: all went well */
	char msg[CK_ERR_MAX];
};
/* @ret and @err as run() gave them. */
void ck_child_answer(struct ck_child_answer *out, int ret,
		     const struct ck_err *err);

struct ck_child {
	const char *what; /* "the parser", for messages */
	const char *hint; /* "(-o parse-time=N allows more)", or "" */
	int (*run)(void *ctx, struct ck_err *err);
	void (*meanwhile)(void *ctx); /* here, while it runs; NULL: nothing */
	void *ctx;
	const int *keep; /* negative ones are ignored */
	unsigned nr_keep;
	unsigned seconds; /* then it is killed: -ETIMEDOUT */
	unsigned cpu; /* the same of processor time; 0: no limit */
	/* As of struct ck_patience: it is killed, -ECANCELED.  NULL: never. */
	bool (*stopped)(void *ctx);
	void *stop_ctx;
};

/* -EINVAL: it died; -ETIMEDOUT; or what @run gave.  @err may not be NULL. */
int ck_child_call(const struct ck_child *c, struct ck_err *err);

/*
 * In such a process: its limit of processor time, or what is left of one that it
 * came with.
 */
int ck_child_limit_cpu(unsigned seconds, struct ck_err *err);

/*
 * A process that is our child, where somebody else may wait for all children:
 * by its descriptor, for its number may be another's by then.
 */
struct ck_child_id {
	pid_t pid;
	int fd; /* -1: the kernel has none */
};
struct ck_child_id ck_child_id(pid_t pid); /* just made */
/*
 * The second half of ck_child_call(): @id writes a struct ck_child_answer to the
 * other end of @from.  It is dead afterwards, and @id closed, unless @stays and this
 * is 0.
 */
int ck_child_await(const struct ck_child *c, struct ck_child_id *id, int from,
		   bool stays, struct ck_err *err);
/* For who waits for its end himself. */
void ck_child_kill(const struct ck_child_id *id);
/*
 * Kills it, waits for its end, of one that was killed a few seconds at most, and
 * closes @id; returns how it ended.
 */
int ck_child_end(struct ck_child_id *id, bool kill_it);

#endif
