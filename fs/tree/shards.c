/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.c - the table of paths that the kernel knows
 *
 * A node is one path below SRC with the kernel's references to it, found by
 * its inode number in a chained hash table.  The lock is held for look-ups in
 * memory only, never while a file is opened.
 */
#include "fs/tree/shards.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/vec.h"
#include "core/draft/dir_tree.h"
#include "core/run/run_dir.h"
#include "fs/tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <xxhash.h>

#define FIRST_BUCKETS 64

struct node {
	struct node *next;
	uint64_t ino, refs;
	char path[];
};

struct fs_shards {
	const struct ck_root *root;
	uint64_t seed;
	pthread_mutex_t lock;
	struct node **buckets;
	size_t nr_buckets, nr;
};

/* Hostile names must not be able to choose their inode numbers. */
static uint64_t random_seed(void)
{
	const void *at = (const void *)getauxval(AT_RANDOM);
	uint64_t seed = 0;

	if (at)
		memcpy(&seed, at, sizeof(seed));
	return seed;
}

struct fs_shards *fs_shards_new(const struct ck_root *root)
{
	struct fs_shards *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->root = root;
	s->seed = random_seed();
	pthread_mutex_init(&s->lock, NULL);
	s->nr_buckets = FIRST_BUCKETS;
	s->buckets = calloc(s->nr_buckets, sizeof(*s->buckets));
	if (s->buckets)
		return s;
	fs_shards_free(s);
	return NULL;
}

void fs_shards_free(struct fs_shards *s)
{
	if (!s)
		return;
	for (size_t i = 0; s->buckets && i < s->nr_buckets; i++) {
		while (s->buckets[i]) {
			struct node *n = s->buckets[i];

			s->buckets[i] = n->next;
			free(n);
		}
	}
	free(s->buckets);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void fs_shards_move(struct fs_shards *s, const struct ck_root *root)
{
	s->root = root;
}

const struct ck_root *fs_shards_root(const struct fs_shards *s)
{
	return s->root;
}

static uint64_t path_ino(const struct fs_shards *s, const char *path)
{
	if (!*path)
		return FS_INO_SHARDS;
	return FS_INO_SHARD |
	       (XXH3_64bits_withSeed(path, strlen(path), s->seed) &
		(FS_INO_SHARD - 1) & ~FS_INO_TURN);
}

static struct node **slot_of(const struct fs_shards *s, uint64_t ino)
{
	struct node **at = &s->buckets[ino & (s->nr_buckets - 1)];

	while (*at && (*at)->ino != ino)
		at = &(*at)->next;
	return at;
}

/* The number is only a hint where memory is short: chains get longer. */
static void grow(struct fs_shards *s)
{
	struct node **old = s->buckets;
	size_t nr = s->nr_buckets;

	s->buckets = calloc(2 * nr, sizeof(*s->buckets));
	if (!s->buckets) {
		s->buckets = old;
		return;
	}
	s->nr_buckets = 2 * nr;
	for (size_t i = 0; i < nr; i++) {
		while (old[i]) {
			struct node *n = old[i];
			struct node **at = slot_of(s, n->ino);

			old[i] = n->next;
			n->next = NULL;
			*at = n;
		}
	}
	free(old);
}

/* Under the lock: the node of @path, with one reference more. */
static struct node *take_node(struct fs_shards *s, const char *path)
{
	uint64_t ino = path_ino(s, path);
	struct node **at = slot_of(s, ino);
	size_t len = strlen(path);
	struct node *n;

	while (*at && strcmp((*at)->path, path)) /* two paths, one hash */
		at = slot_of(s,
			     ino = (FS_INO_SHARD | (ino + 1)) & ~FS_INO_TURN);
	if (*at) {
		(*at)->refs++;
		return *at;
	}
	n = malloc(sizeof(*n) + len + 1);
	if (!n)
		return NULL;
	n->next = NULL;
	n->ino = ino;
	n->refs = 1;
	memcpy(n->path, path, len + 1);
	*at = n;
	if (++s->nr > s->nr_buckets)
		grow(s);
	return n;
}

void fs_shards_forget(struct fs_shards *s, uint64_t ino, uint64_t nr)
{
	struct node **at, *n;

	pthread_mutex_lock(&s->lock);
	at = slot_of(s, ino);
	n = *at;
	if (n) {
		n->refs -= CK_MIN(n->refs, nr);
		if (!n->refs) {
			*at = n->next;
			s->nr--;
			free(n);
		}
	}
	pthread_mutex_unlock(&s->lock);
}

/* A copy of the path behind @ino; NULL: unknown, or no memory. */
char *fs_shards_path_of(struct fs_shards *s, uint64_t ino)
{
	const struct node *n;
	char *path;

	if (ino == FS_INO_SHARDS)
		return strdup("");
	pthread_mutex_lock(&s->lock);
	n = *slot_of(s, ino);
	path = n ? strdup(n->path) : NULL;
	pthread_mutex_unlock(&s->lock);
	return path;
}

static char *join(const char *dir, const char *name)
{
	size_t dir_len = strlen(dir), len = strlen(name);
	char *path = malloc(dir_len + len + 2);

	if (!path)
		return NULL;
	memcpy(path, dir, dir_len);
	if (dir_len)
		path[dir_len++] = '/';
	memcpy(path + dir_len, name, len + 1);
	return path;
}

/* What is neither a file nor a directory, or leads outside, is not shown. */
static int hide(int ret)
{
	return ret == -EXDEV || ret == -ELOOP || ret == -EINVAL ||
			       ret == -ENOTDIR ?
		       -ENOENT :
		       ret;
}

/* In the first root that has the name; a file given alone is shown as one. */
static int link_at(const struct fs_shards *s, const char *path,
		   char to[PATH_MAX], struct stat *st)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	ck_auto_free char *dir = strndup(path, (size_t)(name - path));
	unsigned depth = 0;

	if (!dir || s->root->only)
		return dir ? -EINVAL : -ENOMEM;
	if (slash)
		dir[slash - path] = '\0';
	for (const char *p = path; *p; p++)
		depth += *p == '/';
	for (const struct ck_root *r = s->root; r; r = r->next) {
		ck_auto_fd int at = -1;
		ssize_t n;

		if (ck_root_open_dir(r, dir, &at, NULL) ||
		    fstatat(at, name, st, AT_SYMLINK_NOFOLLOW))
			continue;
		n = readlinkat(at, name, to, PATH_MAX - 1);
		if (n < 0)
			return -EINVAL;
		to[n] = '\0';
		return ck_dir_tree_link_ok(depth, to) ? 0 : -EINVAL;
	}
	return -EINVAL;
}

