/* SPDX-License-Identifier: Apache-2.0 */
/* dir_root.c - a real directory, or one real file, as readers see it */
#include "core/root/dir.h"

#include "core/base/auto.h"
#include "core/base/str.h"
#include "core/root/root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

static const char *suffix_of(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot : "";
}

/*
 * Whether the link @name is one more name for a file beside it, as trainers
 * mark the newest and the best: the same kind by its suffix.
 */
static bool is_second_name(const struct ck_root *root, int fd, const char *name,
			   const char *path)
{
	char to[PATH_MAX];
	struct stat st;
	ssize_t n = readlinkat(fd, name, to, sizeof(to) - 1);

	if (n <= 0)
		return false;
	to[n] = '\0';
	return !strcmp(suffix_of(name), suffix_of(to)) &&
	       ck_root_is_second_name(root, fd, name, path) &&
	       !fstatat(fd, to, &st, AT_SYMLINK_NOFOLLOW) &&
	       S_ISREG(st.st_mode);
}

/* Whether a link may be followed is root.c's to say. */
static int add_entry(const struct ck_root *root, int fd, const char *sub,
		     const char *name, struct ck_dir_list *out)
{
	ck_auto_str struct ck_str path = { 0 };
	struct stat st, to;
	bool link;

	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	link = S_ISLNK(st.st_mode);
	if (link)
		ck_str_fmt(&path, "%s%s%s", sub, *sub ? "/" : "", name);
	if (path.failed)
		return -ENOMEM;
	if (link && is_second_name(root, fd, name, path.v))
		return 0;
	return ck_dir_list_add(
		out, sub, name,
		link ? ck_root_stat_link(root, fd, name, path.v, &to) &&
				S_ISDIR(to.st_mode) :
		       S_ISDIR(st.st_mode),
		S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
}

static int list_all(const struct ck_root *root, const char *sub, DIR *dir,
		    struct ck_dir_list *out, struct ck_err *err)
{
	for (;;) {
		struct dirent *e;
		int ret;

		errno = 0;
		e = readdir(dir);
		if (!e && errno)
			return ck_fail(err, errno, "%s/%s: %s", root->path, sub,
				       strerror(errno));
		if (!e)
			return 0;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		ret = add_entry(root, dirfd(dir), sub, e->d_name, out);
		if (ret)
			return ck_fail(err, -ret, "%s/%s: %s: %s", root->path,
				       sub, e->d_name, strerror(-ret));
	}
}

static int list_one(const struct ck_root *root, const char *sub,
		    struct ck_dir_list *out, struct ck_err *err)
{
	ck_auto_dir DIR *dir = NULL;
	int ret = ck_root_list(root, sub, &dir, err);

	if (ret)
		return ret;
	return list_all(root, sub, dir, out, err);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ck_dir_entry *)a)->name,
		      ((const struct ck_dir_entry *)b)->name);
}

/* What several roots of a chain hold is listed once. */
static void drop_twins(struct ck_dir_list *l)
{
	size_t kept = 0;

	if (l->nr)
		qsort(l->v, l->nr, sizeof(*l->v), by_name);
	for (size_t i = 0; i < l->nr; i++) {
		if (kept && !by_name(&l->v[kept - 1], &l->v[i]))
			free(l->v[i].name);
		else
			l->v[kept++] = l->v[i];
	}
	l->nr = kept;
}

static int root_list(const struct ck_dir *d, const char *sub,
		     struct ck_dir_list *out, struct ck_err *err)
{
	const struct ck_root *root = d->ctx;
	bool found = false;
	int ret = -ENOENT;

	if (root->only)
		return *sub ? 0 :
			      ck_dir_list_add(out, "", root->only, false, 0);
	for (const struct ck_root *r = root; r; r = r->next) {
		ret = list_one(r, sub, out, err);
		if (ret && ret != -ENOENT)
			return ret;
		found |= !ret;
	}
	if (found && root->next)
		drop_twins(out);
	return found ? 0 : ret;
}

static int root_open(const struct ck_dir *d, const char *name,
		     struct ck_source **out, struct ck_err *err)
{
	struct stat st;
	int fd, ret;

	ret = ck_root_open_file(d->ctx, name, &fd, &st, err);
	if (ret)
		return ret;
	*out = ck_source_file(fd, name, &st);
	return *out ? 0 : ck_no_memory(err);
}

static bool root_beside(const struct ck_dir *d, const char *name)
{
	struct stat st;

	for (const struct ck_root *r = d->ctx; r; r = r->next)
		if (!fstatat(r->fd, name, &st, AT_SYMLINK_NOFOLLOW))
			return true;
	return false;
}

static bool root_written(const struct ck_dir *d, const char *name)
{
	char names[CK_ROOT_MARK_MAX + 1];
	size_t len = ck_root_mark(d->ctx, names);

	return ck_root_mark_has(names, len, name);
}

static const struct ck_dir_ops root_ops = {
	.list = root_list,
	.open = root_open,
	.beside = root_beside,
	.written = root_written,
};

void ck_dir_root_init(struct ck_dir *d, const struct ck_root *root,
		      const struct ck_opts *opts)
{
	*d = (struct ck_dir){
		.ops = &root_ops,
		.opts = opts,
		.path = root->path,
		.only = root->only,
		.save = root->save,
		.hides = root->hides,
		.entry = root->entry,
		.ctx = root,
	};
}
