/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft.c - making, finding and locking a draft
 *
 * Directory entries and three bytes of a lock file.  Whoever finds a draft that
 * lacks a part of itself adds it: its maker may have died, or not be done.
 */
#include "core/draft/draft.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/draft/dir_tree.h"
#include "core/root/openat_beneath.h"
#include "core/root/fault_point.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define LOCK "lock"
enum { BYTE_OPEN = 0, BYTE_WRITE = 1, BYTE_JOURNAL = 2 };

bool ck_draft_name_ok(const char *name)
{
	size_t len = strlen(name);

	return len && len <= NAME_MAX - strlen(CK_DRAFT_PREFIX) &&
	       *name != '.' && !strchr(name, '/') && strcmp(name, "latest");
}

static void dir_name(char out[NAME_MAX + 1], const char *name)
{
	snprintf(out, NAME_MAX + 1, CK_DRAFT_PREFIX "%.246s", name);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* As ck_fds_lock(); 0 too where there are no locks. */
static int lock_byte(struct ck_draft *s, int byte, short type)
{
	int ret = s->locks ? ck_fds_lock(s->lock_fd, byte, type) : 0;

	s->locks &= ret != -EOPNOTSUPP;
	return s->locks ? ret : 0;
}

/* Of threads, and of processes; for as long as a record takes. */
void ck_draft_journal_lock(struct ck_draft *s, bool take)
{
	struct flock fl = { .l_type = take ? F_WRLCK : F_UNLCK,
			    .l_start = BYTE_JOURNAL,
			    .l_len = 1 };

	if (take)
		pthread_mutex_lock(&s->journal_lock);
	if (s->locks)
		while (fcntl(s->lock_fd, F_OFD_SETLKW, &fl) && errno == EINTR)
			;
	if (!take)
		pthread_mutex_unlock(&s->journal_lock);
}

/* Still what the name means, and not published. */
static bool is_linked(const struct ck_draft *s)
{
	char dir[NAME_MAX + 1];
	struct stat st, files;

	dir_name(dir, s->name);
	if (fstatat(s->src_fd, dir, &st, AT_SYMLINK_NOFOLLOW) ||
	    !same_file(&st, &s->st))
		return false;
	return s->over ||
	       (!fstatat(s->fd, CK_DRAFT_FILES, &files, AT_SYMLINK_NOFOLLOW) &&
		same_file(&files, &s->files_st));
}

bool ck_draft_is_current(struct ck_draft *s)
{
	ck_auto_lock(&s->lock);
	return is_linked(s);
}

const char *ck_draft_name(struct ck_draft *s, char out[NAME_MAX + 1])
{
	ck_auto_lock(&s->lock);
	return memcpy(out, s->name, sizeof(s->name));
}

int ck_draft_path(struct ck_draft *s, char out[PATH_MAX])
{
	size_t len;

	ck_auto_lock(&s->lock);
	len = strlen(s->path) + 1;
	if (len > PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(out, s->path, len);
	return 0;
}

static int make_files(struct ck_draft *s)
{
	struct ck_draft_said said;
	int ret = lock_byte(s, BYTE_WRITE, F_RDLCK);

	if (ret)
		return -ENOENT;
	if (!ck_draft_read(s, &said, NULL) && said.begun)
		ret = -ENOENT;
	else if (mkdirat(s->fd, CK_DRAFT_FILES, 0777) && errno != EEXIST)
		ret = -errno;
	lock_byte(s, BYTE_WRITE, F_UNLCK);
	return ret;
}

static int open_lock(struct ck_draft *s)
{
	const int how = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	struct stat st;

	s->lock_fd = openat(s->fd, LOCK, O_RDWR | O_CREAT | how, 0666);
	if (s->lock_fd < 0 && (errno == EACCES || errno == EROFS))
		s->lock_fd = openat(s->fd, LOCK, O_RDONLY | how);
	if (s->lock_fd < 0 || fstat(s->lock_fd, &st))
		return -errno;
	return S_ISREG(st.st_mode) ? 0 : -EINVAL;
}

/* Whether what was to be published was: files/ is gone, or an old one. */
static bool is_over(const struct ck_draft *s)
{
	struct ck_draft_said said;

	return !ck_draft_read(s, &said, NULL) && said.begun &&
	       (s->files_fd < 0 || s->files_st.st_ino != said.commit.ino);
}

static int open_files(struct ck_draft *s)
{
	int ret = 0;

	s->files_fd = ck_beneath_dir(s->fd, CK_DRAFT_FILES);
	if (s->files_fd == -ENOENT && !is_over(s)) {
		ret = make_files(s);
		if (ret)
			return ret;
		s->files_fd = ck_beneath_dir(s->fd, CK_DRAFT_FILES);
	}
	if (s->files_fd >= 0 && fstat(s->files_fd, &s->files_st))
		return -errno;
	s->over = is_over(s);
	if (!s->over && s->files_fd < 0)
		return -ENOENT;
	return is_linked(s) ? 0 : -ENOENT;
}

static int open_parts(struct ck_draft *s)
{
	char dir[NAME_MAX + 1];
	int ret;

	dir_name(dir, s->name);
	s->fd = ck_beneath_dir(s->src_fd, dir);
	if (s->fd < 0)
		return s->fd;
	if (fstat(s->fd, &s->st))
		return -errno;
	ret = open_lock(s);
	if (!ret)
		ret = lock_byte(s, BYTE_OPEN, F_RDLCK);
	if (ret)
		return ret == -EBUSY ? -ENOENT : ret; /* it is being removed */
	return open_files(s);
}

static int new_draft(struct ck_draft **out, const struct ck_root *root,
		     const char *name, struct ck_err *err)
{
	struct ck_draft *s = calloc(1, sizeof(*s));

	if (!s)
		return ck_no_memory(err);
	s->fd = s->files_fd = s->lock_fd = -1;
	s->locks = true;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->journal_lock, NULL);
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->src_fd = openat(root->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->src_fd < 0) {
		int code = errno;

		ck_draft_close(s);
		return ck_fail(err, code, "%s: %s", root->path, strerror(code));
	}
	if (asprintf(&s->path, "%s/" CK_DRAFT_PREFIX "%s/" CK_DRAFT_FILES,
		     root->real, name) < 0) {
		s->path = NULL;
		ck_draft_close(s);
		return ck_no_memory(err);
	}
	*out = s;
	return 0;
}

static int open_draft(struct ck_draft **out, const struct ck_root *root,
		      const char *name, bool over, struct ck_err *err)
{
	struct ck_draft *s = NULL;
	int ret;

	if (!ck_draft_name_ok(name) || root->only || root->next)
		return ck_fail(err, ENOENT, "%s: is no draft", name);
	ret = new_draft(&s, root, name, err);
	if (ret)
		return ret;
	ret = open_parts(s);
	if (!ret && s->over != over)
		ret = -ENOENT;
	if (ret == -ENOENT)
		ret = ck_fail(err, ENOENT, "%s: is no draft", name);
	else if (ret)
		ret = ck_fail(err, -ret, "%s: %s", s->path, strerror(-ret));
	if (ret)
		ck_draft_close(s);
	else
		*out = s;
	return ret;
}

int ck_draft_open(struct ck_draft **out, const struct ck_root *root,
		  const char *name, struct ck_err *err)
{
	return open_draft(out, root, name, false, err);
}

int ck_draft_open_published(struct ck_draft **out, const struct ck_root *root,
			    const char *name, struct ck_err *err)
{
	return open_draft(out, root, name, true, err);
}

int ck_draft_make(struct ck_draft **out, const struct ck_root *root,
		  const char *name, struct ck_err *err)
{
	char dir[NAME_MAX + 1];
	int ret;

	if (!ck_draft_name_ok(name))
		return ck_fail(err, EINVAL,
			       "%s: expected the name of a checkpoint, no "
			       "\"latest\", and without a dot before it",
			       name);
	if (root->only || root->next)
		return ck_fail(err, EROFS,
			       "%s: a new checkpoint needs one directory, not "
			       "several that are joined",
			       name);
	if (ck_fds_has(root->fd, name))
		return ck_fail(err, EEXIST, "%s/%s: exists", root->path, name);
	dir_name(dir, name);
	ret = mkdirat(root->fd, dir, 0777) ? -errno : 0;
	if (ret == -EEXIST && !ck_commit_finish(root, name, NULL))
		ret = mkdirat(root->fd, dir, 0777) ? -errno : 0;
	if (ret)
		return ck_fail(err, -ret, "%s/%s: %s", root->path, dir,
			       strerror(-ret));
	ret = ck_draft_open(out, root, name, err);
	if (!ret)
		ck_draft_journal_begin(*out);
	return ret;
}

void ck_draft_close(struct ck_draft *s)
{
	const int fds[] = { s->src_fd, s->fd, s->files_fd, s->lock_fd };

	for (size_t i = 0; i < CK_ARRAY_LEN(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->journal_lock);
	free(s->path);
	free(s);
}

/* Under the mutex. */
static int first_writer(struct ck_draft *s)
{
	int ret = lock_byte(s, BYTE_WRITE, F_RDLCK);

	if (ret)
		return ret;
	if (is_linked(s))
		return 0;
	lock_byte(s, BYTE_WRITE, F_UNLCK);
	return -ESTALE;
}

static int refuse(struct ck_draft *s, int ret, struct ck_err *err)
{
	if (ret == -EBUSY)
		return ck_fail(err, EBUSY, "%s: it is being published",
			       CK_DRAFT_NAME(s));
	return ck_fail(err, ESTALE, "%s: it was published, or thrown away",
		       CK_DRAFT_NAME(s));
}

int ck_draft_begin(struct ck_draft *s, struct ck_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	if (s->seized)
		ret = -EBUSY;
	else if (!s->writers)
		ret = first_writer(s);
	s->writers += !ret;
	pthread_mutex_unlock(&s->lock);
	return ret ? refuse(s, ret, err) : 0;
}

void ck_draft_end(struct ck_draft *s)
{
	ck_auto_lock(&s->lock);
	if (!--s->writers)
		lock_byte(s, BYTE_WRITE, F_UNLCK);
}

bool ck_draft_busy(struct ck_draft *s)
{
	ck_auto_lock(&s->lock);
	return s->writers;
}

int ck_draft_lock(struct ck_draft *s, struct ck_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	if (s->seized || s->writers || lock_byte(s, BYTE_WRITE, F_WRLCK))
		ret = -EBUSY;
	else if (!is_linked(s))
		ret = -ESTALE;
	if (ret == -ESTALE)
		lock_byte(s, BYTE_WRITE, F_UNLCK);
	s->seized |= !ret;
	pthread_mutex_unlock(&s->lock);
	if (ret == -EBUSY)
		return ck_fail(err, EBUSY,
			       "%s: files of it are open for writing, or it is "
			       "being published",
			       CK_DRAFT_NAME(s));
	return ret ? refuse(s, ret, err) : 0;
}

void ck_draft_unlock(struct ck_draft *s)
{
	ck_auto_lock(&s->lock);
	s->seized = false;
	lock_byte(s, BYTE_WRITE, F_UNLCK);
}

void ck_draft_used(const struct ck_draft *s, struct ck_draft_use *use)
{
	use->open = s->locks && ck_fds_is_locked(s->lock_fd, BYTE_OPEN);
	use->writing = s->locks && ck_fds_is_locked(s->lock_fd, BYTE_WRITE);
}

int ck_draft_only_ours(struct ck_draft *s, struct ck_err *err)
{
	int ret;

	pthread_mutex_lock(&s->lock);
	ret = lock_byte(s, BYTE_OPEN, F_WRLCK);
	pthread_mutex_unlock(&s->lock);
	return ret ? ck_fail(err, EBUSY, "%s: a mount has it open",
			     CK_DRAFT_NAME(s)) :
		     0;
}

int ck_draft_rename(struct ck_draft *s, const char *name, struct ck_err *err)
{
	char from[NAME_MAX + 1], to[NAME_MAX + 1];
	ck_auto_free char *path = NULL;
	char *cut;

	if (!ck_draft_name_ok(name))
		return ck_fail(err, EINVAL, "%s: not the name of a checkpoint",
			       name);
	ck_auto_lock(&s->lock);
	if (ck_fds_has(s->src_fd, name))
		return ck_fail(err, EEXIST, "%s: exists", name);
	dir_name(from, s->name);
	dir_name(to, name);
	cut = strstr(s->path, CK_DRAFT_PREFIX);
	if (!cut || asprintf(&path, "%.*s%s/" CK_DRAFT_FILES,
			     (int)(cut - s->path), s->path, to) < 0)
		return ck_no_memory(err);
	if (ck_fds_has(s->src_fd, to))
		return ck_fail(err, EEXIST, "%s: is a draft already", name);
	if (renameat(s->src_fd, from, s->src_fd, to))
		return ck_fail(err, errno, "%s: %s", to, strerror(errno));
	snprintf(s->name, sizeof(s->name), "%s", name);
	free(s->path);
	s->path = ck_steal(path);
	return 0;
}

/*
 * First out of sight, in one step: what is half removed must not be taken for
 * a draft that is half made.
 */
int ck_draft_remove(struct ck_draft *s, struct ck_err *err)
{
	char dir[NAME_MAX + 1], gone[64];
	int ret = ck_fault_point("remove", err);

	dir_name(dir, s->name);
	snprintf(gone, sizeof(gone), CK_DRAFT_GONE "%llu",
		 (unsigned long long)s->st.st_ino);
	if (!ret && renameat(s->src_fd, dir, s->src_fd, gone))
		ret = ck_fail(err, errno, "%s: %s", dir, strerror(errno));
	return ret ? ret : ck_dir_tree_remove(s->src_fd, gone, err);
}
