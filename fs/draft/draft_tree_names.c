/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_tree_names.c - names of a draft that are looked up, come and go
 *
 * Each is one system call on the directory that the kernel means, opened
 * beneath the draft; none follows a link.
 */
#include "fs/draft/draft_tree_priv.h"

#include "core/base/auto.h"
#include "core/base/fds.h"
#include "core/root/openat_beneath.h"
#include "core/draft/dir_tree.h"
#include "fs/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXCHANGE 2

static int stat_in(const struct fs_draft_tree_place *dir, const char *name,
		   struct stat *st)
{
	if (fstatat(dir->dir, name, st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	return fs_draft_tree_shows(st->st_mode) ? 0 : -ENOENT;
}

/* What the kernel is told of a file: its own number for it. */
static void own_number(struct stat *st, uint64_t ino)
{
	st->st_ino = ino;
	st->st_dev = 0;
}

static int take(struct fs_draft_tree *s, const struct fs_draft_tree_place *at,
		uint64_t dir, const char *name, struct fs_draft_tree_node *out)
{
	int ret = stat_in(at, name, &out->st);

	if (!ret)
		ret = fs_draft_tree_take(s, dir, name, out);
	if (!ret)
		own_number(&out->st, out->ino);
	return ret;
}

int fs_draft_tree_lookup(struct fs_draft_tree *s, uint64_t dir,
			 const char *name, struct fs_draft_tree_node *out)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	int ret = fs_draft_tree_dir(s, dir, &at);

	return ret ? ret : take(s, &at, dir, name, out);
}

/* By its name, if that means it still. */
static int stat_named(struct fs_draft_tree *s, uint64_t ino, struct stat *st)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	int ret = fs_draft_tree_place(s, ino, &at);

	if (ret)
		return ret;
	if (!*at.name)
		return fstat(s->draft->files_fd, st) ? -errno : 0;
	ret = stat_in(&at, at.name, st);
	if (ret == -ENOENT)
		return -ESTALE;
	return ret || (st->st_dev == at.dev && st->st_ino == at.id) ? ret :
								      -ESTALE;
}

int fs_draft_tree_stat(struct fs_draft_tree *s, uint64_t ino,
		       const struct fs_draft_tree_file *f, struct stat *st)
{
	int ret = f ? 0 : stat_named(s, ino, st);
	ck_auto_fd int fd = ret == -ESTALE ? fs_draft_tree_dup(s, ino) : -1;

	if (fd >= 0)
		ret = fstat(fd, st) ? -errno : 0;
	else if (f)
		ret = fstat(f->fd, st) ? -errno : 0;
	own_number(st, ino);
	return ret;
}

int fs_draft_tree_readlink(struct fs_draft_tree *s, uint64_t ino,
			   char out[PATH_MAX])
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	int ret = fs_draft_tree_place(s, ino, &at);
	ssize_t n;

	if (ret)
		return ret;
	n = readlinkat(at.dir, at.name, out, PATH_MAX - 1);
	if (n < 0)
		return -errno;
	out[n] = '\0';
	return 0;
}

/* ---- listing ---- */

static int fill(struct fs_shard_list *l, uint64_t dir, DIR *d)
{
	const struct dirent *e;
	struct stat st;

	fs_shards_list_add(l, ".", dir, S_IFDIR);
	fs_shards_list_add(l, "..", FS_INO_SHARDS, S_IFDIR);
	while ((errno = 0, e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
		    !fs_draft_tree_shows(st.st_mode))
			continue;
		/* no node's: a look-up says that; it must not be 0 */
		fs_shards_list_add(l, e->d_name,
				   FS_INO_SHARD | (st.st_ino & 0xffff),
				   st.st_mode & S_IFMT);
	}
	return errno ? -errno : l->failed ? -ENOMEM : 0;
}

int fs_draft_tree_list(struct fs_draft_tree *s, uint64_t dir,
		       struct fs_shard_list **out)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	struct fs_shard_list *l = calloc(1, sizeof(*l));
	ck_auto_dir DIR *d = NULL;
	int ret = l ? fs_draft_tree_dir(s, dir, &at) : -ENOMEM;

	if (!ret)
		ret = ck_beneath_list(at.dir, "", &d);
	if (!ret)
		ret = fill(l, dir, d);
	if (ret)
		fs_shards_list_free(l);
	else
		*out = l;
	return ret;
}

int fs_draft_tree_sync_dir(struct fs_draft_tree *s, uint64_t ino,
			   struct ck_err *err)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	int ret = fs_draft_tree_dir(s, ino, &at);
	ck_auto_fd int fd = ret ? -1 : ck_beneath_dir(at.dir, "");

	if (ret)
		return ret;
	if (fd < 0)
		return fd;
	if (!fsync(fd))
		return 0;
	ret = ck_fail(err, errno, "%s: fsync of a directory: %s",
		      CK_DRAFT_NAME(s->draft), strerror(errno));
	ck_draft_poison(s->draft, err->msg);
	return ret;
}

