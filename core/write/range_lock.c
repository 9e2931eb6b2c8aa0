/* SPDX-License-Identifier: Apache-2.0 */
/* range_lock.c - a queue in the order of coming; few are in it at a time */
#include "core/write/range_lock.h"

#include <stdbool.h>
#include <stddef.h>

void ck_range_locks_init(struct ck_range_locks *range_locks)
{
	pthread_mutex_init(&range_locks->lock, NULL);
	pthread_cond_init(&range_locks->over, NULL);
	range_locks->first = NULL;
	range_locks->waiting = 0;
}

void ck_range_locks_destroy(struct ck_range_locks *range_locks)
{
	pthread_mutex_destroy(&range_locks->lock);
	pthread_cond_destroy(&range_locks->over);
}

static bool meet(const struct ck_range_lock *a, const struct ck_range_lock *b)
{
	for (unsigned i = 0; i < a->nr; i++)
		for (unsigned k = 0; k < b->nr; k++)
			if (a->part[i].key == b->part[k].key &&
			    a->part[i].from < b->part[k].to &&
			    b->part[k].from < a->part[i].to)
				return true;
	return false;
}

/* Under the lock: whether somebody before @range_lock is in its way. */
static bool must_wait(const struct ck_range_locks *range_locks,
		      const struct ck_range_lock *range_lock)
{
	for (const struct ck_range_lock *t = range_locks->first;
	     t != range_lock; t = t->next)
		if (meet(t, range_lock))
			return true;
	return false;
}

void ck_range_lock_begin(struct ck_range_locks *range_locks,
			 struct ck_range_lock *range_lock)
{
	struct ck_range_lock **last;

	pthread_mutex_lock(&range_locks->lock);
	for (last = &range_locks->first; *last; last = &(*last)->next)
		;
	range_lock->next = NULL;
	*last = range_lock;
	range_locks->waiting++;
	while (must_wait(range_locks, range_lock))
		pthread_cond_wait(&range_locks->over, &range_locks->lock);
	range_locks->waiting--;
	pthread_mutex_unlock(&range_locks->lock);
}

void ck_range_lock_end(struct ck_range_locks *range_locks,
		       struct ck_range_lock *range_lock)
{
	struct ck_range_lock **at;

	pthread_mutex_lock(&range_locks->lock);
	for (at = &range_locks->first; *at != range_lock; at = &(*at)->next)
		;
	*at = range_lock->next;
	if (range_locks->waiting)
		pthread_cond_broadcast(&range_locks->over);
	pthread_mutex_unlock(&range_locks->lock);
}
