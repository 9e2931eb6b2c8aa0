/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_state.c - what an export has written so far, in a file beside it
 *
 *	magic 8 | id 16 | pieces u64 | XXH3-64 of each | XXH3-64 of all before
 *
 * Written as another file and renamed, after the pieces it speaks of are on
 * disk.  What is not as it should be counts for nothing written.
 */
#include "mount-helpers/export.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/whole.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "unshexp1"
#define NEW EXPORT_STATE ".new"

struct head {
	char magic[8];
	uint64_t id[2];
	uint64_t pieces;
};

static int read_all(int fd, void *buf, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = read(fd, (char *)buf + at, len - at);

		if (n <= 0)
			return -EIO;
		at += (size_t)n;
	}
	return 0;
}

static bool read_state(const struct export *x, int fd, struct head *h)
{
	XXH3_state_t *s = XXH3_createState();
	uint64_t sum = 0;
	bool ok;

	ok = s && !read_all(fd, h, sizeof(*h)) &&
	     !memcmp(h->magic, MAGIC, sizeof(h->magic)) &&
	     h->pieces <= x->pieces &&
	     !read_all(fd, x->digest, h->pieces * sizeof(*x->digest)) &&
	     !read_all(fd, &sum, sizeof(sum));
	if (ok) {
		XXH3_64bits_reset(s);
		XXH3_64bits_update(s, h, sizeof(*h));
		XXH3_64bits_update(s, x->digest,
				   h->pieces * sizeof(*x->digest));
		ok = XXH3_64bits_digest(s) == sum;
	}
	XXH3_freeState(s);
	return ok;
}

/* Whether what the state speaks of is there still. */
static bool have(const struct export *x, const struct export_file *f,
		 uint64_t len)
{
	struct stat st;

	return !fstatat(x->dir, f->name, &st, AT_SYMLINK_NOFOLLOW) &&
	       S_ISREG(st.st_mode) && (uint64_t)st.st_size >= len;
}

/* What some export began that nothing is known of would go with this one. */
static int sweep(const struct export *x, struct ck_err *err)
{
	int fd = openat(x->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_auto_dir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;

	if (!d)
		return ck_fail(err, errno, "%s", strerror(errno));
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
		    unlinkat(x->dir, e->d_name, 0))
			return ck_fail(err, errno, "%s: %s", e->d_name,
				       strerror(errno));
	return 0;
}

static int load(struct export *x, struct ck_err *err)
{
	ck_auto_fd int fd =
		openat(x->dir, EXPORT_STATE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct head h;

	if (fd < 0)
		return errno == ENOENT ? 0 :
					 ck_fail(err, errno, "%s: %s",
						 EXPORT_STATE, strerror(errno));
	if (!read_state(x, fd, &h))
		return 0;
	if (h.id[0] != x->id[0] || h.id[1] != x->id[1])
		return ck_fail(err, EEXIST,
			       "it is of another export, or the checkpoint has "
			       "changed since");
	for (size_t i = 0; i < x->file.nr; i++) {
		const struct export_file *f = &x->file.v[i];
		uint64_t n =
			CK_MAX(1u, (f->size + EXPORT_PIECE - 1) / EXPORT_PIECE);

		for (uint64_t k = 0; k < n && f->first + k < h.pieces; k++) {
			uint64_t end = CK_MIN((k + 1) * EXPORT_PIECE, f->size);

			if (!have(x, f, end))
				return 0;
			x->done[f->first + k] = EXPORT_KEPT;
			x->kept += end - k * EXPORT_PIECE;
		}
	}
	return 0;
}

int export_state_load(struct export *x, struct ck_err *err)
{
	int ret = load(x, err);

	return ret || x->kept ? ret : sweep(x, err);
}

static int put(int fd, XXH3_state_t *s, const void *bytes, size_t len)
{
	XXH3_64bits_update(s, bytes, len);
	return ck_write_whole(fd, bytes, len);
}

static int write_state(const struct export *x, int fd, uint64_t pieces)
{
	XXH3_state_t *s = XXH3_createState();
	struct head h = { .magic = MAGIC,
			  .id = { x->id[0], x->id[1] },
			  .pieces = pieces };
	uint64_t sum;
	int ret;

	if (!s)
		return -ENOMEM;
	XXH3_64bits_reset(s);
	ret = put(fd, s, &h, sizeof(h));
	if (!ret)
		ret = put(fd, s, x->digest, pieces * sizeof(*x->digest));
	sum = XXH3_64bits_digest(s);
	if (!ret)
		ret = put(fd, s, &sum, sizeof(sum));
	XXH3_freeState(s);
	return !ret && fsync(fd) ? -errno : ret;
}

int export_state_save(struct export *x, uint64_t pieces, struct ck_err *err)
{
	ck_auto_fd int fd = openat(
		x->dir, NEW,
		O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
	int ret = fd < 0 ? -errno : write_state(x, fd, pieces);

	if (!ret && renameat(x->dir, NEW, x->dir, EXPORT_STATE))
		ret = -errno;
	return ret ? ck_fail(err, -ret, "%s: %s", EXPORT_STATE,
			     strerror(-ret)) :
		     0;
}
