/* SPDX-License-Identifier: Apache-2.0 */
/*
 * root.c - the directory of a checkpoint and the places that it may link to
 *
 * In a Hugging Face hub cache a checkpoint is
 * .../models--ORG--NAME/snapshots/REVISION, and every file in it is a link
 * ../../blobs/HASH (one more "../" for each folder below REVISION).
 */
#include "core/root/root_priv.h"

#include "core/base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of @path before byte @end, back to the last slash before it. */
static const char *part_before(const char *path, size_t *end)
{
	size_t stop = *end;

	while (stop && path[stop - 1] == '/')
		stop--;
	*end = stop;
	while (*end && path[*end - 1] != '/')
		--*end;
	return path + *end;
}

static bool is_repository(const char *part)
{
	static const char *const kinds[] = { "models--", "datasets--",
					     "spaces--" };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strncmp(part, kinds[i], strlen(kinds[i])))
			return true;
	return false;
}

/*
 * Steps from the real directory @path up to the hub repository that it lies
 * in, below snapshots/REVISION; 0: in none.
 */
static unsigned hub_steps(const char *path)
{
	size_t end = strlen(path);
	unsigned up = 0;

	while (end) {
		const char *part = part_before(path, &end);

		if (up >= 1 && !strncmp(part, "snapshots/", 10)) {
			const char *repo = part_before(path, &end);

			return is_repository(repo) ? up + 1 : 0;
		}
		up++;
	}
	return 0;
}

