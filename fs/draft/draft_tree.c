/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_tree.c - which file of the draft each inode of the kernel's is
 *
 * Numbers are given out once, for those of SRC are used again by its file
 * system while the kernel still knows the old ones.  A node lives while the
 * kernel refers to it, or to something below it.
 */
#include "fs/draft/draft_tree_priv.h"

#include "core/base/check.h"
#include "core/root/openat_beneath.h"
#include "core/slices/slices.h"
#include "fs/kernel/reply.h"
#include "fs/tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fs_draft_tree *fs_draft_tree_new(struct ck_draft *draft)
{
	struct fs_draft_tree *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->draft = draft;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->released, NULL);
	pthread_mutex_init(&s->opening, NULL);
	return s;
}

static void free_node(struct fs_draft_tree_name *n)
{
	free(n->name);
	free(n);
}

void fs_draft_tree_free(struct fs_draft_tree *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < FS_DRAFT_TREE_BUCKETS; i++) {
		while (s->by_ino[i]) {
			struct fs_draft_tree_name *n = s->by_ino[i];

			s->by_ino[i] = n->next_ino;
			free_node(n);
		}
	}
	if (atomic_load(&s->slices))
		ck_slices_close(atomic_load(&s->slices));
	ck_draft_close(s->draft);
	pthread_cond_destroy(&s->released);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->opening);
	if (s->beside)
		close(s->beside_fd);
	fs_draft_tree_given_free(s);
	free(s);
}

static void open_slices(struct fs_draft_tree *s)
{
	struct ck_err err = { 0 };
	struct ck_slices *sl = NULL;
	int ret = ck_slices_open(&sl, s->draft, &err);

	if (!ret)
		atomic_store(&s->slices, sl);
	if (ret && ret != -ENOENT && !s->failed) {
		s->failed = true;
		fs_log("%s", err.msg);
	}
}

struct ck_slices *fs_draft_tree_slices(struct fs_draft_tree *s)
{
	struct ck_slices *sl = atomic_load(&s->slices);

	if (sl || !ck_slices_look(s->draft))
		return sl;
	pthread_mutex_lock(&s->opening);
	if (!atomic_load(&s->slices))
		open_slices(s);
	pthread_mutex_unlock(&s->opening);
	return atomic_load(&s->slices);
}

struct ck_draft *fs_draft_tree_draft(const struct fs_draft_tree *s)
{
	return s->draft;
}

uint64_t fs_draft_tree_seq(const struct fs_draft_tree *s)
{
	return atomic_load(&s->seq);
}

int fs_draft_tree_begin(struct fs_draft_tree *s)
{
	int ret = ck_draft_begin(s->draft, NULL);

	if (!ret)
		atomic_fetch_add(&s->seq, 1);
	return ret == -ESTALE ? -EROFS : ret;
}

void fs_draft_tree_changed(struct fs_draft_tree *s)
{
	atomic_fetch_add_explicit(&s->seq, 1, memory_order_relaxed);
}

void fs_draft_tree_end(struct fs_draft_tree *s)
{
	ck_draft_end(s->draft);
}

void fs_draft_tree_end_begun(struct fs_draft_tree *const *s)
{
	if (*s)
		fs_draft_tree_end(*s);
}

int fs_draft_tree_begin_in(struct fs_draft_tree *s, uint64_t dir,
			   struct fs_draft_tree **begun,
			   struct fs_draft_tree_place *at)
{
	int ret = fs_draft_tree_begin(s);

	if (ret)
		return ret;
	*begun = s;
	return fs_draft_tree_dir(s, dir, at);
}

bool fs_draft_tree_shows(mode_t mode)
{
	return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode);
}

/* ---- the table; all under the lock ---- */

static struct fs_draft_tree_name **ino_chain(struct fs_draft_tree *s,
					     uint64_t ino)
{
	return &s->by_ino[ino % FS_DRAFT_TREE_BUCKETS];
}

static struct fs_draft_tree_name **name_chain(
	struct fs_draft_tree *s, const struct fs_draft_tree_name *parent,
	const char *name)
{
	uint64_t h = parent ? parent->ino : 0;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return &s->by_name[h % FS_DRAFT_TREE_BUCKETS];
}

