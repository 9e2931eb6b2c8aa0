/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlay_log.c - records: blocks of a shard, and commits
 *
 *	 0  u32 magic
 *	 4  u32 kind: 1 blocks, 2 commit, 3 kept
 *	 8  u64 number of the record, from 0
 *	16  u64 where in the shard: a multiple of 4 KiB
 *	24  u32 which shard, by its place in the head
 *	28  u32 bytes that follow
 *	32  u64 XXH3-64 of the 32 bytes before and of those that follow
 *
 * Little-endian.  What counts are the records up to the last commit, which is on
 * storage, or up to the last "kept", which a write that was answered puts behind
 * its own: it outlives the process, and of a power cut what has right sums.  A
 * log that was closed well ends in a commit; one that does not was being written.
 * The first record that is not right ends the log, as a crash leaves it.  But
 * where a commit lies behind it, it was right once: then the log is damaged, and
 * nothing is cut off.  Where none does, and the record is
 * there in full, it may be the last commit itself, damaged: that is said, and
 * what is cut off is kept beside.
 */
#include "core/write/overlay_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/le.h"
#include "core/base/vec.h"
#include "core/base/whole.h"
#include "core/root/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define MAGIC UINT32_C(0x4c76f0c5)
#define HEAD CK_OVERLAY_RECORD_HEAD
#define SUM_AT 32

static uint64_t sum_of(const unsigned char *rec, uint64_t len)
{
	return XXH3_64bits_withSeed(rec + HEAD, len, XXH3_64bits(rec, SUM_AT));
}

/* ---- writing ---- */

static int put(struct ck_overlay *o, uint32_t kind, uint32_t src, uint64_t off,
	       uint64_t len, struct ck_err *err)
{
	unsigned char *rec = o->buf;
	int ret;

	ck_le32_put(rec, MAGIC);
	ck_le32_put(rec + 4, kind);
	ck_le64_put(rec + 8, o->seq);
	ck_le64_put(rec + 16, off);
	ck_le32_put(rec + 24, src);
	ck_le32_put(rec + 28, (uint32_t)len);
	ck_le64_put(rec + SUM_AT, sum_of(rec, len));
	ret = ck_pwrite_whole(o->log_fd, rec, HEAD + len, o->end);
	if (ret) /* what is left of it would pass for damage */
		(void)!ftruncate(o->log_fd, (off_t)o->end);
	if (ret)
		return ck_fail(err, -ret,
			       "overlay: writing at byte %" PRIu64 ": %s",
			       o->end, strerror(-ret));
	o->end += HEAD + len;
	o->last = kind;
	o->seq++;
	o->stats.records++;
	o->stats.log_bytes = o->end;
	return 0;
}

int ck_overlay_append(struct ck_overlay *o, uint32_t src, uint64_t off,
		      uint64_t len, uint64_t *at, struct ck_err *err)
{
	int ret = put(o, CK_OVERLAY_BLOCKS, src, off, len, err);

	*at = o->end - len;
	return ret;
}

/* Nothing is put behind what is of that kind, nor into an empty log. */
int ck_overlay_append_mark(struct ck_overlay *o, enum ck_overlay_kind kind,
			   struct ck_err *err)
{
	int ret = 0;

	if (!o->last || o->last == kind)
		return 0;
	ret = put(o, kind, 0, 0, 0, err);
	o->stats.commits += !ret && kind == CK_OVERLAY_COMMIT;
	return ret;
}

int ck_overlay_commit(void *ctx, struct ck_err *err)
{
	struct ck_overlay *o = ctx;
	int ret;

	ck_auto_lock(&o->lock);
	if (o->failed)
		return ck_fail(err, o->failed,
			       "overlay: could not be written "
			       "to storage before");
	ret = ck_overlay_append_mark(o, CK_OVERLAY_COMMIT, err);
	if (ret)
		return ret;
	/* Others' commits too may still be under way: always. */
	o->failed =
		-ck_fault_of(CK_FAULT_SYNC, fdatasync(o->log_fd) ? -errno : 0);
	ck_overlay_compact(o);
	return o->failed ? ck_fail(err, o->failed, "overlay: to storage: %s",
				   strerror(o->failed)) :
			   0;
}

/* ---- replaying ---- */

struct pending {
	uint32_t src;
	uint64_t off, len, at;
};

