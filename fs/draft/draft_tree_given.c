/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_tree_given.c - what this mount alone knows of slices: names that were
 * removed, owners and modes that were given
 *
 * A slice is bytes of a file that many share, so that it has neither of its
 * own; what was said of it lasts until the step is published.
 */
#include "fs/draft/draft_tree_priv.h"

#include <errno.h>
#include <stdlib.h>

struct fs_draft_tree_given {
	struct fs_draft_tree_given *next;
	uint64_t ino;
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

/* Under the lock. */
static struct fs_draft_tree_given *find(const struct fs_draft_tree *s,
					uint64_t ino)
{
	struct fs_draft_tree_given *g =
		s->given ? s->given[ino % FS_DRAFT_TREE_BUCKETS] : NULL;

	while (g && g->ino != ino)
		g = g->next;
	return g;
}

static struct fs_draft_tree_given *add(struct fs_draft_tree *s, uint64_t ino)
{
	struct fs_draft_tree_given *g;

	if (!s->given)
		s->given = calloc(FS_DRAFT_TREE_BUCKETS, sizeof(*s->given));
	g = s->given ? calloc(1, sizeof(*g)) : NULL;
	if (!g)
		return NULL;
	g->ino = ino;
	g->next = s->given[ino % FS_DRAFT_TREE_BUCKETS];
	s->given[ino % FS_DRAFT_TREE_BUCKETS] = g;
	return g;
}

int fs_draft_tree_give(struct fs_draft_tree *s, uint64_t ino,
		       const struct stat *st)
{
	struct fs_draft_tree_given *g;

	pthread_mutex_lock(&s->lock);
	g = find(s, ino);
	if (!g)
		g = add(s, ino);
	if (g) {
		g->mode = st->st_mode & 07777;
		g->uid = st->st_uid;
		g->gid = st->st_gid;
	}
	pthread_mutex_unlock(&s->lock);
	return g ? 0 : -ENOMEM;
}

void fs_draft_tree_given(struct fs_draft_tree *s, uint64_t ino, struct stat *st)
{
	const struct fs_draft_tree_given *g;

	pthread_mutex_lock(&s->lock);
	g = find(s, ino);
	if (g) {
		st->st_mode = (st->st_mode & S_IFMT) | g->mode;
		st->st_uid = g->uid;
		st->st_gid = g->gid;
	}
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
