/* SPDX-License-Identifier: Apache-2.0 */
/* shards_dir.c - what a directory of SRC holds */
#include "fs/tree/shards_priv.h"

#include "core/base/auto.h"
#include "core/base/vec.h"
#include "core/run/run_dir.h"
#include "fs/tree/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

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
	fs_shards_list_add(l, ".", fs_shards_path_ino(s, path), S_IFDIR);
	fs_shards_list_add(
		l, "..", *path && up ? fs_shards_path_ino(s, up) : FS_INO_ROOT,
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
	path = fs_shards_join(dir, d->d_name);
	l->failed |= !path;
	if (!path || !ck_run_dir_shows(fs_shards_root(s), path))
		return;
	if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) ||
	    !fs_shards_stat_path(s, path, &st, NULL))
		fs_shards_list_add(l, d->d_name, fs_shards_path_ino(s, path),
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
	const struct ck_root *root = fs_shards_root(s);
	bool found = false;
	int ret = 0;

	add_dots(s, l, path);
	if (root->only && !*path) {
		fs_shards_list_add(l, root->only,
				   fs_shards_path_ino(s, root->only), S_IFREG);
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
