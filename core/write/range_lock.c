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

void ck_range_lock_add(struct ck_range_lock *range_lock, uint32_t key,
		       uint64_t from, uint64_t to)
{
	struct ck_range_lock_part all = { CK_RANGE_LOCK_ALL, 0, UINT64_MAX };

	if (range_lock->nr && range_lock->part[0].key == all.key)
		return;
	if (range_lock->nr == CK_RANGE_LOCK_PARTS) {
		range_lock->part[0] = all;
		range_lock->nr = 1;
		return;
	}
	range_lock->part[range_lock->nr++] =
		(struct ck_range_lock_part){ key, from, to };
}

static bool same_key(uint32_t a, uint32_t b)
{
	return a == b || a == CK_RANGE_LOCK_ALL || b == CK_RANGE_LOCK_ALL;
}

static bool meet(const struct ck_range_lock *a, const struct ck_range_lock *b)
{
	for (unsigned i = 0; i < a->nr; i++)
		for (unsigned k = 0; k < b->nr; k++)
			if (same_key(a->part[i].key, b->part[k].key) &&
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
