/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft_tree_files.c - bytes and attributes of files of a draft
 *
 * Every write is one pwrite() on the file in SRC: what was acknowledged is in
 * its page cache at least, and a killed worker loses nothing of it.  After a
 * failed fsync the kernel forgets what it could not write, so that a second
 * one would lie: the draft is poisoned.
 */
#include "fs/draft/draft_tree_priv.h"

#include "core/base/auto.h"
#include "core/base/clock.h"
#include "core/base/whole.h"
#include "core/root/fault.h"
#include "fs/kernel/reply.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- attributes ---- */

/*
 * Opens what @at names, if it is that still: what is there by now may be a file
 * that was not asked for.
 */
static int open_place(const struct fs_draft_tree_place *at, int flags)
{
	ck_auto_fd int fd =
		openat(at->dir, *at->name ? at->name : ".",
		       flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && (errno == ENOENT || errno == ELOOP))
		return -ESTALE;
	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if (*at->name && (st.st_dev != at->dev || st.st_ino != at->id))
		return -ESTALE;
	return ck_steal_fd(fd);
}

/* A descriptor of @ino that can be changed through; @size: its size, too. */
static int open_any(struct fs_draft_tree *s, uint64_t ino, bool size)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	int ret = fs_draft_tree_place(s, ino, &at);

	if (ret == -ESTALE)
		return fs_draft_tree_dup(s, ino);
	if (ret)
		return ret;
	ret = open_place(&at, size ? O_WRONLY : O_RDONLY);
	return ret == -EACCES && !size ? open_place(&at, O_WRONLY) : ret;
}

static int set_owner(int fd, const struct stat *now, const struct stat *attr,
		     int to_set)
{
	uid_t uid = to_set & FUSE_SET_ATTR_UID ? attr->st_uid : now->st_uid;
	gid_t gid = to_set & FUSE_SET_ATTR_GID ? attr->st_gid : now->st_gid;

	if (uid == now->st_uid && gid == now->st_gid)
		return 0;
	return fchown(fd, uid, gid) ? -errno : 0;
}

static void times_of(const struct stat *attr, int to_set, struct timespec t[2])
{
	t[0] = t[1] = (struct timespec){ .tv_nsec = UTIME_OMIT };
	if (to_set & FUSE_SET_ATTR_ATIME)
		t[0] = attr->st_atim;
	if (to_set & FUSE_SET_ATTR_MTIME)
		t[1] = attr->st_mtim;
	if (to_set & FUSE_SET_ATTR_ATIME_NOW)
		t[0].tv_nsec = UTIME_NOW;
	if (to_set & FUSE_SET_ATTR_MTIME_NOW)
		t[1].tv_nsec = UTIME_NOW;
}

static int set_times(int fd, const struct stat *attr, int to_set)
{
	struct timespec t[2];

	times_of(attr, to_set, t);
	return futimens(fd, t) ? -errno : 0;
}

struct setting {
	struct fs_draft_tree *s;
	uint64_t ino;
	const struct stat *attr;
	const struct fs_draft_tree_who *who;
};

#define TIMES                                                                  \
	(FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | \
	 FUSE_SET_ATTR_MTIME_NOW)
#define OWNER (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)

static int set_fd(int fd, const struct setting *how, int to_set)
{
	struct stat now, attr = *how->attr;
	int ret = fstat(fd, &now) ? -errno : 0;

	if (!ret)
		ret = fs_draft_tree_may_set(how->s, how->ino, how->who, &now,
					    &attr, to_set);
	if (!ret && (to_set & OWNER))
		ret = set_owner(fd, &now, &attr, to_set);
	/* after the owner, a change of whom takes set-user-ID away */
	if (!ret && (to_set & FUSE_SET_ATTR_MODE))
		ret = fchmod(fd, attr.st_mode & 07777) ? -errno : 0;
	if (!ret && (to_set & FUSE_SET_ATTR_SIZE))
		ret = ftruncate(fd, attr.st_size) ? -errno : 0;
	if (!ret && (to_set & TIMES))
		ret = set_times(fd, &attr, to_set);
	return ret;
}

