/* SPDX-License-Identifier: Apache-2.0 */
/*
 * root_file.c - opening one file or directory of a checkpoint by its name
 *
 * A link is never followed by the kernel: its text is read, it must lead to
 * an allowed place, and the rest is opened beneath that place by the same
 * rules.  So a link that changes meanwhile can at worst lead to another file
 * of an allowed place.
 */
#include "core/root/root_priv.h"

#include "core/base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define MAX_LINKS 8

/* A name being resolved: @rel beneath @fd, which is the directory @abs. */
struct spot {
	int fd;
	const char *abs;
	char rel[PATH_MAX];
	char target[PATH_MAX]; /* of the last link met, for messages */
	bool link_met;
};

static unsigned steps_up(const struct ck_root *root, const char *rel,
			 size_t link)
{
	unsigned up = root->blobs_up;

	for (size_t i = 0; i < link; i++)
		up += rel[i] == '/';
	return up;
}

/* The blob's name if @s->target leads exactly into blobs/; else NULL. */
static const char *blob_of(const struct ck_root *root, const struct spot *s,
			   size_t link)
{
	const char *at = s->target;

	if (root->blobs_fd < 0 || s->fd != root->fd || s->rel[link])
		return NULL;
	for (unsigned up = steps_up(root, s->rel, link); up; up--, at += 3)
		if (strncmp(at, "../", 3))
			return NULL;
	if (strncmp(at, "blobs/", 6))
		return NULL;
	at += 6;
	return ck_path_plain(at) && !strchr(at, '/') ? at : NULL;
}

/* The absolute path that @s->target and what follows the link mean. */
static bool link_path(const struct spot *s, size_t link, char out[PATH_MAX])
{
	char holder[PATH_MAX], at[PATH_MAX];
	size_t cut = link;

	while (cut && s->rel[cut - 1] != '/')
		cut--;
	memcpy(holder, s->rel, cut);
	holder[cut] = '\0';
	return ck_path_join(at, s->abs, holder) &&
	       ck_path_join(out, at, s->target) &&
	       (!s->rel[link] || (memcpy(at, out, sizeof(at)),
				  ck_path_join(out, at, s->rel + link + 1)));
}

/* Moves @s to where its link leads, if a -o follow= directory allows it. */
static bool follow(const struct ck_root *root, struct spot *s, size_t link)
{
	char full[PATH_MAX];

	if (!link_path(s, link, full))
		return false;
	for (unsigned i = 0; i < root->nr_follow; i++) {
		const char *rest = ck_path_inside(full, root->follow_path[i]);

		if (!rest)
			rest = ck_path_inside(full, root->follow_given[i]);
		if (!rest)
			continue;
		s->fd = root->follow_fd[i];
		s->abs = root->follow_path[i];
		memcpy(s->rel, rest, strlen(rest) + 1);
		return true;
	}
	return false;
}

/* Moves @s to a place and name that are no link: its O_PATH, or -errno. */
static int resolve(const struct ck_root *root, struct spot *s)
{
	for (unsigned n = 0; n < MAX_LINKS; n++) {
		int fd = ck_beneath_open(s->fd, s->rel, O_PATH);
		const char *blob;
		size_t link;

		if (fd != -ELOOP)
			return fd;
		link = ck_beneath_link(s->fd, s->rel, s->target);
		if (!link)
			return -ELOOP;
		s->link_met = true;
		blob = blob_of(root, s, link);
		if (blob) {
			s->fd = root->blobs_fd;
			s->abs = NULL;
			memmove(s->rel, blob, strlen(blob) + 1);
			return ck_beneath_open(s->fd, s->rel, O_PATH);
		}
		if (!s->abs || !follow(root, s, link))
			return -ELOOP;
	}
	return -ELOOP;
}

/* The path of a file that was given by itself has its name already. */
#define AT(root, name) (root)->only ? "" : "/", (root)->only ? "" : (name)

static int explain(const struct ck_root *root, const char *name,
		   const struct spot *s, int code, struct ck_err *err)
{
	if (code == ELOOP && s->link_met)
		return ck_fail(err, ELOOP,
			       "%s%s%s: a link to %s, which is not followed; "
			       "-o follow=DIR allows links into DIR",
			       root->path, AT(root, name), s->target);
	if (code == EXDEV)
		return ck_fail(err, EXDEV,
			       "%s%s%s: lies outside of the checkpoint, or on "
			       "a filesystem mounted inside of it",
			       root->path, AT(root, name));
	if (s->link_met)
		return ck_fail(err, code, "%s%s%s: a link to %s: %s",
			       root->path, AT(root, name), s->target,
			       strerror(code));
	return ck_fail(err, code, "%s%s%s: %s", root->path, AT(root, name),
		       strerror(code));
}

