/* SPDX-License-Identifier: Apache-2.0 */
/* stints.c - a queue in the order of coming; few are in it at a time */
#include "core/write/stints.h"

#include <stdbool.h>
#include <stddef.h>

void ck_stints_init(struct ck_stints *stints)
{
	pthread_mutex_init(&stints->lock, NULL);
	pthread_cond_init(&stints->over, NULL);
	stints->first = NULL;
	stints->waiting = 0;
}

void ck_stints_destroy(struct ck_stints *stints)
{
	pthread_mutex_destroy(&stints->lock);
	pthread_cond_destroy(&stints->over);
}

static bool meet(const struct ck_stint *a, const struct ck_stint *b)
{
	for (unsigned i = 0; i < a->nr; i++)
		for (unsigned k = 0; k < b->nr; k++)
			if (a->part[i].key == b->part[k].key &&
			    a->part[i].from < b->part[k].to &&
			    b->part[k].from < a->part[i].to)
				return true;
	return false;
}

/* Under the lock: whether somebody before @stint is in its way. */
static bool must_wait(const struct ck_stints *stints,
		      const struct ck_stint *stint)
{
	for (const struct ck_stint *t = stints->first; t != stint; t = t->next)
		if (meet(t, stint))
			return true;
	return false;
}

void ck_stint_begin(struct ck_stints *stints, struct ck_stint *stint)
{
	struct ck_stint **last;

	pthread_mutex_lock(&stints->lock);
	for (last = &stints->first; *last; last = &(*last)->next)
		;
	stint->next = NULL;
	*last = stint;
	stints->waiting++;
	while (must_wait(stints, stint))
		pthread_cond_wait(&stints->over, &stints->lock);
	stints->waiting--;
	pthread_mutex_unlock(&stints->lock);
}

void ck_stint_end(struct ck_stints *stints, struct ck_stint *stint)
{
	struct ck_stint **at;

	pthread_mutex_lock(&stints->lock);
	for (at = &stints->first; *at != stint; at = &(*at)->next)
		;
	*at = stint->next;
	if (stints->waiting)
		pthread_cond_broadcast(&stints->over);
	pthread_mutex_unlock(&stints->lock);
}
