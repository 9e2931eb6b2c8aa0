/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commkit.h - the ranks of a communicator as threads of a test
 *
 * Nothing of a communicator is of its process, so that threads will do.
 */
#ifndef COMMKIT_H
#define COMMKIT_H

#include "core/comm/comm.h"

#include <pthread.h>

#define COMMKIT_RANKS 8

struct commkit;

struct commkit_rank {
	struct commkit *kit;
	struct ck_comm *comm; /* NULL: it was not made */
	unsigned nr;
	int ret; /* of connecting, then of what was run */
	struct ck_err err;
};

struct commkit {
	unsigned ranks;
	struct commkit_rank rank[COMMKIT_RANKS];
	const char *address[COMMKIT_RANKS];
	int (*run)(struct commkit_rank *rank);
	void *arg;
};

/* Listening, and nothing more. */
void commkit_listen(struct commkit *k, const char *kind, unsigned ranks,
		    int timeout_ms, uint64_t block);
/* @run in a thread of each rank below @nr, to the end; connected before. */
void commkit_run(struct commkit *k, unsigned nr,
		 int (*run)(struct commkit_rank *rank), void *arg);
void commkit_free(struct commkit *k);

#endif
