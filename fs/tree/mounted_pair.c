/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounted_pair.c - the model and the optimizer of one save, each mounted for
 * itself
 *
 * They are compared once, and what came of it stays known while they sleep: a
 * mounted checkpoint that took the place of either was not compared yet.
 */
#include "fs/tree/mounted_priv.h"

#include "core/base/auto.h"
#include "core/run/run_dir_pair.h"

#include <stdlib.h>

struct pair {
	struct fs_mounted
		*v[CK_PAIR_NR]; /* pinned; NULL: there is no such part */
};

static void pin_both(struct pair *p, struct fs_mounted_table *s,
		     const char *group)
{
	for (int i = 0; i < CK_PAIR_NR; i++) {
		ck_auto_str struct ck_str name = { 0 };

		ck_str_fmt(&name, "%s%s%s", group, *group ? "/" : "",
			   ck_pair_names[i]);
		if (name.failed || fs_mounted_table_entry(s, name.v, &p->v[i]))
			p->v[i] = NULL;
	}
}

/* The number of the other part, which is never 0. */
static uint32_t other(const struct pair *p, int i)
{
	const struct fs_mounted *mounted = p->v[CK_PAIR_NR - 1 - i];

	return mounted ? mounted->nr : FS_MAX_MOUNTED;
}

static bool are_compared(const struct pair *p)
{
	for (int i = 0; i < CK_PAIR_NR; i++)
		if (p->v[i] && p->v[i]->pair != other(p, i))
			return false;
	return true;
}

/* Under the lock. */
static void set(const struct pair *p, struct ck_str why[CK_PAIR_NR])
{
	for (int i = 0; i < CK_PAIR_NR; i++) {
		if (!p->v[i])
			continue;
		free(p->v[i]->unfit);
		p->v[i]->unfit = why[i].len ? ck_steal(why[i].v) : NULL;
		p->v[i]->pair = other(p, i);
	}
}

static void compare(const struct pair *p, struct fs_mounted_table *s)
{
	const struct ck_catalog *img[CK_PAIR_NR] = { 0 };
	struct ck_str why[CK_PAIR_NR] = { 0 };
	bool asleep = false;

	for (int i = 0; i < CK_PAIR_NR; i++) {
		int state = p->v[i] ? (int)fs_mounted_need(s, p->v[i]) :
				      FS_MOUNTED_FAILED;

		asleep |= state ==
			  FS_MOUNTED_ASLEEP; /* another takes its place */
		img[i] = state == FS_MOUNTED_READY ? p->v[i]->img : NULL;
	}
	if (asleep)
		return;
	ck_pair_check(img, why);
	pthread_mutex_lock(&s->lock);
	set(p, why);
	pthread_mutex_unlock(&s->lock);
	for (int i = 0; i < CK_PAIR_NR; i++)
		ck_str_free(&why[i]);
}

bool fs_mounted_table_fit(struct fs_mounted_table *s, const char *group)
{
	struct pair p = { 0 };
	bool fit = true, done;

	pin_both(&p, s, group);
	pthread_mutex_lock(&s->lock);
	done = are_compared(&p);
	pthread_mutex_unlock(&s->lock);
	if (!done)
		compare(&p, s);
	pthread_mutex_lock(&s->lock);
	for (int i = 0; i < CK_PAIR_NR; i++)
		fit = fit && !(p.v[i] && p.v[i]->unfit);
	pthread_mutex_unlock(&s->lock);
	for (int i = 0; i < CK_PAIR_NR; i++)
		if (p.v[i])
			fs_mounted_unpin(s, p.v[i]);
	return fit;
}