static void find_blobs(struct ck_root *root)
{
	char rel[PATH_MAX] = "";
	unsigned up = hub_steps(root->real);

	if (!up || up > PATH_MAX / 3 - 4)
		return;
	for (unsigned i = 0; i < up; i++)
		memcpy(rel + 3 * i, "../", 4);
	memcpy(rel + 3 * (size_t)up, "blobs", 6);
	root->blobs_fd = openat(root->fd, rel,
				O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	root->blobs_up = up;
}

static char *absolute(const char *path)
{
	char joined[PATH_MAX];
	ck_auto_free char *cwd = NULL;

	if (path[0] != '/') {
		cwd = getcwd(NULL, 0);
		if (!cwd)
			return NULL;
	}
	return ck_path_join(joined, cwd ? cwd : "", path) ? strdup(joined) :
							    NULL;
}

static int add_follow(struct ck_root *root, unsigned i, const char *dir,
		      struct ck_err *err)
{
	root->follow_path[i] = realpath(dir, NULL);
	if (!root->follow_path[i])
		return ck_fail(err, errno, "-o follow=%s: %s", dir,
			       strerror(errno));
	root->follow_given[i] = absolute(dir);
	if (!root->follow_given[i])
		return ck_no_memory(err);
	root->follow_fd[i] =
		open(root->follow_path[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root->follow_fd[i] < 0)
		return ck_fail(err, errno, "-o follow=%s: %s", dir,
			       strerror(errno));
	return 0;
}

/* Room for @more directories, none of them open yet. */
static int grow_follows(struct ck_root *root, unsigned more, struct ck_err *err)
{
	unsigned nr = root->nr_follow + more;
	int *fd = reallocarray(root->follow_fd, nr, sizeof(*fd));
	char **path, **given;

	if (fd)
		root->follow_fd = fd;
	path = reallocarray(root->follow_path, nr, sizeof(*path));
	if (path)
		root->follow_path = path;
	given = reallocarray(root->follow_given, nr, sizeof(*given));
	if (given)
		root->follow_given = given;
	if (!fd || !path || !given)
		return ck_no_memory(err);
	for (; root->nr_follow < nr; root->nr_follow++) {
		fd[root->nr_follow] = -1;
		path[root->nr_follow] = given[root->nr_follow] = NULL;
	}
	return 0;
}

static int add_follows(struct ck_root *root, const struct ck_opts *opts,
		       struct ck_err *err)
{
	unsigned nr = 0;
	int ret;

	while (ck_opts_nth(opts, "follow", nr))
		nr++;
	if (!nr)
		return 0;
	ret = grow_follows(root, nr, err);
	for (unsigned i = 0; i < nr && !ret; i++)
		ret = add_follow(root, i, ck_opts_nth(opts, "follow", i), err);
	return ret;
}

int ck_root_allow(struct ck_root *root, const struct ck_root *whole,
		  struct ck_err *err)
{
	int ret = 0;

	for (; root && !ret; root = root->next)
		for (const struct ck_root *w = whole; w && !ret; w = w->next) {
			ret = grow_follows(root, 1, err);
			if (!ret)
				ret = add_follow(root, root->nr_follow - 1,
						 w->real, err);
		}
	return ret;
}

static int open_dir_at(struct ck_root *root, const char *dir,
		       struct ck_err *err)
{
	root->real = realpath(dir, NULL);
	if (root->real)
		root->fd = open(root->real, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root->fd < 0)
		return ck_fail(err, errno, "%s: %s", root->path,
			       strerror(errno));
	find_blobs(root);
	return 0;
}

/* Splits @path, as given, into the directory and root->only, and opens it. */
static int open_parent(struct ck_root *root, const char *path,
		       struct ck_err *err)
{
	ck_auto_free char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;

	root->only = strdup(slash ? slash + 1 : path);
	if (!dir || !root->only)
		return ck_no_memory(err);
	if (slash)
		*slash = '\0';
	return open_dir_at(root, !slash ? "." : *dir ? dir : "/", err);
}

/*
 * A file: the directory that holds it, and its name there.  Where the path is
 * a link, that is where the link leads, except in a hub cache, whose links
 * have the telling names.
 */
static int open_file_at(struct ck_root *root, struct ck_err *err)
{
	ck_auto_free char *real = NULL;
	struct stat st;
	int ret = open_parent(root, root->path, err);

	if (ret || root->blobs_fd >= 0)
		return ret;
	if (fstatat(root->fd, root->only, &st, AT_SYMLINK_NOFOLLOW) ||
	    !S_ISLNK(st.st_mode))
		return 0;
	real = realpath(root->path, NULL);
	if (!real)
		return ck_fail(err, errno, "%s: %s", root->path,
			       strerror(errno));
	free(root->real);
	free(root->only);
	close(root->fd);
	root->fd = -1;
	root->real = root->only = NULL;
	return open_parent(root, real, err);
}

static int open_any(struct ck_root *root, const char *path,
		    const struct ck_opts *opts, struct ck_err *err)
{
	struct stat st;
	int ret;

	root->path = strdup(path);
	if (!root->path)
		return ck_no_memory(err);
	if (stat(path, &st))
		return ck_fail(err, errno, "%s: %s", path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		ret = open_dir_at(root, root->path, err);
	else if (S_ISREG(st.st_mode))
		ret = open_file_at(root, err);
	else
		ret = ck_fail(err, EINVAL,
			      "%s: expected a directory or a file, found %s",
			      path,
			      S_ISFIFO(st.st_mode) ? "a FIFO" :
			      S_ISSOCK(st.st_mode) ? "a socket" :
						     "a device");
	return ret ? ret : add_follows(root, opts, err);
}

static int open_one(struct ck_root *root, const char *path,
		    const struct ck_opts *opts, struct ck_err *err)
{
	int ret;

	*root = (struct ck_root){ .fd = -1, .blobs_fd = -1 };
	ret = open_any(root, path, opts, err);
	if (ret)
		ck_root_close(root);
	return ret;
}

/* Cuts the first of A:B:C off; "\\:" is a colon.  The rest, or NULL. */
static const char *cut_first(const char *paths, char first[PATH_MAX])
{
	size_t n = 0;

	while (*paths && *paths != ':') {
		if (paths[0] == '\\' && paths[1] == ':')
			paths++;
		if (n + 1 < PATH_MAX)
			first[n++] = *paths;
		paths++;
	}
	first[n] = '\0';
	return *paths ? paths + 1 : NULL;
}

static int open_chain(struct ck_root *root, const char *paths,
		      const struct ck_opts *opts, struct ck_err *err)
{
	struct ck_root *last = root;
	char path[PATH_MAX];
	int ret = 0;

	for (const char *rest = paths; rest && !ret;) {
		rest = cut_first(rest, path);
		if (!*path)
			return ck_fail(err, ENOENT,
				       "%s: expected a directory on both sides "
				       "of a colon; \"\\:\" is one in a name",
				       paths);
		if (root->path) {
			last->next = calloc(1, sizeof(*last->next));
			if (!last->next)
				return ck_no_memory(err);
			last = last->next;
		}
		ret = open_one(last, path, opts, err);
		if (!ret && last->only && (rest || last != root))
			ret = ck_fail(
				err, EINVAL,
				"%s: expected a directory to join with others, found a file",
				path);
	}
	return ret;
}

/* "s3://...": a folder "s3:" of the caller's is called so too, but is there. */
static bool is_url(const char *path)
{
	size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789+.-");

	return n && !strncmp(path + n, "://", 3);
}

int ck_root_open(struct ck_root *root, const char *path,
		 const struct ck_opts *opts, struct ck_err *err)
{
	struct stat st;
	int ret;

	if (!stat(path, &st) || !strchr(path, ':'))
		return open_one(root, path, opts, err);
	if (is_url(path))
		return ck_fail(err, ENOENT,
			       "%s: expected a path: what lies in a store is "
			       "read where the store is mounted",
			       path);
	*root = (struct ck_root){ .fd = -1, .blobs_fd = -1 };
	ret = open_chain(root, path, opts, err);
	if (ret)
		ck_root_close(root);
	return ret;
}

bool ck_root_is_one(const char *path, char name[PATH_MAX])
{
	struct stat st;

	if (strlen(path) >= PATH_MAX)
		return false;
	if (stat(path, &st) && strchr(path, ':')) {
		if (!cut_first(path, name))
			return true; /* "\\:" only */
		if (!stat(name, &st))
			return false;
	}
	strcpy(name, path);
	return true;
}

unsigned ck_root_fds(const struct ck_root *root, int *fds, unsigned max)
{
	unsigned nr = 0;

	for (; root; root = root->next) {
		if (nr < max)
			fds[nr] = root->fd;
		if (nr + 1 < max)
			fds[nr + 1] = root->blobs_fd;
		nr += 2;
		for (unsigned i = 0; i < root->nr_follow; i++, nr++)
			if (nr < max)
				fds[nr] = root->follow_fd[i];
	}
	return nr;
}

static void close_one(struct ck_root *root)
{
	for (unsigned i = 0; i < root->nr_follow; i++) {
		if (root->follow_fd[i] >= 0)
			close(root->follow_fd[i]);
		free(root->follow_path[i]);
		free(root->follow_given[i]);
	}
	free(root->follow_fd);
	free(root->follow_path);
	free(root->follow_given);
	if (root->fd >= 0)
		close(root->fd);
	if (root->blobs_fd >= 0)
		close(root->blobs_fd);
	free(root->path);
	free(root->real);
	free(root->only);
	free(root->save);
	*root = (struct ck_root){ .fd = -1, .blobs_fd = -1 };
}

void ck_root_close(struct ck_root *root)
{
	struct ck_root *next = root->next;

	close_one(root);
	while (next) {
		struct ck_root *gone = next;

		next = gone->next;
		close_one(gone);
		free(gone);
	}
}

bool ck_root_manifest(const struct ck_root *root, char *out, size_t room)
{
	int n = root->only ? snprintf(out, room, "%s%s%s", CK_MANIFEST_OURS,
				      root->only, CK_MANIFEST_ALONE) :
			     snprintf(out, room, "%s", CK_MANIFEST_NAME);

	return n >= 0 && (size_t)n < room;
}
