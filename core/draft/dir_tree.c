/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir_tree.c - walking the files of a draft
 *
 * The list is its own queue: directories in it are read one after the other,
 * and what they hold is appended.
 */
#include "core/draft/dir_tree.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/pool.h"
#include "core/base/vec.h"
#include "core/root/openat_beneath.h"
#include "core/root/fault_point.h"
#include "core/root/root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_THREADS 16
#define MAX_FILES (1u << 22)

static uint64_t sign(const struct ck_dir_tree_file *f)
{
	const uint64_t key[] = {
		(uint64_t)f->st.st_ino,		(uint64_t)f->st.st_size,
		(uint64_t)f->st.st_mtim.tv_sec, (uint64_t)f->st.st_mtim.tv_nsec,
		(uint64_t)f->st.st_ctim.tv_sec, (uint64_t)f->st.st_ctim.tv_nsec,
	};
	/* a directory's own times are those of what came and went in it */
	return XXH3_64bits_withSeed(key, sizeof(key),
				    XXH3_64bits(f->path, strlen(f->path)));
}

/* The manifest comes while what it is about stays. */
static bool is_ours(const char *name)
{
	return !strncmp(name, CK_MANIFEST_OURS, strlen(CK_MANIFEST_OURS));
}

static int append(struct ck_dir_tree *l, const char *dir, const char *name,
		  const struct stat *st, struct ck_err *err)
{
	struct ck_dir_tree_file *f = l->nr < MAX_FILES ? ck_vec_push(l) : NULL;

	if (!f)
		return ck_no_memory(err);
	*f = (struct ck_dir_tree_file){ .st = *st };
	if (asprintf(&f->path, "%s%s%s", dir, *dir ? "/" : "", name) < 0) {
		l->nr--;
		return ck_no_memory(err);
	}
	if (!is_ours(name))
		l->signature += sign(f);
	else if (!*dir && !strcmp(name, CK_MANIFEST_NAME))
		l->manifest = sign(f);
	if (S_ISREG(st->st_mode) &&
	    !ck_add_ok(l->bytes, (uint64_t)st->st_size, &l->bytes))
		l->bytes = CK_SIZE_MAX;
	return 0;
}

static int list_one(struct ck_dir_tree *l, int top, const char *path,
		    struct ck_err *err)
{
	ck_auto_dir DIR *dir = NULL;
	const struct dirent *d;
	struct stat st;
	int ret = ck_beneath_list(top, path, &dir);

	if (ret == -ENOENT && *path)
		return 0;
	if (ret)
		return ck_fail(err, -ret, "%s: %s", path, strerror(-ret));
	while (!ret && (errno = 0, d = readdir(dir))) {
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
		    fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		ret = append(l, path, d->d_name, &st, err);
	}
	if (!ret && errno)
		ret = ck_fail(err, errno, "%s: %s", path, strerror(errno));
	return ret;
}

int ck_dir_tree_list(struct ck_dir_tree *out, int dir, struct ck_err *err)
{
	int ret;

	*out = (struct ck_dir_tree){ 0 };
	ret = list_one(out, dir, "", err);
	for (size_t i = 0; !ret && i < out->nr; i++)
		if (S_ISDIR(out->v[i].st.st_mode))
			ret = list_one(out, dir, out->v[i].path, err);
	if (ret)
		ck_dir_tree_free(out);
	return ret;
}

void ck_dir_tree_free(struct ck_dir_tree *f)
{
	for (size_t i = 0; i < f->nr; i++)
		free(f->v[i].path);
	free(f->v);
	*f = (struct ck_dir_tree){ 0 };
}

/* ---- fsync ---- */

struct sync {
	const struct ck_dir_tree *files;
	int dir;
	atomic_size_t next;
	atomic_bool failed;
	pthread_mutex_t lock;
	struct ck_err err; /* of the first that failed */
};

static int sync_fd(int fd, const char *path, struct ck_err *err)
{
	int ret = ck_fault_point("fsync", err);

	if (!ret && fsync(fd))
		ret = ck_fail(err, errno, "fsync: %s", strerror(errno));
	return ret ? ck_wrap(err, ret, "%s", path) : 0;
}

static int sync_file(int dir, const struct ck_dir_tree_file *f,
		     struct ck_err *err)
{
	ck_auto_fd int fd = ck_beneath_file(dir, f->path, O_RDONLY);

	/* fsync needs no right but to have it open */
	if (fd == -EACCES)
		fd = ck_beneath_file(dir, f->path, O_WRONLY);
	if (fd < 0)
		return ck_fail(err, -fd, "%s: %s", f->path, strerror(-fd));
	return sync_fd(fd, f->path, err);
}

