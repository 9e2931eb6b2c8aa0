/* SPDX-License-Identifier: Apache-2.0 */
/* draft_tree_ask.c - where files of a draft are, for who is asked about them */
#include "fs/draft/draft_tree_priv.h"

#include "core/slices/slices.h"
#include "fs/tree/tree.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct place {
	char dir[PATH_MAX], path[PATH_MAX]; /* absolute, and below it */
	struct stat dir_st, st; /* of @st the identity only; ino 0: @dir */
};

/* The folder that *base of fs_draft_tree_path_of() is. */
static bool base_path(const struct fs_draft_tree *s, int base,
		      char out[PATH_MAX])
{
	size_t cut;

	if (ck_draft_path(s->draft, out))
		return false;
	if (base == s->draft->files_fd)
		return true;
	cut = strlen(out) - strlen(CK_DRAFT_FILES);
	if (cut + sizeof(CK_SLICES_SIBLING) > PATH_MAX)
		return false;
	strcpy(out + cut, CK_SLICES_SIBLING);
	return true;
}

static int find(struct fs_draft_tree *s, uint64_t ino, struct place *p)
{
	const struct fs_draft_tree_name *n;
	int base = s->draft->files_fd, ret = 0;

	*p->path = '\0';
	p->st = (struct stat){ 0 };
	if (!ck_draft_is_current(s->draft))
		return -ESTALE; /* published, or gone: it has another path */
	pthread_mutex_lock(&s->lock);
	if (ino != FS_INO_SHARDS) {
		n = fs_draft_tree_node_of(s, ino);
		ret = n ? fs_draft_tree_path_of(s, n, &base, p->path) : -ESTALE;
		if (n) {
			p->st.st_dev = n->dev;
			p->st.st_ino = n->id;
		}
	}
	pthread_mutex_unlock(&s->lock);
	if (ret)
		return ret;
	return base_path(s, base, p->dir) && !fstat(base, &p->dir_st) ? 0 :
									-ESTALE;
}

int fs_draft_tree_ask(struct fs_draft_tree *s, uint64_t ino, int mask,
		      struct fs_question *q)
{
	struct place p;
	int ret = find(s, ino, &p);

	if (ret)
		return ret;
	fs_question_dir(q, p.dir, &p.dir_st);
	fs_question_file(q, p.path, mask, p.st.st_dev, p.st.st_ino);
	return 0;
}

int fs_draft_tree_ask_dir(struct fs_draft_tree *s, uint64_t dir,
			  struct fs_question *q)
{
	struct place p;
	size_t at, room;
	int ret = find(s, dir, &p);

	if (ret)
		return ret;
	at = strlen(p.dir);
	room = sizeof(p.dir) - at;
	if (*p.path &&
	    (size_t)snprintf(p.dir + at, room, "/%s", p.path) >= room)
		return -ENAMETOOLONG;
	fs_question_dir(q, p.dir, *p.path ? &p.st : &p.dir_st);
	return 0;
}