/* ---- changes ---- */

/*
 * A folder is opened by its name when it was made, which may be another's by then:
 * only one of these bits, which nobody asks for, is given to anybody.
 */
#define UNFINISHED (S_ISVTX | S_IRWXU)

/* In @dir, whose access list may have taken some of them. */
static bool is_unfinished(const struct stat *st, int dir,
			  const struct fs_draft_tree_who *who)
{
	const struct fs_draft_tree_who ours = { .umask = 0 };

	return (st->st_mode & 07777 & ~(mode_t)S_ISGID) ==
		       fs_draft_tree_mode_in(dir, UNFINISHED, &ours) &&
	       (st->st_uid == geteuid() || st->st_uid == who->uid);
}

static int give_dir(int fd, int dir, mode_t mode,
		    const struct fs_draft_tree_who *who)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	return is_unfinished(&st, dir, who) ?
		       fs_draft_tree_own(fd, dir, mode, who) :
		       0;
}

static int make_file(const struct fs_draft_tree_place *at, const char *name,
		     mode_t mode, int flags,
		     const struct fs_draft_tree_who *who, int *fd)
{
	const int how = (flags & O_ACCMODE) | O_CREAT | O_EXCL | O_NOFOLLOW |
			O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	int ret;

	mode = fs_draft_tree_mode_in(at->dir, mode, who);
	*fd = openat(at->dir, name, how, mode & 07777);
	if (*fd < 0)
		return -errno;
	ret = fs_draft_tree_own(*fd, at->dir, mode, who);
	if (ret) {
		close(*fd);
		unlinkat(at->dir, name, 0);
	}
	return ret;
}

static int create(struct fs_draft_tree *s, uint64_t dir, const char *name,
		  mode_t mode, int flags, const struct fs_draft_tree_who *who,
		  struct fs_draft_tree_node *out, struct fs_draft_tree_file *f)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	int ret = fs_draft_tree_dir(s, dir, &at);

	if (!ret)
		ret = make_file(&at, name, mode, flags, who, &f->fd);
	if (ret)
		return ret;
	/* of the file that is open, for another may have its name by now */
	ret = fstat(f->fd, &out->st) ? -errno : 0;
	if (!ret)
		ret = fs_draft_tree_take(s, dir, name, out);
	if (ret)
		close(f->fd);
	else
		own_number(&out->st, out->ino);
	return ret;
}

int fs_draft_tree_create(struct fs_draft_tree *s, uint64_t dir,
			 const char *name, mode_t mode, int flags,
			 const struct fs_draft_tree_who *who,
			 struct fs_draft_tree_node *out,
			 struct fs_draft_tree_file **f)
{
	struct fs_draft_tree_file *file;
	int ret = fs_draft_tree_begin(s);

	if (ret)
		return ret;
	file = calloc(1, sizeof(*file));
	ret = file ? create(s, dir, name, mode, flags, who, out, file) :
		     -ENOMEM;
	if (ret) {
		free(file);
		fs_draft_tree_end(s);
		return ret;
	}
	file->writes = true; /* ends what began here when it is closed */
	file->ino = out->ino;
	fs_draft_tree_attach(s, file);
	*f = file;
	return 0;
}

int fs_draft_tree_mkdir(struct fs_draft_tree *s, uint64_t dir, const char *name,
			mode_t mode, const struct fs_draft_tree_who *who,
			struct fs_draft_tree_node *out)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	fs_auto_begun struct fs_draft_tree *begun = NULL;
	ck_auto_fd int fd = -1;
	int ret = fs_draft_tree_begin_in(s, dir, &begun, &at);

	if (ret)
		return ret;
	mode = fs_draft_tree_mode_in(at.dir, mode, who);
	if (mkdirat(at.dir, name, UNFINISHED))
		return -errno;
	fd = ck_beneath_dir(at.dir, name);
	ret = fd < 0 ? fd : give_dir(fd, at.dir, mode, who);
	return ret ? ret : take(s, &at, dir, name, out);
}

/* Whether @who is to change names himself, and not the worker. */
static bool himself(const struct fs_draft_tree_who *who)
{
	return who && who->req;
}

/*
 * Has him do it in @dir; @to: where a rename leads, else 0.  A link he makes, for
 * by its name the worker may change no owner (set_link()).
 */
static int have_changed(struct fs_draft_tree *s,
			const struct fs_draft_tree_who *who, uint64_t dir,
			uint64_t to, enum fs_ask_kind what, const char *name,
			const char *other, int flags)
{
	struct fs_question q = { 0 };
	int ret = fs_draft_tree_ask_dir(s, dir, &q);

	if (!ret && to)
		ret = fs_draft_tree_ask_dir(s, to, &q);
	fs_question_change(&q, what, name, other, flags);
	return fs_access_ask(who->req, &q, ret);
}