struct fs_draft_tree_name *fs_draft_tree_node_of(struct fs_draft_tree *s,
						 uint64_t ino)
{
	struct fs_draft_tree_name *n = *ino_chain(s, ino);

	while (n && n->ino != ino)
		n = n->next_ino;
	return n;
}

static struct fs_draft_tree_name *by_name(
	struct fs_draft_tree *s, const struct fs_draft_tree_name *parent,
	const char *name)
{
	struct fs_draft_tree_name *n = *name_chain(s, parent, name);

	while (n && (n->parent != parent || strcmp(n->name, name)))
		n = n->next_name;
	return n;
}

static void remove_node(struct fs_draft_tree *s, struct fs_draft_tree_name *n)
{
	struct fs_draft_tree_name **at = ino_chain(s, n->ino);

	while (*at != n)
		at = &(*at)->next_ino;
	*at = n->next_ino;
	free_node(n);
}

/* Out of the chain of names; what it was in is returned. */
static struct fs_draft_tree_name *unchain(struct fs_draft_tree *s,
					  struct fs_draft_tree_name *n)
{
	struct fs_draft_tree_name **at = name_chain(s, n->parent, n->name);

	while (*at != n)
		at = &(*at)->next_name;
	*at = n->next_name;
	if (n->parent)
		n->parent->kids--;
	return n->parent;
}

/* @n and those above it, as far as nobody needs them any more. */
static void release_parents(struct fs_draft_tree *s,
			    struct fs_draft_tree_name *n)
{
	while (n && !n->refs && !n->kids) {
		struct fs_draft_tree_name *parent =
			n->name ? unchain(s, n) : NULL;

		remove_node(s, n);
		n = parent;
	}
}

/* It keeps its number. */
static void unname(struct fs_draft_tree *s, struct fs_draft_tree_name *n)
{
	struct fs_draft_tree_name *parent = unchain(s, n);

	free(n->name);
	n->name = NULL;
	n->parent = NULL;
	release_parents(s, parent);
}

/* Takes @name. */
static void rename_node(struct fs_draft_tree *s, struct fs_draft_tree_name *n,
			struct fs_draft_tree_name *parent, char *name)
{
	struct fs_draft_tree_name **at = name_chain(s, parent, name);

	n->parent = parent;
	n->name = name;
	n->next_name = *at;
	*at = n;
	if (parent)
		parent->kids++;
}

static bool is_same(const struct fs_draft_tree_name *n, const struct stat *st)
{
	return n->dev == st->st_dev && n->id == st->st_ino &&
	       n->type == (st->st_mode & S_IFMT);
}

struct fs_draft_tree_name *fs_draft_tree_add(struct fs_draft_tree *s,
					     const struct stat *st)
{
	struct fs_draft_tree_name *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->ino = FS_INO_SHARD | ++s->last;
	n->dev = st->st_dev;
	n->id = st->st_ino;
	n->type = st->st_mode & S_IFMT;
	n->next_ino = *ino_chain(s, n->ino);
	*ino_chain(s, n->ino) = n;
	return n;
}

static struct fs_draft_tree_name *add_node(struct fs_draft_tree *s,
					   struct fs_draft_tree_name *parent,
					   const char *name,
					   const struct stat *st)
{
	char *copy = strdup(name);
	struct fs_draft_tree_name *n = copy ? fs_draft_tree_add(s, st) : NULL;

	if (n)
		rename_node(s, n, parent, copy);
	else
		free(copy);
	return n;
}

/* The parent of what is in directory @dir; false: it is not known. */
static bool find_parent(struct fs_draft_tree *s, uint64_t dir,
			struct fs_draft_tree_name **out)
{
	*out = dir == FS_INO_SHARDS ? NULL : fs_draft_tree_node_of(s, dir);
	return dir == FS_INO_SHARDS || *out;
}

static int take(struct fs_draft_tree *s, uint64_t dir, const char *name,
		struct fs_draft_tree_node *node)
{
	struct fs_draft_tree_name *parent, *n;

