/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlay_compact.c - a log that holds mostly what was overwritten, anew
 *
 * Blocks that still count go to a second file, with the marks behind them;
 * when that is on storage it takes the log's name.  Both hold the same state,
 * so whichever a crash leaves is right.  Who writes waits; who reads waits only
 * while the places of blocks change.
 */
#include "core/write/overlay_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

uint64_t ck_overlay_slack = UINT64_C(64) << 20;

struct run {
	uint32_t src;
	uint64_t block, nr;
};

/* The next blocks that follow each other, a record full at most. */
static bool next_run(const struct ck_overlay *o, struct run *r)
{
	for (; r->src < o->img->nr_srcs; r->src++, r->block = 0) {
		r->nr = ck_overlay_map_next(&o->map[r->src], &r->block,
					    CK_OVERLAY_RECORD /
						    CK_OVERLAY_BLOCK);
		if (r->nr)
			return true;
	}
	return false;
}

static uint64_t len_of(const struct ck_overlay *o, const struct run *r)
{
	return CK_MIN((r->block + r->nr) * CK_OVERLAY_BLOCK,
		      o->map[r->src].size) -
	       r->block * CK_OVERLAY_BLOCK;
}

/* The blocks of @r, which may lie in several places, into o->buf. */
static int gather(struct ck_overlay *o, int from, const struct run *r)
{
	uint64_t len = len_of(o, r), n;
	int ret = 0;

	for (uint64_t done = 0; !ret && done < len; done += n) {
		uint64_t k = r->block + done / CK_OVERLAY_BLOCK;

		n = CK_MIN(CK_OVERLAY_BLOCK, len - done);
		ret = ck_pread_whole(from,
				     o->buf + CK_OVERLAY_RECORD_HEAD + done, n,
				     ck_overlay_map_get(&o->map[r->src], k));
	}
	return ret;
}

/* All that counts, and a commit, into @to, an empty log of the same maps. */
static int write_anew(struct ck_overlay *to, int from, struct ck_err *err)
{
	struct run r = { 0 };
	uint64_t at;
	int ret = 0;

	for (; !ret && next_run(to, &r); r.block += r.nr) {
		ret = gather(to, from, &r);
		if (ret)
			return ck_fail(err, -ret, "overlay: reading: %s",
				       strerror(-ret));
		ret = ck_overlay_append(to, r.src, r.block * CK_OVERLAY_BLOCK,
					len_of(to, &r), &at, err);
	}
	if (!ret)
		ret = ck_overlay_append_mark(to, CK_OVERLAY_COMMIT, err);
	if (!ret) /* it goes on */
		ret = ck_overlay_append_mark(to, CK_OVERLAY_KEPT, err);
	if (!ret && fdatasync(to->log_fd))
		ret = ck_fail(err, errno, "overlay: to storage: %s",
			      strerror(errno));
	return ret;
}

/* Where write_anew() put them: the same runs, one after the other. */
static void move_places(struct ck_overlay *o)
{
	struct run r = { 0 };
	uint64_t at = 0;

	for (; next_run(o, &r); r.block += r.nr) {
		at += CK_OVERLAY_RECORD_HEAD;
		/* the leaves are there: it needs no memory */
		ck_overlay_map_put(&o->map[r.src], r.block, r.nr, at);
		at += len_of(o, &r);
	}
}

/* @to is the log from now on. */
static void change_over(struct ck_overlay *o, const struct ck_overlay *to)
{
	int old = o->log_fd;

	pthread_rwlock_wrlock(&o->moving);
	pthread_rwlock_wrlock(&o->maps);
	move_places(o);
	o->log_fd = to->log_fd;
	pthread_rwlock_unlock(&o->maps);
	pthread_rwlock_unlock(&o->moving);
	close(old);
	o->end = to->end;
	o->seq = to->seq;
	o->last = to->last;
	o->stats.log_bytes = to->end;
	o->stats.records = to->stats.records;
	o->stats.commits = 1;
}

static bool is_due(const struct ck_overlay *o)
{
	uint64_t live = 0;

	if (!o->write || o->failed || o->last == CK_OVERLAY_BLOCKS ||
	    o->end < o->compact_from + ck_overlay_slack)
		return false;
	for (uint32_t i = 0; i < o->img->nr_srcs; i++)
		live += o->map[i].nr * CK_OVERLAY_BLOCK;
	return o->end > 2 * live + ck_overlay_slack;
}

static int compact(struct ck_overlay *o, struct ck_err *err)
{
	struct ck_overlay to = { .img = o->img, .map = o->map, .buf = o->buf };
	int ret;

	unlinkat(o->dir_fd, CK_OVERLAY_NEW, 0);
	to.log_fd = openat(o->dir_fd, CK_OVERLAY_NEW,
			   O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			   0644);
	if (to.log_fd < 0)
		return ck_fail(err, errno, "overlay: %s: %s", CK_OVERLAY_NEW,
			       strerror(errno));
	ret = write_anew(&to, o->log_fd, err);
	if (!ret &&
	    renameat(o->dir_fd, CK_OVERLAY_NEW, o->dir_fd, CK_OVERLAY_LOG))
		ret = ck_fail(err, errno, "overlay: renaming: %s",
			      strerror(errno));
	if (ret) {
		close(to.log_fd);
		unlinkat(o->dir_fd, CK_OVERLAY_NEW, 0);
		return ret;
	}
	change_over(o, &to);
	/* else a crash might bring the old one back, without what follows */
	if (fsync(o->dir_fd))
		o->failed = errno;
	return 0;
}

void ck_overlay_compact(struct ck_overlay *o)
{
	struct ck_err err;

	if (!is_due(o))
		return;
	/* where there is no room, the long log does as well */
	compact(o, &err);
	o->compact_from = o->end;
}