int fs_draft_tree_symlink(struct fs_draft_tree *s, uint64_t dir,
			  const char *name, const char *to,
			  const struct fs_draft_tree_who *who,
			  struct fs_draft_tree_node *out)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	fs_auto_begun struct fs_draft_tree *begun = NULL;
	int ret = fs_draft_tree_begin_in(s, dir, &begun, &at);
	int depth = fs_draft_tree_depth(s, dir);

	if (ret)
		return ret;
	if (depth < 0 || !ck_dir_tree_link_ok((unsigned)depth, to))
		return -EPERM;
	if (himself(who))
		ret = have_changed(s, who, dir, 0, FS_ASK_LINK, name, to, 0);
	else
		ret = symlinkat(to, at.dir, name) ? -errno : 0;
	return ret ? ret : take(s, &at, dir, name, out);
}

int fs_draft_tree_unlink(struct fs_draft_tree *s, uint64_t dir,
			 const char *name, bool is_dir,
			 const struct fs_draft_tree_who *who)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	fs_auto_begun struct fs_draft_tree *begun = NULL;
	int ret = fs_draft_tree_begin_in(s, dir, &begun, &at);
	int flags = is_dir ? AT_REMOVEDIR : 0;

	if (ret)
		return ret;
	if (himself(who))
		ret = have_changed(s, who, dir, 0, FS_ASK_REMOVE, name, NULL,
				   flags);
	else if (unlinkat(at.dir, name, flags))
		ret = -errno;
	if (!ret || ret == -ENOENT)
		fs_draft_tree_drop(s, dir, name);
	return ret;
}

/* A link must lead nowhere else than it may from its new place. */
static int check_link(struct fs_draft_tree *s,
		      const struct fs_draft_tree_place *at, const char *name,
		      uint64_t new_dir)
{
	int depth = fs_draft_tree_depth(s, new_dir);
	char to[PATH_MAX];
	ssize_t n = readlinkat(at->dir, name, to, sizeof(to) - 1);

	if (n < 0)
		return 0; /* it is no link */
	to[n] = '\0';
	return depth >= 0 && ck_dir_tree_link_ok((unsigned)depth, to) ? 0 :
									-EPERM;
}

int fs_draft_tree_rename(struct fs_draft_tree *s, uint64_t dir,
			 const char *name, uint64_t new_dir,
			 const char *new_name, unsigned flags,
			 const struct fs_draft_tree_who *who)
{
	fs_auto_place struct fs_draft_tree_place from = { .dir = -1 };
	fs_auto_place struct fs_draft_tree_place to = { .dir = -1 };
	fs_auto_begun struct fs_draft_tree *begun = NULL;
	int ret = fs_draft_tree_begin_in(s, dir, &begun, &from);

	if (!ret)
		ret = fs_draft_tree_dir(s, new_dir, &to);
	if (!ret)
		ret = check_link(s, &from, name, new_dir);
	if (!ret && (flags & EXCHANGE))
		ret = check_link(s, &to, new_name, dir);
	if (!ret && himself(who))
		ret = have_changed(s, who, dir, new_dir, FS_ASK_RENAME, name,
				   new_name, (int)flags);
	else if (!ret)
		ret = ck_fds_rename(from.dir, name, to.dir, new_name, flags);
	if (!ret)
		fs_draft_tree_move(s, dir, name, new_dir, new_name,
				   flags & EXCHANGE);
	return ret;
}

/* Beside files/, so that it is nowhere to be seen, and goes with the draft. */
static void aside(char to[32], const struct stat *st)
{
	snprintf(to, 32, "replaced-%llu", (unsigned long long)st->st_ino);
}

bool fs_draft_tree_replace(struct fs_draft_tree *s, uint64_t dir,
			   const char *name, const char *new_name,
			   const struct fs_draft_tree_who *who,
			   struct stat *old)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	struct stat st;
	char as[32];

	if (fs_draft_tree_dir(s, dir, &at) ||
	    fstatat(at.dir, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    fstatat(at.dir, new_name, old, AT_SYMLINK_NOFOLLOW) ||
	    !S_ISREG(st.st_mode) || !S_ISREG(old->st_mode) ||
	    st.st_ino == old->st_ino ||
	    fs_draft_tree_rename(s, dir, name, dir, new_name, EXCHANGE, who))
		return false;
	aside(as, old);
	if (renameat(at.dir, name, s->draft->fd, as)) {
		fs_draft_tree_rename(s, dir, name, dir, new_name, EXCHANGE,
				     NULL);
		return false;
	}
	fs_draft_tree_drop(s, dir, name);
	return true;
}

void fs_draft_tree_replaced(struct fs_draft_tree *s, uint64_t dir,
			    const char *name, const char *new_name,
			    const struct stat *old, bool back)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	char as[32];

	aside(as, old);
	if (back && !fs_draft_tree_dir(s, dir, &at) &&
	    !renameat(s->draft->fd, as, at.dir, name))
		fs_draft_tree_rename(s, dir, name, dir, new_name, EXCHANGE,
				     NULL);
	else
		unlinkat(s->draft->fd, as, 0);
}