int fs_shards_stat_path(const struct fs_shards *s, const char *path,
			struct stat *st, struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	char to[PATH_MAX];
	int file, dir;

	if (!ck_run_dir_shows(s->root, path))
		return ck_fail(err, ENOENT, "%s: is of another save", path);
	if (!link_at(s, path, to, st))
		return 0;
	file = ck_root_open_file(s->root, path, &fd, st, err);
	if (!file || file == -ENOENT)
		return file;
	dir = ck_root_find_dir(s->root, path, &fd, NULL);
	if (dir)
		return hide(file);
	return fstat(fd, st) ? -errno : 0;
}

int fs_shards_lookup(struct fs_shards *s, uint64_t dir, const char *name,
		     uint64_t *ino, struct stat *st, struct ck_err *err)
{
	ck_auto_free char *parent = fs_shards_path_of(s, dir);
	ck_auto_free char *path = parent ? join(parent, name) : NULL;
	struct node *n;
	int ret;

	if (!parent)
		return ck_fail(err, ESTALE, "shards: unknown directory");
	if (!path)
		return ck_no_memory(err);
	ret = fs_shards_stat_path(s, path, st, err);
	if (ret)
		return ret;
	pthread_mutex_lock(&s->lock);
	n = take_node(s, path);
	if (n)
		*ino = st->st_ino = n->ino;
	pthread_mutex_unlock(&s->lock);
	return n ? 0 : ck_no_memory(err);
}

int fs_shards_stat(struct fs_shards *s, uint64_t ino, struct stat *st,
		   struct ck_err *err)
{
	ck_auto_free char *path = fs_shards_path_of(s, ino);
	int ret;

	if (!path)
		return ck_fail(err, ESTALE, "shards: unknown inode");
	ret = fs_shards_stat_path(s, path, st, err);
	st->st_ino = ino;
	return ret;
}

int fs_shards_readlink(struct fs_shards *s, uint64_t ino, char out[PATH_MAX])
{
	ck_auto_free char *path = fs_shards_path_of(s, ino);
	struct stat st;

	return path ? link_at(s, path, out, &st) : -ESTALE;
}

int fs_shards_open(struct fs_shards *s, uint64_t ino, int *fd, struct stat *st,
		   struct ck_err *err)
{
	ck_auto_free char *path = fs_shards_path_of(s, ino);