struct replay {
	struct ck_overlay *o;
	uint64_t size, at; /* of the log; of the next record */
	uint64_t seq;
	uint64_t committed, committed_seq; /* behind the last commit */
	CK_VEC(struct pending) pending;
};

static bool is_mark(const unsigned char *rec)
{
	return ck_le32(rec + 4) == CK_OVERLAY_COMMIT ||
	       ck_le32(rec + 4) == CK_OVERLAY_KEPT;
}

static bool place_ok(const struct ck_overlay *o, const unsigned char *rec)
{
	uint64_t off = ck_le64(rec + 16), len = ck_le32(rec + 28);
	uint32_t src = ck_le32(rec + 24);
	uint64_t size;

	if (is_mark(rec))
		return !len && !off && !src;
	if (ck_le32(rec + 4) != CK_OVERLAY_BLOCKS || src >= o->img->nr_srcs)
		return false;
	size = o->map[src].size;
	return len && len <= CK_OVERLAY_RECORD && !(off % CK_OVERLAY_BLOCK) &&
	       ck_range_ok(off, len, size) &&
	       (!(len % CK_OVERLAY_BLOCK) || off + len == size);
}

/* Whether a right record lies at @at; it is in the buffer then. */
static int look(const struct replay *r, uint64_t at, bool *right)
{
	unsigned char *rec = r->o->buf;
	uint64_t len;
	int ret;

	*right = false;
	if (r->size - at < HEAD)
		return 0;
	ret = ck_pread_whole(r->o->log_fd, rec, HEAD, at);
	if (ret || ck_le32(rec) != MAGIC || !place_ok(r->o, rec))
		return ret;
	len = ck_le32(rec + 28);
	if (r->size - at - HEAD < len)
		return 0;
	ret = ck_pread_whole(r->o->log_fd, rec + HEAD, len, at + HEAD);
	if (!ret)
		*right = sum_of(rec, len) == ck_le64(rec + SUM_AT);
	return ret;
}

static int apply(struct replay *r)
{
	for (size_t i = 0; i < r->pending.nr; i++) {
		const struct pending *p = &r->pending.v[i];

		if (!ck_overlay_map_put(
			    &r->o->map[p->src], p->off / CK_OVERLAY_BLOCK,
			    CK_DIV_UP(p->len, CK_OVERLAY_BLOCK), p->at))
			return -ENOMEM;
	}
	r->pending.nr = 0;
	r->committed = r->at;
	r->committed_seq = r->seq;
	return 0;
}

/* The record in the buffer, which begins at r->at. */
static int take(struct replay *r)
{
	const unsigned char *rec = r->o->buf;
	uint64_t len = ck_le32(rec + 28);
	struct pending *p;

	r->seq++;
	r->at += HEAD + len;
	r->o->stats.commits += ck_le32(rec + 4) == CK_OVERLAY_COMMIT;
	if (is_mark(rec)) {
		r->o->stats.unclosed = ck_le32(rec + 4) == CK_OVERLAY_KEPT;
		return apply(r);
	}
	if (!ck_vec_reserve(&r->pending, 1))
		return -ENOMEM;
	p = &r->pending.v[r->pending.nr++];
	*p = (struct pending){ .src = ck_le32(rec + 24),
			       .off = ck_le64(rec + 16),
			       .len = len,
			       .at = r->at - len };
	return 0;
}

static int walk(struct replay *r)
{
	bool right = true;
	int ret = 0;

	while (!ret && r->at < r->size) {
		ret = look(r, r->at, &right);
		if (ret || !right || ck_le64(r->o->buf + 8) != r->seq)
			break;
		ret = take(r);
	}
	return ret;
}

/* A commit of a later record behind byte @at: where, or 0. */
static int find_commit(const struct replay *r, uint64_t at, uint64_t *found)
{
	ck_auto_free unsigned char *window = malloc(1 << 16);
	int ret = window ? 0 : -ENOMEM;

	*found = 0;
	while (!ret && !*found && at + HEAD <= r->size) {
		uint64_t len = CK_MIN((uint64_t)1 << 16, r->size - at);

		ret = ck_pread_whole(r->o->log_fd, window, len, at);
		for (uint64_t i = 0; !ret && i + HEAD <= len; i++) {
			const unsigned char *rec = window + i;

			if (ck_le32(rec) == MAGIC &&
			    ck_le32(rec + 4) == CK_OVERLAY_COMMIT &&
			    !ck_le32(rec + 28) && ck_le64(rec + 8) >= r->seq &&
			    sum_of(rec, 0) == ck_le64(rec + SUM_AT))
				*found = at + i;
		}
		at += len - HEAD + 1;
	}
	return ret;
}

