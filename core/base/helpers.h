/* SPDX-License-Identifier: Apache-2.0 */
/*
 * helpers.h - threads that do what comes up, and look for it before they sleep
 *
 * To wake a thread takes as long as a small piece of work does.  So one that
 * had work a moment ago looks for more, letting others run in between, before
 * it sleeps; when work comes more seldom it sleeps at once.
 *
 * pool.h is for work that is all there when it begins.
 */
#ifndef CK_HELPERS_H
#define CK_HELPERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define CK_HELPERS_MAX 4
#define CK_HELPERS_LOOK_NS 300000

struct ck_helpers_in {
	/* Under the lock, given up meanwhile: a piece; false: there is none. */
	bool (*work)(void *ctx);
	/* Whether there seems to be some; without the lock where they look. */
	bool (*has_work)(void *ctx);
};

struct ck_helpers {
	pthread_mutex_t lock; /* of what they work on, too */
	pthread_cond_t wake; /* signal it when there is work */
	bool end; /* under the lock: they end when there is no more */
	/* private */
	const struct ck_helpers_in *in;
	void *ctx;
	bool look;
	pthread_t thread[CK_HELPERS_MAX];
	unsigned nr;
};

/* @look: there is a processor to do so. */
void ck_helpers_init(struct ck_helpers *h, const struct ck_helpers_in *in,
		     void *ctx, bool look);
/* Starts up to @nr, CK_HELPERS_MAX at most: how many there are then. */
unsigned ck_helpers_start(struct ck_helpers *h, unsigned nr);
/* Waits until all have ended; the lock is still good. */
void ck_helpers_stop(struct ck_helpers *h);
void ck_helpers_free(struct ck_helpers *h);

/*
 * Whether who asked for what a thread does still waits for it.  For work that may
 * take long: it asks now and then, and fails with EINTR.  What is done at once is
 * never stopped, so that a program that gets signals all the time is served as from
 * any file.  Each thread has its own.
 */
/* From now on, until the next call; NULL: nobody stops it. */
void ck_stop_by(bool (*stopped)(void *ctx), void *ctx);
/* Not before this thread has asked for that long. */
bool ck_stopped(void);
extern int64_t ck_stop_after_ms; /* tests change it */
/*
 * As pthread_cond_wait(), but wakes up now and then for the same question, too.
 * False: it has stopped, and did not wait.
 */
bool ck_stop_wait(pthread_cond_t *cond, pthread_mutex_t *lock);

#endif