	if (!path)
		return ck_fail(err, ESTALE, "shards: unknown inode");
	return ck_root_open_file(s->root, path, fd, st, err);
}

/* ---- what a directory holds ---- */

void fs_shards_list_free(struct fs_shard_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->nr; i++)
		free(l->v[i].name);
	free(l->v);
	free(l);
}

void fs_shards_list_add(struct fs_shard_list *l, const char *name, uint64_t ino,
			mode_t type)
{
	char *copy = strdup(name);
	struct fs_shard_entry *e = copy ? ck_vec_push(l) : NULL;

	l->failed |= !e;
	if (e)
		*e = (struct fs_shard_entry){ copy, ino, type };
	else
		free(copy);
}

static void add_dots(const struct fs_shards *s, struct fs_shard_list *l,
		     const char *path)
{
	const char *slash = strrchr(path, '/');
	ck_auto_free char *up =
		strndup(path, slash ? (size_t)(slash - path) : 0);

	l->failed |= !up;
	fs_shards_list_add(l, ".", path_ino(s, path), S_IFDIR);
	fs_shards_list_add(l, "..", *path && up ? path_ino(s, up) : FS_INO_ROOT,
			   S_IFDIR);
}

/* Nothing where it is one that is not shown. */
static void add_entry(const struct fs_shards *s, struct fs_shard_list *l,
		      const char *dir, const struct dirent *d)
{
	ck_auto_free char *path = NULL;
	struct stat st = { .st_mode = (mode_t)DTTOIF(d->d_type) };

	if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
		return;
	path = join(dir, d->d_name);
	l->failed |= !path;
	if (!path || !ck_run_dir_shows(s->root, path))
		return;
	if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ||
	    !fs_shards_stat_path(s, path, &st, NULL))
		fs_shards_list_add(l, d->d_name, path_ino(s, path),
				   st.st_mode & S_IFMT);
}

static int fill_from(const struct fs_shards *s, struct fs_shard_list *l,
		     const struct ck_root *root, const char *path,
		     struct ck_err *err)
{
	ck_auto_dir DIR *dir = NULL;
	const struct dirent *d;
	int ret = ck_root_list(root, path, &dir, err);

	if (ret)
		return ret;
	while ((errno = 0, d = readdir(dir)))
		add_entry(s, l, path, d);
	return errno ? ck_fail(err, errno, "%s/%s: %s", root->path, path,
			       strerror(errno)) :
		       0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct fs_shard_entry *)a)->name,
		      ((const struct fs_shard_entry *)b)->name);
}

/* What several roots of a chain hold is listed once; "." and ".." stay. */
static void drop_twins(struct fs_shard_list *l)
{
	size_t kept = 2;

	if (l->nr > 2)
		qsort(l->v + 2, l->nr - 2, sizeof(*l->v), by_name);
	for (size_t i = 2; i < l->nr; i++) {
		if (kept > 2 && !by_name(&l->v[kept - 1], &l->v[i]))
			free(l->v[i].name);
		else
			l->v[kept++] = l->v[i];
	}
	l->nr = kept;
}

static int fill(const struct fs_shards *s, struct fs_shard_list *l,
		const char *path, struct ck_err *err)
{
	const struct ck_root *root = s->root;
	bool found = false;
	int ret = 0;

	add_dots(s, l, path);
	if (root->only && !*path) {
		fs_shards_list_add(l, root->only, path_ino(s, root->only),
				   S_IFREG);
		return 0;
	}
	for (const struct ck_root *r = root; !ret && r; r = r->next) {
		ret = fill_from(s, l, r, path, err);
		found |= !ret;
		if (ret == -ENOENT && (found || r->next))
			ret = 0;
	}
	if (found && root->next && !l->failed)
		drop_twins(l);
	return ret;
}

int fs_shards_list(struct fs_shards *s, uint64_t dir,
		   struct fs_shard_list **out, struct ck_err *err)
{
	ck_auto_free char *path = fs_shards_path_of(s, dir);
	struct fs_shard_list *l = calloc(1, sizeof(*l));
	int ret;

	if (!path || !l) {
		free(l);
		return ck_fail(err, path ? ENOMEM : ESTALE,
			       "shards: unknown directory, or no memory");
	}
	ret = fill(s, l, path, err);
	if (!ret && l->failed)
		ret = ck_no_memory(err);
	if (ret)
		fs_shards_list_free(l);
	else
		*out = l;
	return ret;
}
