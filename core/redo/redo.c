/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redo.c - making such files, and finding those that were left
 *
 * Who holds the lock is at it.  A process that dies gives its lock up, so that
 * a whole file without one is to be done again.
 */
#include "core/redo/redo.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/base/vec.h"
#include "core/base/whole.h"
#include "core/root/openat_beneath.h"
#include "core/root/fault_point.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define MOST 1000 /* of them in one directory */

struct ck_redo {
	int dir, fd; /* dir: O_PATH, borrowed */
	bool whole, gone;
	char name[NAME_MAX + 1];
	struct ck_str tail;
	uint64_t nr;
};

static int fail(const char *name, int code, struct ck_err *err)
{
	return ck_fail(err, code, "%s: %s", name, strerror(code));
}

/* ---- making one ---- */

int ck_redo_new(struct ck_redo **out, const struct ck_root *root,
		struct ck_err *err)
{
	struct ck_redo *r = calloc(1, sizeof(*r));
	struct timespec now;
	int code;

	if (!r)
		return ck_no_memory(err);
	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(r->name, sizeof(r->name), CK_REDO_NEW "%020lld%09ld-%ld",
		 (long long)now.tv_sec, now.tv_nsec, (long)getpid());
	r->dir = root->fd;
	r->fd = root->only ?
			-1 :
			openat(r->dir, r->name,
			       O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (r->fd >= 0) {
		flock(r->fd, LOCK_EX | LOCK_NB); /* its name is ours alone */
		*out = r;
		return 0;
	}
	code = root->only || errno == EACCES || errno == EPERM ||
			       errno == EROFS ?
		       EOPNOTSUPP :
		       errno;
	fail(r->name, code, err);
	free(r);
	return -code;
}

int ck_redo_fd(const struct ck_redo *r)
{
	return r->fd;
}

int ck_redo_add(struct ck_redo *r, const struct ck_redo_part *part,
		struct ck_err *err)
{
	ck_redo_put_part(&r->tail, part);
	r->nr++;
	return r->tail.failed ? ck_no_memory(err) : 0;
}

static int write_end(struct ck_redo *r, uint64_t len, bool also,
		     struct ck_err *err)
{
	int ret = ck_fault_point("end of the redo file", err);

	if (ret)
		return ret;
	ck_redo_put_end(&r->tail, len, r->nr, also);
	if (r->tail.failed)
		return ck_no_memory(err);
	ret = ck_pwrite_whole(r->fd, r->tail.v, r->tail.len, len);
	return ret ? fail(r->name, -ret, err) : 0;
}

int ck_redo_commit(struct ck_redo *r, uint64_t len, bool also,
		   struct ck_err *err)
{
	char as[NAME_MAX + 1];
	int ret = write_end(r, len, also, err);

	if (!ret)
		ret = ck_fault_point("fsync of the redo file", err);
	if (!ret && fsync(r->fd))
		ret = fail(r->name, errno, err);
	if (!ret)
		ret = ck_fault_point("rename of the redo file", err);
	if (ret)
		return ret;
	snprintf(as, sizeof(as), CK_REDO_WHOLE "%s",
		 r->name + sizeof(CK_REDO_NEW) - 1);
	if (renameat(r->dir, r->name, r->dir, as))
		return fail(r->name, errno, err);
	snprintf(r->name, sizeof(r->name), "%s", as);
	ret = ck_fault_point("fsync of the directory", err);
	if (!ret && ck_fds_sync_dir(r->dir))
		ret = fail(r->name, errno, err);
	r->whole = !ret; /* else it goes again, and nothing was changed */
	return ret;
}

static int remove_file(int dir, const char *name, struct ck_err *err)
{
	int ret = ck_fault_point("end of the redo", err);

	if (!ret && unlinkat(dir, name, 0) && errno != ENOENT)
		ret = fail(name, errno, err);
	if (!ret)
		ret = ck_fault_point("fsync after the redo", err);
	if (!ret && ck_fds_sync_dir(dir))
		ret = fail(name, errno, err);
	return ret;
}

int ck_redo_end(struct ck_redo *r, struct ck_err *err)
{
	int ret = remove_file(r->dir, r->name, err);

	r->gone = !ret;
	return ret;
}

void ck_redo_free(struct ck_redo *r)
{
	if (!r)
		return;
	if (!r->whole && !r->gone)
		unlinkat(r->dir, r->name, 0);
	close(r->fd);
	ck_str_free(&r->tail);
	free(r);
}

/* ---- those that were left ---- */

struct name {
	char v[NAME_MAX + 1];
};

struct names {
	CK_VEC(struct name) all;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int list(const struct ck_root *root, const char *prefix,
		struct names *out, struct ck_err *err)
{
	ck_auto_dir DIR *d = NULL;
	struct dirent *e;
	int ret = ck_beneath_list(root->fd, "", &d);