	if (!find_parent(s, dir, &parent))
		return -ESTALE;
	n = by_name(s, parent, name);
	if (n && !is_same(n, &node->st)) {
		unname(s, n);
		if (!n->refs && !n->kids)
			remove_node(s, n);
		n = NULL;
	}
	if (!n)
		n = add_node(s, parent, name, &node->st);
	if (!n)
		return -ENOMEM;
	n->refs++;
	node->ino = n->ino;
	return 0;
}

int fs_draft_tree_take(struct fs_draft_tree *s, uint64_t dir, const char *name,
		       struct fs_draft_tree_node *node)
{
	int ret;

	pthread_mutex_lock(&s->lock);
	ret = take(s, dir, name, node);
	pthread_mutex_unlock(&s->lock);
	return ret;
}

void fs_draft_tree_forget(struct fs_draft_tree *s, uint64_t ino, uint64_t nr)
{
	struct fs_draft_tree_name *n;

	pthread_mutex_lock(&s->lock);
	n = fs_draft_tree_node_of(s, ino);
	if (n) {
		n->refs -= CK_MIN(n->refs, nr);
		release_parents(s, n);
	}
	pthread_mutex_unlock(&s->lock);
}

void fs_draft_tree_drop(struct fs_draft_tree *s, uint64_t dir, const char *name)
{
	struct fs_draft_tree_name *parent, *n = NULL;

	pthread_mutex_lock(&s->lock);
	if (find_parent(s, dir, &parent))
		n = by_name(s, parent, name);
	if (n)
		unname(s, n);
	pthread_mutex_unlock(&s->lock);
}

/* Where memory is short the name is looked up anew. */
static void give_name(struct fs_draft_tree *s, struct fs_draft_tree_name *n,
		      struct fs_draft_tree_name *parent, const char *name)
{
	char *copy = n ? strdup(name) : NULL;

	if (copy)
		rename_node(s, n, parent, copy);
}

void fs_draft_tree_move(struct fs_draft_tree *s, uint64_t dir, const char *name,
			uint64_t new_dir, const char *new_name, bool exchange)
{
	struct fs_draft_tree_name *from, *to, *a, *b;

	pthread_mutex_lock(&s->lock);
	if (find_parent(s, dir, &from) && find_parent(s, new_dir, &to)) {
		a = by_name(s, from, name);
		b = by_name(s, to, new_name);
		/* neither goes while it has no name: the kernel knows both */
		if (a)
			unname(s, a);
		if (b && b != a)
			unname(s, b);
		give_name(s, a, to, new_name);
		if (exchange && b != a)
			give_name(s, b, from, name);
	}
	pthread_mutex_unlock(&s->lock);
}

int fs_draft_tree_depth(struct fs_draft_tree *s, uint64_t ino)
{
	struct fs_draft_tree_name *n;
	int depth = 0;

	pthread_mutex_lock(&s->lock);
	if (!find_parent(s, ino, &n))
		depth = -1;
	for (; n; n = n->parent)
		depth++;
	pthread_mutex_unlock(&s->lock);
	return depth;
}

/* ---- paths ---- */

/*
 * Of @n below *base, which is shards/ or what is beside the slices, "a/b".
 * -ESTALE: some part has no name; -ENAMETOOLONG: no call takes such a path, though
 * somebody who is in a folder on the way can name what is there.
 */
int fs_draft_tree_path_of(const struct fs_draft_tree *s,
			  const struct fs_draft_tree_name *n, int *base,
			  char out[PATH_MAX])
{
	char text[PATH_MAX];
	size_t at = sizeof(text) - 1;

	text[at] = '\0';
	for (; n && n != s->beside; n = n->parent) {
		size_t len = n->name ? strlen(n->name) : 0;

		if (!len)
			return -ESTALE;
		if (at < len + !!text[at])
			return -ENAMETOOLONG;
		if (text[at])
			text[--at] = '/';
		at -= len;
		memcpy(text + at, n->name, len);
	}
	memcpy(out, text + at, sizeof(text) - at);
	*base = n ? s->beside_fd : s->draft->files_fd;
	return 0;
}