/*
 * A link has no descriptor, and by its name the worker may change no owner:
 * that call would reach any file of the machine.
 */
static int set_link(const struct setting *how, const struct stat *now,
		    int to_set)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	struct stat own, set = *how->attr;
	const struct stat *attr = &set;
	ck_auto_fd int fd = -1;
	struct timespec t[2];
	int ret;

	if ((to_set & FUSE_SET_ATTR_UID && attr->st_uid != now->st_uid) ||
	    (to_set & FUSE_SET_ATTR_GID && attr->st_gid != now->st_gid))
		return -EPERM;
	if (to_set & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_SIZE))
		return -EPERM;
	ret = to_set & TIMES ? fs_draft_tree_place(how->s, how->ino, &at) : 0;
	if (ret || !(to_set & TIMES))
		return ret;
	times_of(attr, to_set, t);
	fd = open_place(&at, O_PATH);
	if (fd < 0)
		return fd;
	ret = fstat(fd, &own) ?
		      -errno :
		      fs_draft_tree_may_set(how->s, how->ino, how->who, &own,
					    &set, to_set);
	if (ret)
		return ret;
	if (!utimensat(fd, "", t, AT_EMPTY_PATH))
		return 0;
	/* before Linux 5.8, where no others than its user have the mount */
	return errno != EINVAL || utimensat(at.dir, at.name, t,
					    AT_SYMLINK_NOFOLLOW) ?
		       -errno :
		       0;
}

int fs_draft_tree_set(struct fs_draft_tree *s, uint64_t ino,
		      const struct fs_draft_tree_file *f,
		      const struct stat *attr, int to_set,
		      const struct fs_draft_tree_who *who)
{
	const struct setting how = { s, ino, attr, who };
	const bool size = to_set & FUSE_SET_ATTR_SIZE;
	fs_auto_begun struct fs_draft_tree *begun = NULL;
	ck_auto_fd int own = -1;
	struct stat now;
	int ret = fs_draft_tree_begin(s);

	if (ret)
		return ret;
	begun = s;
	ret = fs_draft_tree_stat(s, ino, f, &now);
	if (ret)
		return ret;
	if (S_ISLNK(now.st_mode))
		return set_link(&how, &now, to_set);
	if (f && (f->writes || !size))
		return set_fd(f->fd, &how, to_set);
	own = open_any(s, ino, size);
	return own < 0 ? own : set_fd(own, &how, to_set);
}

/* ---- open files ---- */

static int fail(struct fs_draft_tree *s, const struct fs_draft_tree_file *f,
		const char *what, int ret, struct ck_err *err)
{
	char path[PATH_MAX];

	if (!fs_draft_tree_path(s, f->ino, path))
		strcpy(path, "a file that was removed");
	return ck_fail(err, -ret, "%s: %s: %s: %s", CK_DRAFT_NAME(s->draft),
		       path, what, strerror(-ret));
}

/* The same where bytes that were acknowledged are lost: nobody publishes it. */
static int lose(struct fs_draft_tree *s, const struct fs_draft_tree_file *f,
		const char *what, int ret, struct ck_err *err)
{
	fail(s, f, what, ret, err);
	ck_draft_poison(s->draft, err->msg);
	return ret;
}

static int open_named(struct fs_draft_tree *s, uint64_t ino, int flags)
{
	fs_auto_place struct fs_draft_tree_place at = { .dir = -1 };
	ck_auto_fd int fd = -1;
	struct stat st;
	int ret = fs_draft_tree_place(s, ino, &at);

	if (ret)
		return ret;
	fd = open_place(&at, flags);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st))
		return -errno;
	return S_ISREG(st.st_mode) ? ck_steal_fd(fd) : -ESTALE;
}

/*
 * The kernel says where an append goes, and reads what it changes a part of:
 * a file that can be written must be readable too, where that is allowed.
 */
