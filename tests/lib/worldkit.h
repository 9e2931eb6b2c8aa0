/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worldkit.h - processes that load together, and what becomes of each
 *
 * Each rank is a process, forked before there is a thread, and loads boxes of its
 * own, at random, of a tensor in files, in rounds of few blocks.  One of them is
 * killed, stopped, refused its bytes, or of another opinion, at a moment that the
 * test says by counting.
 *
 * With NCCL, which tests/fakes/ stands in for, memory is every other time that of
 * the device.
 */
#ifndef WORLDKIT_H
#define WORLDKIT_H

#include "core/comm/comm.h"
#include "tests/lib/loadkit.h"

#include <sys/types.h>

#define WK_RANKS 8
#define WK_BLOCK CK_COMM_BLOCK_MIN
#define WK_NOBODY 100

enum wk_what { GOOD, KILL, STOP, FAIL, DIFFER, ABSENT, CANCEL, UNREADABLE };

/* How a world goes. */
struct wk_plan {
	const char *kind;
	unsigned ranks;
	uint64_t seed;
	bool same; /* all want all of it */
	bool never_alone, direct, alone;
	enum wk_what what;
	unsigned whom; /* rank to which that happens */
	long when; /* moment */
	int timeout_ms; /* of the load */
	int meet_ms; /* until all are connected; 0: a minute */
	const char *script; /* FAKE_NCCL of that rank, or of all; NULL: none */
};

/* What became of a rank, where its parent sees it. */
struct wk_outcome {
	int ret; /* of the load */
	bool ended; /* it came to its end */
	unsigned whole, failed; /* items */
	long moments;
	uint64_t read, received;
	/* By the fakes: all-gathers, messages, copies out of the device. */
	long gathered, sent, fetched;
	char line[CK_ERR_MAX], why[256];
};

struct wk_world {
	struct shardkit k;
	struct lk_load l[WK_RANKS];
	pid_t pid[WK_RANKS];
};

extern struct wk_outcome *wk_outcome; /* by rank */

/* Before all else.  Libraries of tests/fakes/ are loaded, for those of vendors. */
void wk_begin(void);
/* @file of tests/fakes/, for the soname @name. */
void wk_use_fake(const char *file, const char *name);

/* All of it; *size: bytes of the tensor, or NULL. */
void wk_run(const struct wk_plan *p, uint64_t *size);
/* The same in parts; then the shardkit is to be let go. */
void wk_make(struct wk_world *w, const struct wk_plan *p);
void wk_start(struct wk_world *w, const struct wk_plan *p);
void wk_end(struct wk_world *w, const struct wk_plan *p);

/* Each is, or the test ends. */
void wk_all_whole(const struct wk_plan *p, unsigned but);
/* Whole, or told that somebody did not come; how many were whole. */
unsigned wk_all_ended(const struct wk_plan *p);

#endif