/* Whether what lies at the end is there in full, and yet not right. */
static int is_damaged(const struct replay *r, bool *damaged)
{
	static const unsigned char zeros[HEAD];
	unsigned char *rec = r->o->buf;
	uint64_t left = r->size - r->at;
	int ret;

	*damaged = false;
	if (left < HEAD)
		return 0;
	ret = ck_pread_whole(r->o->log_fd, rec, HEAD, r->at);
	if (ret || !memcmp(rec, zeros, HEAD))
		return ret; /* never written, though the file is so long */
	*damaged = ck_le32(rec) != MAGIC || !place_ok(r->o, rec) ||
		   ck_le32(rec + 28) <= left - HEAD;
	return 0;
}

/* Bytes [from, end) of the log to the end of LOST. */
static int put_aside(struct ck_overlay *o, uint64_t from, uint64_t end)
{
	ck_auto_fd int fd =
		openat(o->dir_fd, CK_OVERLAY_LOST,
		       O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
	off_t to = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	int ret = to < 0 ? -errno : 0;

	while (!ret && from < end) {
		uint64_t n = CK_MIN(CK_OVERLAY_RECORD, end - from);

		ret = ck_pread_whole(o->log_fd, o->buf, n, from);
		if (!ret)
			ret = ck_pwrite_whole(fd, o->buf, n, (uint64_t)to);
		from += n;
		to += (off_t)n;
	}
	if (!ret && (fsync(fd) || fsync(o->dir_fd)))
		ret = -errno;
	return ret;
}

static int end_of_log(struct replay *r, struct ck_err *err)
{
	struct ck_overlay *o = r->o;
	uint64_t later;
	bool damaged = false;
	int ret = find_commit(r, r->at, &later);

	if (!ret && !later)
		ret = is_damaged(r, &damaged);

	if (ret)
		return ck_fail(err, -ret, "overlay: reading: %s",
			       strerror(-ret));
	if (later)
		return ck_fail(err, EIO,
			       "overlay: %s is damaged at byte %" PRIu64
			       ", though byte %" PRIu64 " was committed later",
			       CK_OVERLAY_LOG, r->at, later);
	o->stats.lost = r->size - r->committed;
	o->stats.unclosed |= o->stats.lost != 0;
	if (r->committed)
		o->last =
			o->stats.unclosed ? CK_OVERLAY_KEPT : CK_OVERLAY_COMMIT;
	o->end = o->stats.log_bytes = r->committed;
	o->seq = o->stats.records = r->committed_seq;
	o->stats.damaged = damaged ? r->at : 0;
	if (!o->write || !o->stats.lost)
		return 0;
	ret = damaged ? put_aside(o, o->end, r->size) : 0;
	if (ret)
		return ck_fail(err, -ret, "overlay: %s: %s", CK_OVERLAY_LOST,
			       strerror(-ret));
	if (ftruncate(o->log_fd, (off_t)o->end) || fdatasync(o->log_fd))
		return ck_fail(err, errno, "overlay: %s: %s", CK_OVERLAY_LOG,
			       strerror(errno));
	return 0;
}

int ck_overlay_replay(struct ck_overlay *o, struct ck_err *err)
{
	struct replay r = { .o = o };
	struct stat st;
	int ret;

	if (fstat(o->log_fd, &st))
		return ck_fail(err, errno, "overlay: %s: %s", CK_OVERLAY_LOG,
			       strerror(errno));
	if (!S_ISREG(st.st_mode))
		return ck_fail(err, EINVAL, "overlay: %s: expected a file",
			       CK_OVERLAY_LOG);
	r.size = (uint64_t)st.st_size;
	ret = walk(&r);
	if (ret)
		ck_fail(err, -ret, "overlay: %s: byte %" PRIu64 ": %s",
			CK_OVERLAY_LOG, r.at, strerror(-ret));
	else
		ret = end_of_log(&r, err);
	free(r.pending.v);
	return ret;
}