static int open_fd(struct fs_draft_tree *s, uint64_t ino, int flags)
{
	const int kept = flags & (O_SYNC | O_DSYNC);
	int fd;

	if ((flags & O_ACCMODE) == O_RDONLY)
		return open_named(s, ino, O_RDONLY);
	fd = open_named(s, ino, O_RDWR | kept);
	return fd == -EACCES && (flags & O_ACCMODE) == O_WRONLY ?
		       open_named(s, ino, O_WRONLY | kept) :
		       fd;
}

int fs_draft_tree_open(struct fs_draft_tree *s, uint64_t ino, int flags,
		       struct fs_draft_tree_file **out)
{
	bool writes = (flags & O_ACCMODE) != O_RDONLY;
	struct fs_draft_tree_file *f = calloc(1, sizeof(*f));
	int ret = !f ? -ENOMEM : writes ? fs_draft_tree_begin(s) : 0;

	if (ret) {
		free(f);
		return ret;
	}
	f->ino = ino;
	f->writes = writes;
	f->fd = open_fd(s, ino, flags);
	if (f->fd < 0) {
		ret = f->fd;
		if (writes)
			fs_draft_tree_end(s);
		free(f);
		return ret;
	}
	fs_draft_tree_attach(s, f);
	ret = writes ? fs_draft_tree_may_write(s, f) : 0;
	if (ret)
		fs_draft_tree_release(s, f);
	else
		*out = f;
	return ret;
}

/* Of the other files that are open: how many are mapped, or passed by. */
struct others {
	unsigned mapped, passed;
	bool open; /* one of these was not closed */
};

static struct others others_of(struct fs_draft_tree *s,
			       const struct fs_draft_tree_file *f)
{
	struct fs_draft_tree_name *n = fs_draft_tree_node_of(s, f->ino);
	struct others o = { 0 };

	for (const struct fs_draft_tree_file *g = n ? n->open : NULL; g;
	     g = g->next)
		if (g != f && (g->maps || g->past)) {
			o.mapped += g->maps;
			o.passed += g->past;
			o.open |= !g->closed;
		}
	return o;
}

int fs_draft_tree_share(struct fs_draft_tree *s, struct fs_draft_tree_file *f,
			int flags, bool direct, struct ck_err *err)
{
	bool must = flags & O_DIRECT, maps, clash;
	struct timespec until = ck_deadline(CLOCK_REALTIME, FS_DRAFT_CLOSING);
	struct others o;

	if (!f->writes)
		return direct;
	maps = !must && (flags & O_ACCMODE) == O_RDWR;
	pthread_mutex_lock(&s->lock);
	do {
		o = others_of(s, f);
		clash = must ? o.mapped : maps && o.passed;
	} while (clash && !o.open &&
		 !pthread_cond_timedwait(&s->released, &s->lock, &until));
	f->maps = maps && !clash;
	f->past = must ? !clash : direct && !maps && !o.mapped;
	pthread_mutex_unlock(&s->lock);
	if (clash)
		return fail(s, f,
			    "it is open where it may be mapped, and would be "
			    "where its pages are passed by, or the other way "
			    "round",
			    -EBUSY, err);
	return f->past;
}

/*
 * Where writes go to another machine, as on NFS, a close is what says that they
 * did not arrive; once it has, no fsync says so any more.
 */
static int close_fd(struct fs_draft_tree *s, const struct fs_draft_tree_file *f,
		    int fd, struct ck_err *err)
{
	int ret = close(fd) && errno != EINTR ? -errno : 0;

	return !ret || !f->writes ? 0 : lose(s, f, "close", ret, err);
}

int fs_draft_tree_flush(struct fs_draft_tree *s, struct fs_draft_tree_file *f,
			struct ck_err *err)
{
	int fd = f->writes ? fcntl(f->fd, F_DUPFD_CLOEXEC, 0) : -1;

	pthread_mutex_lock(&s->lock);
	f->closed = true;
	pthread_mutex_unlock(&s->lock);
	return fd < 0 ? 0 : close_fd(s, f, fd, err);
}

void fs_draft_tree_release(struct fs_draft_tree *s,
			   struct fs_draft_tree_file *f)
{
	struct ck_err err = { 0 };

