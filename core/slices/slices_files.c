/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_files.c - the shards to be: made, opened, moved at the end
 *
 * One comes into being at the first write to it, of its full size and with
 * room for all of it where the file system promises that.  Two mounts may
 * make one at the same time: both write the same header.
 */
#include "core/slices/slices_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/fds.h"
#include "core/base/whole.h"
#include "core/layout/doc.h"
#include "core/root/fault_point.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

int ck_slices_fail(const struct ck_slices *sl, uint32_t file, int code,
		   struct ck_err *err)
{
	return ck_fail(err, code, "%s: %s: %s", CK_DRAFT_NAME(sl->draft),
		       ck_slices_file_name(sl, file), strerror(code));
}

static int open_at(int dir, const char *name, int flags)
{
	int fd = openat(dir, name,
			flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
			0666);

	return fd < 0 ? -errno : fd;
}

/* Its size, its header, and its room: all may have been done before. */
static int fill_out(const struct ck_slices *sl, uint32_t file, int fd,
		    struct ck_err *err)
{
	uint64_t size = sl->plan.files[file].size;
	struct stat st;
	if (fstat(fd, &st))
		return ck_slices_fail(sl, file, errno, err);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > size)
		return ck_fail(err, EIO,
			       "%s: %s: expected a file of at most %llu bytes",
			       CK_DRAFT_NAME(sl->draft),
			       ck_slices_file_name(sl, file),
			       (unsigned long long)size);
	if ((uint64_t)st.st_size == size)
		return 0;
	if (fallocate(fd, 0, 0, (off_t)size) && errno != EOPNOTSUPP &&
	    errno != ENOSYS && errno != EINVAL)
		return ck_slices_fail(sl, file, errno, err);
	if (ftruncate(fd, (off_t)size))
		return ck_slices_fail(sl, file, errno, err);
	return ck_slices_frames(sl, file, fd, err);
}

int ck_slices_shard(struct ck_slices *sl, uint32_t file, bool writes,
		    struct ck_err *err)
{
	const char *name = ck_slices_file_name(sl, file);
	int how = writes ? O_RDWR : O_RDONLY, fd, ret;

	/* whoever had all of it, or a publish that broke off, has moved it */
	fd = open_at(sl->draft->files_fd, name, how);
	if (fd == -ENOENT)
		fd = open_at(sl->files, name, how);
	if (fd == -ENOENT) /* just now: or nobody made it yet */
		fd = open_at(sl->draft->files_fd, name, how);
	if (fd == -ENOENT && writes)
		fd = open_at(sl->files, name, how | O_CREAT);
	if (fd == -ENOENT)
		return fd;
	if (fd < 0)
		return ck_slices_fail(sl, file, -fd, err);
	ret = writes ? fill_out(sl, file, fd, err) : 0;
	if (ret)
		close(fd);
	return ret ? ret : fd;
}

/* ---- some are kept open ---- */

/* A place that is free, or that of the one not used for longest; or NULL. */
static struct ck_slices_fd *find(struct ck_slices *sl, uint32_t file,
				 bool writes)
{
	struct ck_slices_fd *old = NULL;

	for (size_t i = 0; i < CK_SLICES_FDS; i++) {
		struct ck_slices_fd *f = &sl->fds[i];

		if (f->fd >= 0 && f->file == file && (f->writes || !writes))
			return f;
		if (!f->pins && (!old || f->used < old->used))
			old = f;
	}
	return old;
}

static int open_in(struct ck_slices *sl, struct ck_slices_fd *f, uint32_t file,
		   bool writes, struct ck_err *err)
{
	int fd = ck_slices_shard(sl, file, writes, err);

	if (fd < 0)
		return fd;
	if (f->fd >= 0)
		close(f->fd);
	*f = (struct ck_slices_fd){ .fd = fd, .file = file, .writes = writes };
	return 0;
}

int ck_slices_get(struct ck_slices *sl, uint32_t file, bool writes,
		  struct ck_slices_fd **out, struct ck_err *err)
{
	struct ck_slices_fd *f;
	int ret = 0;

	ck_auto_lock(&sl->lock);
	f = find(sl, file, writes);
	if (!f)
		return ck_fail(err, EMFILE, "%s: too many files at once",
			       CK_DRAFT_NAME(sl->draft));
	if (f->fd < 0 || f->file != file || (writes && !f->writes))
		ret = open_in(sl, f, file, writes, err);
	if (ret)
		return ret;
	f->pins++;
	f->used = ++sl->clock;
	*out = f;
	return 0;
}

void ck_slices_put(struct ck_slices *sl, struct ck_slices_fd *fd)
{
	ck_auto_lock(&sl->lock);
	fd->pins--;
}

/* ---- the end ---- */

static int in_way(const struct ck_slices *sl, const char *name,
		  struct ck_err *err)
{
	if (!ck_fds_has(sl->files, name) ||
	    !ck_fds_has(sl->draft->files_fd, name))
		return 0;
	return ck_fail(err, EEXIST,
		       "%s: shards/%s is in the way of what was written as "
		       "slices",
		       CK_DRAFT_NAME(sl->draft), name);
}