	if (ret)
		return fail(root->path, -ret, err);
	while ((e = readdir(d))) {
		struct name *n;

		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
			continue;
		n = out->all.nr < MOST ? ck_vec_push(&out->all) : NULL;
		if (!n)
			return ck_fail(err, EINVAL, "%s: more than %d files %s",
				       root->path, MOST, prefix);
		snprintf(n->v, sizeof(n->v), "%s", e->d_name);
	}
	if (out->all.nr)
		qsort(out->all.v, out->all.nr, sizeof(struct name), by_name);
	return 0;
}

/* Who only looks has it for a moment. */
static int lock(int fd)
{
	const struct timespec moment = { .tv_nsec = 5000000 };
	int ret = -EWOULDBLOCK;

	for (int i = 0; ret == -EWOULDBLOCK && i < 20; i++) {
		if (i)
			nanosleep(&moment, NULL);
		ret = flock(fd, LOCK_EX | LOCK_NB) ? -errno : 0;
	}
	return ret;
}

/*
 * Opens @name, and locks it to work on it or only to look; -EAGAIN: somebody
 * is at it, or it is gone.
 */
static int seize(const struct ck_root *root, const char *name, bool look)
{
	ck_auto_fd int fd = openat(root->fd, name,
				   (look ? O_RDONLY : O_RDWR) | O_NOFOLLOW |
					   O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	int ret;

	if (fd < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	if (look)
		ret = flock(fd, LOCK_SH | LOCK_NB) ? -errno : 0;
	else
		ret = lock(fd);
	if (ret)
		return ret == -EWOULDBLOCK ? -EAGAIN : ret;
	if (fstat(fd, &st))
		return -errno;
	if (!st.st_nlink)
		return -EAGAIN;
	return S_ISREG(st.st_mode) ? ck_steal_fd(fd) : -EINVAL;
}

static int read_tail(struct ck_redo_left *left, unsigned char **tail,
		     struct ck_err *err)
{
	unsigned char end[CK_REDO_TRAILER];
	struct stat st;
	uint64_t size, len = 0;

	if (fstat(left->fd, &st))
		return ck_fail(err, errno, "%s", strerror(errno));
	size = (uint64_t)st.st_size;
	if (size >= sizeof(end) &&
	    !ck_pread_whole(left->fd, end, sizeof(end), size - sizeof(end)))
		len = ck_redo_tail_len(end);
	if (!len || len > size)
		return ck_fail(err, EINVAL, "is damaged, or none of ours");
	*tail = malloc(len);
	if (!*tail)
		return ck_no_memory(err);
	if (ck_pread_whole(left->fd, *tail, len, size - len))
		return ck_fail(err, EIO, "cannot be read");
	return ck_redo_parse(left, *tail, (size_t)len, size, err);
}

static int do_one(const struct ck_root *root, const char *name,
		  int (*fn)(void *ctx, struct ck_redo_left *left,
			    struct ck_err *err),
		  void *ctx, struct ck_err *err)
{
	ck_auto_fd int fd = seize(root, name, false);
	ck_auto_free unsigned char *tail = NULL;
	struct ck_redo_left left = { .fd = fd };
	int ret;

	if (fd == -EAGAIN)
		return 0;
	if (fd < 0)
		return fail(name, -fd, err);
	snprintf(left.name, sizeof(left.name), "%s", name);
	ret = read_tail(&left, &tail, err);
	if (!ret)
		ret = fn(ctx, &left, err);
	if (!ret)
		ret = remove_file(root->fd, name, err);
	return ck_wrap(err, ret,
		       "%s/%s, which holds what is to replace tensors, and is "
		       "removed by who gives that up",
		       root->path, name);
}

bool ck_redo_sweep(const struct ck_root *root)
{
	struct names n = { 0 };
	bool any = false;

	if (!root->only && !list(root, CK_REDO_NEW, &n, NULL))
		for (size_t i = 0; i < n.all.nr; i++) {
			ck_auto_fd int fd = seize(root, n.all.v[i].v, false);

			if (fd >= 0 && !unlinkat(root->fd, n.all.v[i].v, 0))
				any = true;
		}
	free(n.all.v);
	return any;
}

int ck_redo_each(const struct ck_root *root, bool sweep,
		 int (*fn)(void *ctx, struct ck_redo_left *left,
			   struct ck_err *err),
		 void *ctx, struct ck_err *err)
{
	struct names n = { 0 };
	int ret;

	if (root->only)
		return 0;
	if (sweep)
		ck_redo_sweep(root);
	ret = list(root, CK_REDO_WHOLE, &n, err);
	for (size_t i = 0; !ret && i < n.all.nr; i++)
		ret = do_one(root, n.all.v[i].v, fn, ctx, err);
	free(n.all.v);
	return ret;
}

bool ck_redo_is_left(const struct ck_root *root, char name[NAME_MAX + 1])
{
	struct names n = { 0 };
	bool found = false;

	if (!root->only && !list(root, CK_REDO_WHOLE, &n, NULL))
		for (size_t i = 0; !found && i < n.all.nr; i++) {
			ck_auto_fd int fd = seize(root, n.all.v[i].v, true);

			found = fd != -EAGAIN;
			if (found)
				snprintf(name, NAME_MAX + 1, "%s",
					 n.all.v[i].v);
		}
	free(n.all.v);
	return found;
}