	fs_draft_tree_detach(s, f);
	/* of a map, whose pages came after the last flush */
	if (close_fd(s, f, f->fd, &err))
		fs_log("%s", err.msg);
	if (f->writes)
		fs_draft_tree_end(s);
	free(f);
}

/* ---- bytes ---- */

int fs_draft_tree_read(const struct fs_draft_tree_file *f, char *buf,
		       size_t len, uint64_t off, size_t *got,
		       struct ck_err *err)
{
	ssize_t n = ck_pread_most(f->fd, buf, len, off);

	if (n < 0)
		return ck_fail(err, (int)-n, "a file of a draft: %s",
			       strerror((int)-n));
	*got = (size_t)n;
	return 0;
}

static int write_all(const struct fs_draft_tree_file *f, const char *buf,
		     size_t len, uint64_t off)
{
	while (len) {
		ssize_t n = pwrite(f->fd, buf, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		n = ck_fault_of(CK_FAULT_WRITE, n < 0 ? -errno : (int)n);
		if (n <= 0)
			return n ? (int)n : -EIO;
		buf += n;
		off += (size_t)n;
		len -= (size_t)n;
	}
	return 0;
}

int fs_draft_tree_write(struct fs_draft_tree *s,
			const struct fs_draft_tree_file *f, const char *buf,
			size_t len, uint64_t off, bool cached,
			struct ck_err *err)
{
	int ret = f->writes ? write_all(f, buf, len, off) : -EBADF;

	atomic_fetch_add_explicit(&s->seq, 1, memory_order_relaxed);
	if (!ret || ret == -EFBIG)
		return ret;
	/* of a mapping: whoever stored the bytes is not told */
	return (cached ? lose : fail)(s, f, "write", ret, err);
}

/* The bits that a write takes away. */
static mode_t id_bits(mode_t mode)
{
	return (mode & S_ISUID) | (mode & S_IXGRP ? mode & S_ISGID : 0);
}

/*
 * The kernel sees to it where it keeps pages, not for direct writes.  The mode is
 * looked at each time, for the owner of a file that is open may change it; but not
 * so that NFS would first write out what it holds.
 */
void fs_draft_tree_written_by(const struct fs_draft_tree_file *f, uid_t uid)
{
	struct statx now;

	if (uid &&
	    !statx(f->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MODE,
		   &now) &&
	    id_bits(now.stx_mode))
		fchmod(f->fd, now.stx_mode & 07777 & ~id_bits(now.stx_mode));
}

int fs_draft_tree_sync(struct fs_draft_tree *s,
		       const struct fs_draft_tree_file *f, bool data,
		       struct ck_err *err)
{
	int ret;

	ret = (data ? fdatasync(f->fd) : fsync(f->fd)) ? -errno : 0;
	ret = ck_fault_of(CK_FAULT_SYNC, ret);
	return ret ? lose(s, f, "fsync", ret, err) : 0;
}

/* What the kernel could not write it has forgotten, or will. */
int fs_draft_tree_check_kept(struct fs_draft_tree *s,
			     const struct fs_draft_tree_file *f,
			     struct ck_err *err)
{
	int ret = sync_file_range(f->fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE) ?
			  -errno :
			  0;

	ret = ck_fault_of(CK_FAULT_SYNC, ret);
	if (ret != -EIO && ret != -ENOSPC && ret != -EDQUOT)
		return 0;
	return lose(s, f, "write", ret, err);
}

int fs_draft_tree_fallocate(struct fs_draft_tree *s,
			    const struct fs_draft_tree_file *f, int mode,
			    uint64_t off, uint64_t len)
{
	if (!f->writes)
		return -EBADF;
	atomic_fetch_add_explicit(&s->seq, 1, memory_order_relaxed);
	return fallocate(f->fd, mode, (off_t)off, (off_t)len) ? -errno : 0;
}

off_t fs_draft_tree_seek(const struct fs_draft_tree_file *f, off_t off,
			 int whence)
{
	off_t at = lseek(f->fd, off, whence);

	return at < 0 ? -errno : at;
}