static const char *index_of(const struct ck_slices *sl)
{
	return sl->plan.dcp ? ".metadata" : CK_LAYOUT_FILE;
}

int ck_slices_in_way(const struct ck_slices *sl, bool *gathered,
		     struct ck_err *err)
{
	const char *index = index_of(sl);
	int ret = in_way(sl, index, err);

	for (uint32_t i = 0; i < sl->plan.nr_files && !ret; i++)
		ret = in_way(sl, ck_slices_file_name(sl, i), err);
	*gathered = !ret && ck_fds_has(sl->draft->files_fd, index);
	return ret;
}

static int move(struct ck_slices *sl, const char *name, struct ck_err *err)
{
	int ret = ck_fault_point("move of a shard", err);

	if (!ret)
		ret = in_way(sl, name, err);
	if (ret || (!ck_fds_has(sl->files, name) &&
		    ck_fds_has(sl->draft->files_fd, name)))
		return ret;
	if (renameat(sl->files, name, sl->draft->files_fd, name))
		return ck_fail(err, errno, "%s: %s: %s",
			       CK_DRAFT_NAME(sl->draft), name, strerror(errno));
	return 0;
}

int ck_slices_move(struct ck_slices *sl, uint32_t file, struct ck_err *err)
{
	return move(sl, ck_slices_file_name(sl, file), err);
}

/* What is in no shard, into @fd. */
typedef int (*write_fn)(const struct ck_slices *sl, int fd, struct ck_err *err);

static int write_layout(const struct ck_slices *sl, int fd, struct ck_err *err)
{
	const char *text = sl->plan.layout;
	int ret = ck_pwrite_whole(fd, text, strlen(text), 0);

	return ret ? ck_fail(err, -ret, "%s", strerror(-ret)) : 0;
}

/*
 * Under its name there it is taken as it is by the next publish, so all of it is on
 * storage before: a loss of power may keep the rename and not the bytes.
 */
static int put_file(struct ck_slices *sl, const char *name, write_fn write_it,
		    struct ck_err *err)
{
	ck_auto_fd int fd = -1;
	int ret;

	if (ck_fds_has(sl->draft->files_fd, name) &&
	    !ck_fds_has(sl->files, name))
		return 0;
	fd = open_at(sl->files, name, O_WRONLY | O_CREAT | O_TRUNC);
	ret = fd < 0 ? ck_fail(err, -fd, "%s", strerror(-fd)) :
		       write_it(sl, fd, err);
	if (!ret && fsync(fd))
		ret = ck_fail(err, errno, "%s", strerror(errno));
	if (ret)
		return ck_wrap(err, ret, "%s: %s", CK_DRAFT_NAME(sl->draft),
			       name);
	return move(sl, name, err);
}

static int gather(struct ck_slices *sl, struct ck_err *err)
{
	int ret = ck_slices_extras_read(sl, err);

	if (!ret)
		ret = ck_slices_check(sl, err);
	if (!ret)
		ret = ck_slices_told(sl, err);
	if (!ret)
		ret = ck_slices_objects_place(sl, err);
	if (!ret)
		ret = ck_slices_check_same(sl, err);
	if (!ret)
		ret = ck_slices_frame_all(sl, err);
	for (uint32_t i = 0; i < sl->plan.nr_files && !ret; i++)
		ret = ck_slices_move(sl, i, err);
	if (!ret && sl->extras.nr)
		ret = put_file(sl, CK_SLICES_OBJECTS, ck_slices_objects_write,
			       err);
	/* last of all, as it is what makes a checkpoint of them */
	return ret ? ret :
		     put_file(sl, index_of(sl),
			      sl->plan.dcp ? ck_slices_metadata : write_layout,
			      err);
}

int ck_slices_gather(struct ck_draft *s, struct ck_hash_known *known,
		     struct ck_err *err)
{
	struct ck_slices *sl;
	int ret = ck_slices_open(&sl, s, err);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	ret = gather(sl, err);
	if (!ret)
		ret = ck_slices_know(sl, known, err);
	ck_slices_close(sl);
	return ret;
}

static int settle(struct ck_slices *sl, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < sl->plan.nr_files && !ret; i++) {
		const struct ck_slice_plan_file *f = &sl->plan.files[i];
		ck_auto_fd int fd = -1;
		bool lost;

		if (f->size == f->data)
			continue;
		fd = ck_slices_shard(sl, i, true, err);
		ret = fd < 0 ? fd :
			       ck_claims_add(sl->claims, i, f->data,
					     f->size - f->data, err);
		if (!ret)
			ret = ck_claims_sync(sl->claims, i, fd, &lost, err);
	}
	return ret;
}

int ck_slices_move_files(struct ck_draft *s, struct ck_err *err)
{
	struct ck_slices *sl;
	int ret = ck_slices_open(&sl, s, err);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	ret = settle(sl, err);
	ck_slices_close(sl);
	return ret;
}
