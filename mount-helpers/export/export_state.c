/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export_state.c - what an export has written so far, in two files beside it
 *
 *	head: magic 8 | id 16 | turn u64 | pieces u64 | done u64
 *	      | XXH3-64 of what follows | XXH3-64 of the head so far
 *	u8 of each piece: whether it is written | XXH3-64 of each
 *
 * Each record overwrites the older of the two in place, after the pieces it
 * speaks of are on disk, and the one with the higher turn counts.  Both get
 * their room at the start, for a full disk is when a record is needed.  What is
 * not as it should be counts for nothing written.
 */
#include "mount-helpers/export/export.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/whole.h"
#include "core/root/openat_beneath.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "unshexp2"

static const char *const slot[2] = { EXPORT_STATE, EXPORT_STATE_2 };

struct head {
	char magic[8];
	uint64_t id[2];
	uint64_t turn; /* 1 for the first */
	uint64_t pieces, done; /* in all; written */
	uint64_t body_sum, sum;
};

static uint64_t body_sum(const unsigned char *done, const uint64_t *digest,
			 uint64_t pieces)
{
	uint64_t sum[2] = { XXH3_64bits(done, pieces),
			    XXH3_64bits(digest, pieces * sizeof(*digest)) };

	return XXH3_64bits(sum, sizeof(sum));
}

/* One that can be believed, and speaks of something. */
static bool read_head(int fd, struct head *h)
{
	return !ck_pread_whole(fd, h, sizeof(*h), 0) &&
	       !memcmp(h->magic, MAGIC, sizeof(h->magic)) &&
	       XXH3_64bits(h, offsetof(struct head, sum)) == h->sum && h->done;
}

/* Into what is planned; x->done becomes 1 for what is written. */
static bool read_body(struct export *x, int fd, const struct head *h)
{
	uint64_t len = x->pieces * sizeof(*x->digest);

	return h->pieces == x->pieces &&
	       !ck_pread_whole(fd, x->done, x->pieces, sizeof(*h)) &&
	       !ck_pread_whole(fd, x->digest, len, sizeof(*h) + x->pieces) &&
	       body_sum(x->done, x->digest, x->pieces) == h->body_sum;
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
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;
	int ret = ck_beneath_list(x->dir, "", &d);

	if (ret)
		return ck_fail(err, -ret, "%s", strerror(-ret));
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
		    unlinkat(x->dir, e->d_name, 0))
			return ck_fail(err, errno, "%s: %s", e->d_name,
				       strerror(errno));
	return 0;
}

/* Opens both slots; fd[i] < 0 where there is none. */
static int open_slots(const struct export *x, int how, int fd[2],
		      struct ck_err *err)
{
	int failed = 0;

	for (unsigned i = 0; i < 2; i++) {
		fd[i] = openat(x->dir, slot[i], how | O_CLOEXEC | O_NOFOLLOW,
			       0666);
		if (fd[i] < 0 && (errno != ENOENT || (how & O_CREAT)))
			failed = errno;
	}
	return failed ? ck_fail(err, failed, "%s: %s", EXPORT_STATE,
				strerror(failed)) :
			0;
}

/* The latest that is whole.  -EEXIST: of another export. */
static int read_slots(struct export *x, const int fd[2], bool *found,
		      struct ck_err *err)
{
	struct head h[2] = { 0 };
	bool ok[2];

	*found = false;
	for (unsigned i = 0; i < 2; i++) {
		ok[i] = fd[i] >= 0 && read_head(fd[i], &h[i]);
		if (ok[i] && (h[i].id[0] != x->id[0] || h[i].id[1] != x->id[1]))
			return ck_fail(err, EEXIST,
				       "it is of another export, or the "
				       "checkpoint has changed since");
	}
	for (unsigned n = 0; n < 2 && !*found; n++) {
		unsigned i = (ok[1] && h[1].turn > h[0].turn) ^ n;

		*found = ok[i] && read_body(x, fd[i], &h[i]);
		if (*found)
			x->turn = h[i].turn;
	}
	if (!*found)
		memset(x->done, EXPORT_NOT, x->pieces);
	return 0;
}

/* Those that the record has; false where a file is too short for it. */
static bool keep(struct export *x)
{
	for (size_t i = 0; i < x->file.nr; i++) {
		const struct export_file *f = &x->file.v[i];
		uint64_t n =
			CK_MAX(1u, (f->size + EXPORT_PIECE - 1) / EXPORT_PIECE);

		for (uint64_t k = 0; k < n; k++) {
			uint64_t end = CK_MIN((k + 1) * EXPORT_PIECE, f->size);

			if (!x->done[f->first + k])
				continue;
			if (!have(x, f, end))
				return false;
			x->done[f->first + k] = EXPORT_KEPT;
			x->kept += end - k * EXPORT_PIECE;
		}
	}
	return true;
}

int export_state_load(struct export *x, struct ck_err *err)
{
	bool found = false;
	int fd[2], ret = open_slots(x, O_RDONLY, fd, err);

	if (!ret)
		ret = read_slots(x, fd, &found, err);
	for (unsigned i = 0; i < 2; i++)
		if (fd[i] >= 0)
			close(fd[i]);
	if (ret || (found && keep(x)))
		return ret;
	return export_state_forget(x, err);
}

int export_state_forget(struct export *x, struct ck_err *err)
{
	memset(x->done, EXPORT_NOT, x->pieces);
	x->kept = x->turn = 0;
	return sweep(x, err);
}

int export_state_begin(struct export *x, struct ck_err *err)
{
	off_t len = (off_t)(sizeof(struct head) +
			    x->pieces * (1 + sizeof(*x->digest)));
	int fd[2], ret = open_slots(x, O_RDWR | O_CREAT, fd, err);

	for (unsigned i = 0; i < 2; i++) {
		int failed = ret ? 0 : posix_fallocate(fd[i], 0, len);

		if (failed)
			ret = ck_fail(err, failed, "%s: %s", slot[i],
				      strerror(failed));
		if (fd[i] >= 0)
			close(fd[i]);
	}
	return ret;
}

static int write_slot(const struct export *x, int fd, struct head *h)
{
	int ret;

	h->body_sum = body_sum(x->now.done, x->now.digest, x->pieces);
	h->sum = XXH3_64bits(h, offsetof(struct head, sum));
	ret = ck_pwrite_whole(fd, x->now.done, x->pieces, sizeof(*h));
	if (!ret)
		ret = ck_pwrite_whole(fd, x->now.digest,
				      x->pieces * sizeof(*x->now.digest),
				      sizeof(*h) + x->pieces);
	if (!ret)
		ret = ck_pwrite_whole(fd, h, sizeof(*h), 0);
	return !ret && fsync(fd) ? -errno : ret;
}

int export_state_save(struct export *x, struct ck_err *err)
{
	struct head h = { .magic = MAGIC,
			  .id = { x->id[0], x->id[1] },
			  .turn = x->turn + 1,
			  .pieces = x->pieces };
	const char *name = slot[(h.turn + 1) % 2];
	ck_auto_fd int fd =
		openat(x->dir, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	int ret;

	for (uint64_t i = 0; i < x->pieces; i++)
		h.done += x->now.done[i];
	ret = fd < 0 ? -errno : write_slot(x, fd, &h);
	x->turn += !ret;
	return ret ? ck_fail(err, -ret, "%s: %s", name, strerror(-ret)) : 0;
}