bool fs_draft_tree_path(struct fs_draft_tree *s, uint64_t ino,
			char out[PATH_MAX])
{
	struct fs_draft_tree_name *n;
	bool named;
	int base;

	pthread_mutex_lock(&s->lock);
	n = fs_draft_tree_node_of(s, ino);
	named = n && !fs_draft_tree_path_of(s, n, &base, out);
	pthread_mutex_unlock(&s->lock);
	return named;
}

static int open_at(int base, const char *path, struct fs_draft_tree_place *out)
{
	out->own = *path;
	out->dir = base;
	if (!*path)
		return 0;
	out->dir = ck_beneath_at(base, path);
	if (out->dir >= 0)
		return 0;
	out->own = false;
	return out->dir == -ENOENT || out->dir == -ELOOP ||
			       out->dir == -ENOTDIR ?
		       -ESTALE :
		       out->dir;
}

/* Opens the directory that @ino is in, or @self is, and says which file it is. */
static int locate(struct fs_draft_tree *s, uint64_t ino, bool self,
		  struct fs_draft_tree_place *out)
{
	char path[PATH_MAX] = "";
	const struct fs_draft_tree_name *n;
	int base = -1, ret;

	*out = (struct fs_draft_tree_place){ .dir = s->draft->files_fd };
	if (ino == FS_INO_SHARDS)
		return 0;
	pthread_mutex_lock(&s->lock);
	n = fs_draft_tree_node_of(s, ino);
	ret = n && (self || n->name) ?
		      fs_draft_tree_path_of(s, self ? n : n->parent, &base,
					    path) :
		      -ESTALE;
	if (!ret) {
		out->dev = n->dev;
		out->id = n->id;
		if (!self)
			strcpy(out->name, n->name);
	}
	pthread_mutex_unlock(&s->lock);
	return ret ? ret : open_at(base, path, out);
}

int fs_draft_tree_place(struct fs_draft_tree *s, uint64_t ino,
			struct fs_draft_tree_place *out)
{
	return locate(s, ino, false, out);
}

int fs_draft_tree_dir(struct fs_draft_tree *s, uint64_t ino,
		      struct fs_draft_tree_place *out)
{
	struct stat st;
	int ret = locate(s, ino, true, out);

	if (ret || ino == FS_INO_SHARDS)
		return ret;
	if (fstat(out->dir, &st))
		return -errno;
	/* it may be another by now that has the name */
	return st.st_dev == out->dev && st.st_ino == out->id ? 0 : -ESTALE;
}

void fs_draft_tree_place_end(const struct fs_draft_tree_place *p)
{
	if (p->own && p->dir >= 0)
		close(p->dir);
}

/* ---- open files ---- */

void fs_draft_tree_attach(struct fs_draft_tree *s, struct fs_draft_tree_file *f)
{
	struct fs_draft_tree_name *n;

	pthread_mutex_lock(&s->lock);
	n = fs_draft_tree_node_of(s, f->ino);
	if (n) {
		f->next = n->open;
		n->open = f;
	}
	pthread_mutex_unlock(&s->lock);
}

/* The kernel forgets an inode only after its last file was released. */
void fs_draft_tree_detach(struct fs_draft_tree *s, struct fs_draft_tree_file *f)
{
	struct fs_draft_tree_file **at;
	struct fs_draft_tree_name *n;

	pthread_mutex_lock(&s->lock);
	n = fs_draft_tree_node_of(s, f->ino);
	for (at = n ? &n->open : NULL; at && *at; at = &(*at)->next)
		if (*at == f) {
			*at = f->next;
			break;
		}
	pthread_cond_broadcast(&s->released);
	pthread_mutex_unlock(&s->lock);
}

int fs_draft_tree_dup(struct fs_draft_tree *s, uint64_t ino)
{
	struct fs_draft_tree_name *n;
	int fd = -ESTALE;

	pthread_mutex_lock(&s->lock);
	n = fs_draft_tree_node_of(s, ino);
	if (n && n->open)
		fd = fcntl(n->open->fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&s->lock);
	return fd == -1 ? -errno : fd;
}
