/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stints.h - writers of the same bytes, one after the other
 *
 * What is stored more than once is written more than once: of two writers at a
 * time, one could be the last in one file and the other in the next, and no two
 * copies would agree for ever after.  So who writes says which bytes, and waits
 * for those who came before and want some of them.  All bytes of one stint are
 * asked for at once: nobody who has some waits for others.
 *
 * Threads: any; a stint is its thread's own.
 */
#ifndef CK_STINTS_H
#define CK_STINTS_H

#include <pthread.h>
#include <stdint.h>

#define CK_STINT_PARTS 2 /* a tensor, and the copy that follows it */

struct ck_stint_part {
	uint32_t key; /* whose bytes */
	uint64_t from, to;
};

struct ck_stint {
	struct ck_stint *next; /* who came later */
	struct ck_stint_part part[CK_STINT_PARTS];
	unsigned nr;
};

struct ck_stints {
	pthread_mutex_t lock;
	pthread_cond_t over;
	struct ck_stint *first;
	unsigned waiting;
};

void ck_stints_init(struct ck_stints *stints);
void ck_stints_destroy(struct ck_stints *stints);
/* Waits until nobody before has any byte of @stint, which lives until the end. */
void ck_stint_begin(struct ck_stints *stints, struct ck_stint *stint);
void ck_stint_end(struct ck_stints *stints, struct ck_stint *stint);

#endif