static void sync_some(void *ctx)
{
	struct sync *s = ctx;
	struct ck_err err;
	size_t i;

	while ((i = atomic_fetch_add(&s->next, 1)) < s->files->nr) {
		const struct ck_dir_tree_file *f = &s->files->v[i];

		if (!S_ISREG(f->st.st_mode) || atomic_load(&s->failed))
			continue;
		err = (struct ck_err){ 0 };
		if (!sync_file(s->dir, f, &err))
			continue;
		pthread_mutex_lock(&s->lock);
		if (!atomic_exchange(&s->failed, true))
			s->err = err;
		pthread_mutex_unlock(&s->lock);
	}
}

static int sync_files(const struct ck_dir_tree *f, int dir, unsigned threads,
		      struct ck_err *err)
{
	struct sync s = { .files = f, .dir = dir };
	const struct ck_pool_in in = {
		.jobs = (unsigned)CK_MIN(CK_MIN(threads, MAX_THREADS), f->nr),
		.ctx = &s,
		.work = sync_some,
	};

	pthread_mutex_init(&s.lock, NULL);
	if (in.jobs < 2)
		sync_some(&s);
	else
		ck_pool_run(&in);
	pthread_mutex_destroy(&s.lock);
	return s.failed ? ck_fail(err, s.err.code, "%s", s.err.msg) : 0;
}

static int sync_dir(int dir, const char *path, struct ck_err *err)
{
	ck_auto_fd int fd = ck_beneath_dir(dir, path);

	if (fd < 0)
		return ck_fail(err, -fd, "%s: %s", path, strerror(-fd));
	return sync_fd(fd, *path ? path : "its directory", err);
}

int ck_dir_tree_sync(const struct ck_dir_tree *f, int dir, unsigned threads,
		     struct ck_err *err)
{
	int ret = sync_files(f, dir, threads, err);

	for (size_t i = f->nr; !ret && i-- > 0;)
		if (S_ISDIR(f->v[i].st.st_mode))
			ret = sync_dir(dir, f->v[i].path, err);
	return ret ? ret : sync_dir(dir, "", err);
}

/* ---- removing ---- */

static int remove_below(int dir, const struct ck_dir_tree_file *f,
			struct ck_err *err)
{
	bool is_dir = S_ISDIR(f->st.st_mode);
	ck_auto_free char *up = strdup(f->path);
	char *slash = up ? strrchr(up, '/') : NULL;
	ck_auto_fd int at = -1;
	const char *name = slash ? slash + 1 : up;
	int ret = ck_fault_point("remove", err);

	if (ret)
		return ret;
	if (!up)
		return ck_no_memory(err);
	if (slash)
		*slash = '\0';
	at = ck_beneath_dir(dir, slash ? up : "");
	if (at < 0)
		return ck_fail(err, -at, "%s: %s", f->path, strerror(-at));
	if (unlinkat(at, name, is_dir ? AT_REMOVEDIR : 0) && errno != ENOENT)
		return ck_fail(err, errno, "%s: %s", f->path, strerror(errno));
	return 0;
}

int ck_dir_tree_remove(int at, const char *name, struct ck_err *err)
{
	ck_auto_dir_tree struct ck_dir_tree f = { 0 };
	ck_auto_fd int dir = ck_beneath_dir(at, name);
	int ret;

	if (dir < 0)
		return dir == -ENOENT ? 0 :
					ck_fail(err, -dir, "%s: %s", name,
						strerror(-dir));
	ret = ck_dir_tree_list(&f, dir, err);
	for (size_t i = f.nr; !ret && i-- > 0;)
		ret = remove_below(dir, &f.v[i], err);
	if (!ret)
		ret = ck_fault_point("remove", err);
	if (!ret && unlinkat(at, name, AT_REMOVEDIR) && errno != ENOENT)
		ret = ck_fail(err, errno, "%s: %s", name, strerror(errno));
	return ret;
}

bool ck_dir_tree_link_ok(unsigned depth, const char *to)
{
	bool down = false;

	if (!*to || *to == '/')
		return false;
	while (*to) {
		size_t n = strcspn(to, "/");

		if (n == 2 && !memcmp(to, "..", 2)) {
			/* behind a name, which may be a link itself */
			if (down || !depth--)
				return false;
		} else if (n && !(n == 1 && *to == '.')) {
			down = true;
		}
		to += n + (to[n] == '/');
	}
	return true;
}