static const char *kind_name(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "a file";
	case S_IFDIR:
		return "a directory";
	case S_IFIFO:
		return "a FIFO";
	case S_IFSOCK:
		return "a socket";
	default:
		return "a device";
	}
}

/* Checked by O_PATH first: opening a device for reading can act on it. */
static int open_kind(const struct ck_root *root, const char *name, mode_t kind,
		     int access, struct stat *st, struct ck_err *err)
{
	struct spot s = { .fd = root->fd, .abs = root->real };
	ck_auto_fd int probe = -1;
	int fd, flags = access | O_NONBLOCK | O_NOCTTY;

	if (!ck_path_plain(name))
		return ck_fail(err, *name ? EXDEV : EINVAL,
			       "%s: \"%s\" is no name inside of it", root->path,
			       name);
	if (strlen(name) >= sizeof(s.rel))
		return ck_fail(err, ENAMETOOLONG, "%s: a name of %zu bytes",
			       root->path, strlen(name));
	memcpy(s.rel, name, strlen(name) + 1);
	probe = resolve(root, &s);
	if (probe < 0)
		return explain(root, name, &s, -probe, err);
	if (fstat(probe, st))
		return explain(root, name, &s, errno, err);
	if (access == O_RDWR && s.fd == root->blobs_fd)
		return ck_fail(err, EROFS,
			       "%s%s%s: a link into a hub cache's blobs, which "
			       "are named by their bytes and not written",
			       root->path, AT(root, name));
	if (access == O_PATH && (st->st_mode & S_IFMT) == kind)
		return ck_steal_fd(probe);
	fd = (st->st_mode & S_IFMT) == kind ?
		     ck_beneath_open(s.fd, s.rel, flags) :
		     -EINVAL;
	if (fd >= 0 && (fstat(fd, st) || (st->st_mode & S_IFMT) != kind)) {
		close(fd);
		fd = -EINVAL;
	}
	if (fd == -EINVAL)
		return ck_fail(err, EINVAL, "%s%s%s: expected %s, found %s",
			       root->path, AT(root, name), kind_name(kind),
			       kind_name(st->st_mode));
	if (fd < 0)
		return explain(root, name, &s, -fd, err);
	return fd;
}

static int open_file_in(const struct ck_root *root, const char *name,
			int access, int *fd, struct stat *st,
			struct ck_err *err)
{
	int got;

	if (root->only && strcmp(root->only, name))
		return ck_fail(err, ENOENT, "%s: holds no file \"%s\"",
			       root->path, name);
	got = open_kind(root, name, S_IFREG, access, st, err);
	if (got < 0)
		return got;
	/* io_uring would take it as a wish for EAGAIN. */
	if (access != O_PATH)
		fcntl(got, F_SETFL, fcntl(got, F_GETFL) & ~O_NONBLOCK);
	*fd = got;
	return 0;
}

static int check_same_file(const struct ck_root_same_file *has,
			   const struct ck_root *other, const char *name,
			   struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	struct stat st;

	if (open_file_in(other, name, O_RDONLY, &fd, &st, NULL))
		return 0;
	if (st.st_size == has->st->st_size)
		return ck_root_compare(
			name, has,
			&(struct ck_root_same_file){ other, fd, &st }, err);
	return ck_fail(
		err, EINVAL,
		"%s/%s has %lld bytes, %s/%s has %lld: joined sources must agree",
		has->root->path, name, (long long)has->st->st_size, other->path,
		name, (long long)st.st_size);
}

/* In the first root of the chain that has it; that one is *has. */
static int open_first(const struct ck_root **has, const char *name, int access,
		      int *fd, struct stat *st, struct ck_err *err)
{
	int ret = open_file_in(*has, name, access, fd, st, err);

	while (ret == -ENOENT && (*has)->next) {
		*has = (*has)->next;
		ret = open_file_in(*has, name, access, fd, st, err);
	}
	return ret;
}

int ck_root_open_write(const struct ck_root *root, const char *name, int *fd,
		       struct stat *st, struct ck_err *err)
{
	const struct ck_root *has = root;
	int ret = open_first(&has, name, O_RDWR, fd, st, err);

