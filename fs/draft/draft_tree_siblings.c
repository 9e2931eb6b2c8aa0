/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_tree_siblings.c - files of a draft that wait to become something else
 *
 *	SRC/.staging-NAME/beside/KEY/	(see core/slices/slices.h)
 *
 * Nodes as any other's of the draft, below a root of their own.  All mounts
 * see them, and a publish names those that were left.
 */
#include "fs/draft/draft_tree_priv.h"

#include "core/base/clock.h"
#include "core/root/openat_beneath.h"
#include "core/slices/slices.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Under the lock.  Takes @fd; the table keeps the node for good. */
static int add_root(struct fs_draft_tree *s, int fd)
{
	struct stat st;
	struct fs_draft_tree_name *n =
		fstat(fd, &st) ? NULL : fs_draft_tree_add(s, &st);

	if (!n) {
		close(fd);
		return -ENOMEM;
	}
	n->refs = 1;
	s->beside_fd = fd;
	s->beside = n;
	return 0;
}

static int open_root(struct fs_draft_tree *s, bool make)
{
	struct stat st;
	int fd, ret = 0;

	if (make && !fstat(s->draft->fd, &st) &&
	    mkdirat(s->draft->fd, CK_SLICES_SIBLING, st.st_mode & 0777) &&
	    errno != EEXIST)
		return -errno;
	fd = ck_beneath_dir(s->draft->fd, CK_SLICES_SIBLING);
	if (fd < 0)
		return fd;
	pthread_mutex_lock(&s->lock);
	if (s->beside)
		close(fd);
	else
		ret = add_root(s, fd);
	pthread_mutex_unlock(&s->lock);
	return ret;
}

static uint64_t root_of(struct fs_draft_tree *s)
{
	uint64_t ino;

	pthread_mutex_lock(&s->lock);
	ino = s->beside ? s->beside->ino : 0;
	pthread_mutex_unlock(&s->lock);
	return ino;
}

int fs_draft_tree_sibling(struct fs_draft_tree *s, const char *key, bool make,
			  uint64_t *dir)
{
	struct fs_draft_tree_who who = { 0 };
	struct fs_draft_tree_node node = { 0 };
	struct stat st;
	int ret = root_of(s) ? 0 : open_root(s, make);

	if (!ret)
		ret = fs_draft_tree_lookup(s, root_of(s), key, &node);
	*dir = node.ino;
	if (ret != -ENOENT || !make)
		return ret;
	if (fstat(s->draft->fd, &st))
		return -errno;
	who.uid = st.st_uid;
	who.gid = st.st_gid;
	ret = fs_draft_tree_mkdir(s, root_of(s), key, st.st_mode, &who, &node);
	if (ret == -EEXIST) /* another thread, or mount */
		ret = fs_draft_tree_lookup(s, root_of(s), key, &node);
	*dir = node.ino;
	return ret;
}

static bool is_written(const struct fs_draft_tree_name *n)
{
	const struct fs_draft_tree_file *f = n->open;

	while (f && !f->writes)
		f = f->next;
	return f;
}

bool fs_draft_tree_close_off(struct fs_draft_tree *s, uint64_t ino)
{
	struct timespec until = ck_deadline(CLOCK_REALTIME, FS_DRAFT_CLOSING);
	struct fs_draft_tree_name *n;
	bool alone;

	pthread_mutex_lock(&s->lock);
	do {
		n = fs_draft_tree_node_of(s, ino);
		alone = n && !n->closed_off && !is_written(n);
	} while (n && !n->closed_off && !alone &&
		 !pthread_cond_timedwait(&s->released, &s->lock, &until));
	if (alone)
		n->closed_off = true;
	pthread_mutex_unlock(&s->lock);
	return alone;
}

void fs_draft_tree_let_open(struct fs_draft_tree *s, uint64_t ino)
{
	struct fs_draft_tree_name *n;

	pthread_mutex_lock(&s->lock);
	n = fs_draft_tree_node_of(s, ino);
	if (n)
		n->closed_off = false;
	pthread_mutex_unlock(&s->lock);
}

int fs_draft_tree_may_write(struct fs_draft_tree *s,
			    const struct fs_draft_tree_file *f)
{
	const struct fs_draft_tree_name *n;
	int ret;

	pthread_mutex_lock(&s->lock);
	n = fs_draft_tree_node_of(s, f->ino);
	ret = n && n->closed_off ? -ETXTBSY : 0;
	pthread_mutex_unlock(&s->lock);
	return ret;
}
