/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_tree_given.c - what this mount alone knows of slices: names that were
 * removed, owners and modes that were given
 *
 * A slice is bytes of a file that many share, so that it has neither of its
 * own; what was said of it lasts until the step is published.  A tensor has many
 * names, the whole and a slice of each rank: who may not read it by one of them
 * may not by another.
 */
#include "fs/draft/draft_tree_priv.h"

#include <errno.h>
#include <stdlib.h>

struct fs_draft_tree_given {
	struct fs_draft_tree_given *next;
	uint64_t of, ino;
	mode_t mode; /* permissions */
	uid_t uid;
	gid_t gid;
};

int fs_draft_tree_hide(struct fs_draft_tree *s, size_t at, size_t nr, bool hide)
{
	unsigned char bit = (unsigned char)(1u << at % 8);
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	if (hide && !s->hidden)
		s->hidden = calloc(nr / 8 + 1, 1);
	if (!s->hidden)
		ret = hide ? -ENOMEM : 0;
	else if (hide)
		s->hidden[at / 8] |= bit;
	else
		s->hidden[at / 8] &= (unsigned char)~bit;
	pthread_mutex_unlock(&s->lock);
	return ret;
}

bool fs_draft_tree_is_hidden(struct fs_draft_tree *s, size_t at)
{
	bool hidden;

	pthread_mutex_lock(&s->lock);
	hidden = s->hidden && s->hidden[at / 8] >> at % 8 & 1;
	pthread_mutex_unlock(&s->lock);
	return hidden;
}

/* Those of @of, among others; under the lock. */
static struct fs_draft_tree_given *first(const struct fs_draft_tree *s,
					 uint64_t of)
{
	return s->given ? s->given[of % FS_DRAFT_TREE_BUCKETS] : NULL;
}

static struct fs_draft_tree_given *find(const struct fs_draft_tree *s,
					uint64_t of, uint64_t ino)
{
	struct fs_draft_tree_given *g = first(s, of);

	while (g && (g->of != of || g->ino != ino))
		g = g->next;
	return g;
}

static int add(struct fs_draft_tree *s, const struct fs_draft_tree_given *made)
{
	struct fs_draft_tree_given *g, **at;

	if (!s->given)
		s->given = calloc(FS_DRAFT_TREE_BUCKETS, sizeof(*s->given));
	g = s->given ? malloc(sizeof(*g)) : NULL;
	if (!g)
		return -ENOMEM;
	*g = *made;
	at = &s->given[g->of % FS_DRAFT_TREE_BUCKETS];
	g->next = *at;
	*at = g;
	return 0;
}

static void put(struct fs_draft_tree_given *g, const struct stat *attr,
		int to_set)
{
	if (to_set & FUSE_SET_ATTR_MODE)
		g->mode = attr->st_mode & 07777;
	if (to_set & FUSE_SET_ATTR_UID)
		g->uid = attr->st_uid;
	if (to_set & FUSE_SET_ATTR_GID)
		g->gid = attr->st_gid;
}

int fs_draft_tree_give(struct fs_draft_tree *s, uint64_t of, uint64_t ino,
		       const struct stat *attr, int to_set,
		       const struct stat *before)
{
	struct fs_draft_tree_given *g, made = { .of = of, .ino = ino };
	int ret = 0;

	put(&made, before, ~0);
	put(&made, attr, to_set);
	pthread_mutex_lock(&s->lock);
	g = find(s, of, ino);
	if (g)
		put(g, attr, to_set);
	else if (made.mode != (before->st_mode & 07777) ||
		 made.uid != before->st_uid || made.gid != before->st_gid)
		ret = add(s, &made);
	pthread_mutex_unlock(&s->lock);
	return ret;
}

/*
 * To read, @st allows no more than @g does.  Whose owner or group another name
 * has not may do there what both its group and others may.
 */
static void as_strict(struct stat *st, const struct fs_draft_tree_given *g)
{
	mode_t any = g->mode & g->mode >> 3;
	bool owner = g->uid == st->st_uid, group = g->gid == st->st_gid;
	mode_t may = ((owner ? g->mode >> 6 : any) & 04) << 6 |
		     ((group ? g->mode >> 3 : any) & 04) << 3 |
		     ((group ? g->mode : any) & 04);

	st->st_mode &= ~(mode_t)0444 | may;
}

void fs_draft_tree_given(struct fs_draft_tree *s, uint64_t of, uint64_t ino,
			 struct stat *st)
{
	const struct fs_draft_tree_given *own;

	pthread_mutex_lock(&s->lock);
	own = find(s, of, ino);
	if (own) {
		st->st_mode = (st->st_mode & S_IFMT) | own->mode;
		st->st_uid = own->uid;
		st->st_gid = own->gid;
	}
	for (const struct fs_draft_tree_given *g = first(s, of); g; g = g->next)
		if (g->of == of)
			as_strict(st, g);
	pthread_mutex_unlock(&s->lock);
}

void fs_draft_tree_given_free(struct fs_draft_tree *s)
{
	for (size_t i = 0; s->given && i < FS_DRAFT_TREE_BUCKETS; i++) {
		while (s->given[i]) {
			struct fs_draft_tree_given *g = s->given[i];

			s->given[i] = g->next;
			free(g);
		}
	}
	free(s->given);
	free(s->hidden);
}