	if (!ret && st->st_nlink > 1) {
		close(*fd);
		return ck_fail(err, EROFS,
			       "%s/%s: has %u names (hard links); what has the "
			       "others would change too",
			       has->path, name, (unsigned)st->st_nlink);
	}
	for (const struct ck_root *r = has->next; !ret && r; r = r->next) {
		ck_auto_fd int alias = -1;
		struct stat other;

		if (open_file_in(r, name, O_RDONLY, &alias, &other, NULL))
			continue;
		close(*fd);
		return ck_fail(err, EROFS,
			       "%s/%s: also in %s: one of the two would keep "
			       "the old bytes",
			       has->path, name, r->path);
	}
	return ret;
}

int ck_root_open_file(const struct ck_root *root, const char *name, int *fd,
		      struct stat *st, struct ck_err *err)
{
	const struct ck_root *has = root;
	int ret = open_first(&has, name, O_RDONLY, fd, st, err);

	if (!ret && has->own) {
		*fd = has->own(*fd);
		if (fstat(*fd, st)) {
			ret = ck_fail(err, errno, "%s%s%s: %s", has->path,
				      AT(has, name), strerror(errno));
			close(*fd);
		}
	}
	for (const struct ck_root *r = has->next; !ret && r; r = r->next) {
		ret = check_same_file(
			&(struct ck_root_same_file){ has, *fd, st }, r, name,
			err);
		if (ret)
			close(*fd);
	}
	return ret;
}

int ck_root_stat_file(const struct ck_root *root, const char *name,
		      struct stat *st, struct ck_err *err)
{
	ck_auto_fd int fd = -1;

	return root->own || root->next ?
		       ck_root_open_file(root, name, &fd, st, err) :
		       open_file_in(root, name, O_PATH, &fd, st, err);
}

int ck_root_find_dir(const struct ck_root *root, const char *name, int *fd,
		     struct ck_err *err)
{
	int ret = ck_root_open_dir(root, name, fd, err);

	while (ret == -ENOENT && root->next) {
		root = root->next;
		ret = ck_root_open_dir(root, name, fd, err);
	}
	return ret;
}

int ck_root_open_dir(const struct ck_root *root, const char *name, int *fd,
		     struct ck_err *err)
{
	struct stat st;
	int got;

	if (*name && root->only)
		return ck_fail(err, ENOENT, "%s: holds no directory \"%s\"",
			       root->path, name);
	if (*name) {
		got = open_kind(root, name, S_IFDIR, O_RDONLY, &st, err);
	} else {
		got = openat(root->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (got < 0)
			got = ck_fail(err, errno, "%s: %s", root->path,
				      strerror(errno));
	}
	if (got < 0)
		return got;
	*fd = got;
	return 0;
}

bool ck_root_is_at(const struct ck_root *root, int fd)
{
	struct stat own, there;

	return !fstat(root->fd, &own) && !fstat(fd, &there) &&
	       own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

int ck_root_list(const struct ck_root *root, const char *name, DIR **out,
		 struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	int ret = ck_root_open_dir(root, name, &fd, err);

	*out = NULL;
	if (ret)
		return ret;
	*out = fdopendir(fd);
	if (!*out)
		return ck_fail(err, errno, "%s%s%s: %s", root->path,
			       *name ? "/" : "", name, strerror(errno));
	fd = -1; /* the list's now */
	return 0;
}

bool ck_root_is_second_name(const struct ck_root *root, int at,
			    const char *base, const char *name)
{
	char to[PATH_MAX], holder[PATH_MAX], folder[PATH_MAX], full[PATH_MAX];
	const char *slash = strrchr(name, '/'), *rest;
	ssize_t n = readlinkat(at, base, to, sizeof(to) - 1);

	if (n <= 0 || strlen(name) >= sizeof(holder))
		return false;
	to[n] = '\0';
	n = slash ? slash - name : 0;
	memcpy(holder, name, (size_t)n);
	holder[n] = '\0';
	if (!ck_path_join(folder, root->real, holder) ||
	    !ck_path_join(full, folder, to))
		return false;
	rest = ck_path_inside(full, folder);
	return rest && !strchr(rest, '/');
}

bool ck_root_stat_link(const struct ck_root *root, int at, const char *base,
		       const char *name, struct stat *st)
{
	ck_auto_fd int fd = -1;

	return !ck_root_is_second_name(root, at, base, name) &&
	       (!ck_root_open_dir(root, name, &fd, NULL) ||
		!open_file_in(root, name, O_RDONLY, &fd, st, NULL)) &&
	       !fstat(fd, st);
}
