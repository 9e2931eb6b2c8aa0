/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range_lock.h - writers of the same bytes, one after the other
 *
 * What is stored more than once is written more than once: of two writers at a
 * time, one could be the last in one file and the other in the next, and no two
 * copies would agree for ever after.  So who writes says which bytes, and waits
 * for those who came before and want some of them.  All bytes of one lock are
 * asked for at once: nobody who has some waits for others.
 *
 * Threads: any; a lock is its thread's own.
 */
#ifndef CK_RANGE_LOCK_H
#define CK_RANGE_LOCK_H

#include <pthread.h>
#include <stdint.h>

#define CK_RANGE_LOCK_PARTS 16 /* of more, all there is */
#define CK_RANGE_LOCK_ALL UINT32_MAX /* meets every key */

struct ck_range_lock_part {
	uint32_t key; /* whose bytes */
	uint64_t from, to;
};

struct ck_range_lock {
	struct ck_range_lock *next; /* who came later */
	struct ck_range_lock_part part[CK_RANGE_LOCK_PARTS];
	unsigned nr;
};

struct ck_range_locks {
	pthread_mutex_t lock;
	pthread_cond_t over;
	struct ck_range_lock *first;
	unsigned waiting;
};

void ck_range_locks_init(struct ck_range_locks *range_locks);
void ck_range_locks_destroy(struct ck_range_locks *range_locks);
/* Bytes [from, to) of @key too, before the lock begins. */
void ck_range_lock_add(struct ck_range_lock *range_lock, uint32_t key,
		       uint64_t from, uint64_t to);
/*
 * Waits until nobody before has any byte of @range_lock, which lives until the
 * end.
 */
void ck_range_lock_begin(struct ck_range_locks *range_locks,
			 struct ck_range_lock *range_lock);
void ck_range_lock_end(struct ck_range_locks *range_locks,
		       struct ck_range_lock *range_lock);

#endif
