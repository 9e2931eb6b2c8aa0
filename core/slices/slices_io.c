/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_io.c - bytes of slices and of whole tensors
 *
 * A slice is one stretch of a shard.  A tensor is what the cursor says: copies
 * of a segment, of which those that follow each other in the shard are one
 * request, so that its bytes and then their claim are all of it or nothing.
 */
#include "core/slices/slices_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/cursor.h"
#include "core/io/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#define IOVS 256

/* Bytes of a shard, from or to memory. */
struct move {
	struct ck_slices *sl;
	struct ck_err *err;
	bool writes;
	bool mapped;
	const struct ck_unset *unset; /* for a map; NULL: no such value */
	uint32_t file;
	uint64_t off, len; /* collected so far */
	struct iovec iov[IOVS];
	unsigned nr;
};

static int not_written(const struct move *m, uint64_t from, uint64_t to)
{
	return ck_fail(
		m->err, EIO,
		"%s: %s: bytes %" PRIu64 " to %" PRIu64
		" were not written yet%s",
		CK_DRAFT_NAME(m->sl->draft),
		ck_slices_file_name(m->sl, m->file), from, to,
		m->mapped ? ", and cannot be through a map: what of a page is "
			    "stored could not be told" :
			    "");
}

/* All of it was written, by us or, as it may turn out, by others. */
static int check(struct move *m)
{
	struct ck_claims *c = m->sl->claims;
	uint64_t end = m->off + m->len, from, to;
	int ret;

	ck_claims_gap(c, m->file, m->off, end, &from, &to);
	if (from == to)
		return 0;
	ret = ck_claims_refresh(c, m->err);
	if (ret || m->unset)
		return ret;
	ck_claims_gap(c, m->file, m->off, end, &from, &to);
	return from == to ? 0 : not_written(m, from, to);
}

/* Bytes [from, to) of the file, which is at m->off where the memory begins. */
static void unset(const struct move *m, uint64_t from, uint64_t to)
{
	uint64_t at = m->off;

	for (unsigned i = 0; i < m->nr; at += m->iov[i++].iov_len) {
		uint64_t lo = CK_MAX(from, at);
		uint64_t hi = CK_MIN(to, at + m->iov[i].iov_len);

		if (lo < hi)
			ck_unset_fill(m->unset,
				      (char *)m->iov[i].iov_base + (lo - at),
				      hi - lo, lo);
	}
}

/* Of an element of which only a part was written nothing could be told. */
static int unset_gaps(const struct move *m)
{
	uint64_t pos = m->off, end = m->off + m->len, from;

	while (m->unset && pos < end) {
		ck_claims_gap(m->sl->claims, m->file, pos, end, &from, &pos);
		if ((from | pos) % ck_unset_size(m->unset))
			return not_written(m, from, pos);
		unset(m, from, pos);
	}
	return 0;
}

static int transfer(const struct move *m, int fd)
{
	struct iovec iov[IOVS]; /* which is changed */
	struct ck_io io = { .op = m->writes ? CK_IO_WRITE : CK_IO_READ,
			    .fd = fd,
			    .src = m->file,
			    .off = m->off,
			    .len = m->len,
			    .iov = iov,
			    .nr_iov = m->nr };

	memcpy(iov, m->iov, m->nr * sizeof(*iov));
	ck_engine_plain.run(NULL, &io, 1);
	return io.res;
}

/*
 * Bytes first, then their claim.  After a failure they are a mixture of old
 * and new, which nobody may take for written.
 */
static int write_out(struct move *m, int fd)
{
	struct ck_claims *c = m->sl->claims;
	int ret = ck_claims_begin(c, m->err);

	if (ret)
		return ret;
	ret = transfer(m, fd);
	if (!ret)
		return ck_claims_add(c, m->file, m->off, m->len, m->err);
	if (ck_claims_cut(c, m->file, m->off, m->len, NULL))
		ck_draft_poison(m->sl->draft, "a write failed, and it could "
					      "not be noted which bytes it "
					      "left");
	return ck_slices_fail(m->sl, m->file, -ret, m->err);
}

static int flush(struct move *m)
{
	struct ck_slices_fd *fd;
	int ret = m->nr && !m->writes ? check(m) : 0;

	if (!m->nr || ret)
		return ret;
	ret = ck_slices_get(m->sl, m->file, m->writes, &fd, m->err);
	if (ret == -ENOENT && m->unset) {
		unset(m, m->off, m->off + m->len);
		m->nr = 0;
		return 0;
	}
	if (ret == -ENOENT)
		return ck_slices_fail(m->sl, m->file, ESTALE, m->err);
	if (ret)
		return ret;
	ret = m->writes ? write_out(m, fd->fd) : transfer(m, fd->fd);
	ck_slices_put(m->sl, fd);
	if (!m->writes)
		ret = ret ? ck_slices_fail(m->sl, m->file, -ret, m->err) :
			    unset_gaps(m);
	m->nr = 0;
	return ret;
}

static int move(void *ctx, uint32_t file, uint64_t off, char *buf, uint64_t len)
{
	struct move *m = ctx;
	bool next = m->nr && m->nr < IOVS && m->file == file &&
		    m->off + m->len == off;
	int ret = next ? 0 : flush(m);

	if (ret)
		return ret;
	if (!next) {
		m->file = file;
		m->off = off;
		m->len = 0;
	}
	m->iov[m->nr++] = (struct iovec){ buf, len };
	m->len += len;
	return 0;
}

int ck_slices_walk(struct ck_slices *sl, struct ck_cursor *cur, char *buf,
		   ck_slices_run_fn run, void *ctx, struct ck_err *err)
{
	struct ck_seg seg;
	struct ck_runs it;
	int ret = 0;

	while (!ret && ck_cursor_next(cur, &seg)) {
		if (seg.kind != CK_SEG_COPY)
			return ck_fail(err, EIO, "%s: not possible",
				       CK_DRAFT_NAME(sl->draft));
		for (ck_runs_init(&it, &seg); !ret && !it.done;
		     ck_runs_step(&it))
			ret = run(ctx, sl->img.chunks[seg.chunk].src, it.src,
				  buf + it.dst, seg.run);
	}
	return ret;
}

static int move_any(struct move *m, struct ck_slice of, void *buf, uint64_t len,
		    uint64_t off)
{
	const struct ck_slice_plan_piece *p = &m->sl->plan.pieces[of.nr];
	const struct ck_catalog *img = &m->sl->img;
	struct ck_cursor cur;
	int ret;

	if (of.whole) {
		ck_cursor_init(&cur, img, NULL, &img->tensors[of.nr], off, len);
		ret = ck_slices_walk(m->sl, &cur, buf, move, m, m->err);
	} else {
		ret = move(m, p->file, p->off + off, buf, len);
	}
	return ret ? ret : flush(m);
}

static const struct ck_unset *unset_of(const struct ck_slices *sl,
				       struct ck_slice of)
{
	const struct ck_slice_plan *p = &sl->plan;

	return ck_unset_of(of.whole ?
				   sl->img.tensors[of.nr].dtype :
				   p->tensors[p->pieces[of.nr].tensor].dtype);
}

int ck_slice_read(struct ck_slices *sl, struct ck_slice of, void *buf,
		  uint64_t len, uint64_t off, bool mapped, struct ck_err *err)
{
	struct move m = { .sl = sl,
			  .err = err,
			  .mapped = mapped,
			  .unset = mapped ? unset_of(sl, of) : NULL };

	return len ? move_any(&m, of, buf, len, off) : 0;
}

int ck_slice_write(struct ck_slices *sl, struct ck_slice of, const void *buf,
		   uint64_t len, uint64_t off, bool mapped, struct ck_err *err)
{
	const struct ck_unset *u = mapped ? unset_of(sl, of) : NULL;
	struct move m = { .sl = sl, .err = err, .writes = true };
	size_t at = 0, nr = len;
	int ret = 0;

	while (!ret && at < len &&
	       (!u || ck_unset_next(u, buf, len, off, &at, &nr))) {
		ret = move_any(&m, of, (char *)buf + at, nr, off + at);
		at += nr;
	}
	return ret;
}

static int at(struct move *m, uint32_t file, uint64_t off, void *buf,
	      uint64_t len)
{
	int ret = len ? move(m, file, off, buf, len) : 0;

	return ret || !len ? ret : flush(m);
}

int ck_slices_write_at(struct ck_slices *sl, uint32_t file, uint64_t off,
		       const void *buf, uint64_t len, struct ck_err *err)
{
	struct move m = { .sl = sl, .err = err, .writes = true };

	return at(&m, file, off, (void *)buf, len);
}

int ck_slices_read_at(struct ck_slices *sl, uint32_t file, uint64_t off,
		      void *buf, uint64_t len, struct ck_err *err)
{
	struct move m = { .sl = sl, .err = err };

	return at(&m, file, off, buf, len);
}

int ck_slices_read_part(struct ck_slices *sl, const struct ck_slice_part *of,
			void *buf, struct ck_err *err)
{
	struct move m = { .sl = sl, .err = err };
	struct ck_cursor cur;
	int ret;

	ck_cursor_init_box(&cur, &sl->img, NULL, &sl->img.tensors[of->tensor],
			   of->box);
	ret = ck_slices_walk(sl, &cur, buf, move, &m, err);
	return ret ? ret : flush(&m);
}

void ck_slices_flush(struct ck_slices *sl, uint32_t file, uint64_t off,
		     uint64_t len)
{
	struct ck_slices_fd *fd;

	if (ck_slices_get(sl, file, true, &fd, NULL))
		return;
	sync_file_range(fd->fd, (off_t)off, (off_t)len, SYNC_FILE_RANGE_WRITE);
	ck_slices_put(sl, fd);
}

/* ---- about whole slices ---- */

uint64_t ck_slice_size(const struct ck_slices *sl, struct ck_slice of)
{
	return of.whole ? sl->img.tensors[of.nr].size :
			  sl->plan.pieces[of.nr].len;
}

/* The pieces that a slice consists of. */
static const uint32_t *pieces_of(const struct ck_slices *sl,
				 const struct ck_slice *of, uint32_t *nr)
{
	uint32_t t;

	*nr = 1;
	if (!of->whole)
		return &of->nr;
	t = sl->to_plan[of->nr];
	*nr = sl->first_of[t + 1] - sl->first_of[t];
	return sl->by_tensor + sl->first_of[t];
}

static uint64_t piece_written(struct ck_slices *sl, uint32_t piece, bool whole)
{
	const struct ck_slice_plan_piece *p = &sl->plan.pieces[piece];
	struct ck_slice_plan_runs runs;
	struct ck_slices_lack lack;

	if (!whole)
		return ck_claims_bytes(sl->claims, p->file, p->off,
				       p->off + p->len);
	ck_slice_plan_runs(&sl->plan, piece, &runs);
	ck_slices_lack(sl, piece, &lack);
	return runs.nr * runs.len - lack.bytes;
}

uint64_t ck_slice_written(struct ck_slices *sl, struct ck_slice of)
{
	uint32_t nr;
	const uint32_t *v = pieces_of(sl, &of, &nr);
	uint64_t sum = 0;

	for (uint32_t i = 0; i < nr; i++)
		sum += piece_written(sl, v[i], of.whole);
	return sum;
}

int ck_slices_any(struct ck_slices *sl, bool *any, struct ck_err *err)
{
	int ret = ck_claims_refresh(sl->claims, err);

	*any = false;
	for (uint32_t i = 0; i < sl->plan.nr_pieces && !*any; i++)
		*any = piece_written(sl, i, false);
	return ret;
}

int ck_slice_empty(struct ck_slices *sl, struct ck_slice of, struct ck_err *err)
{
	uint32_t nr;
	const uint32_t *v = pieces_of(sl, &of, &nr);
	int ret = 0;

	for (uint32_t i = 0; i < nr && !ret; i++) {
		const struct ck_slice_plan_piece *p = &sl->plan.pieces[v[i]];

		ret = ck_claims_cut(sl->claims, p->file, p->off, p->len, err);
	}
	return ret;
}

/* All that is not durable of a file. */
static int sync_file(struct ck_slices *sl, uint32_t file, struct ck_err *err)
{
	struct ck_slices_fd *fd;
	int ret = ck_slices_get(sl, file, true, &fd, err);
	bool lost;

	if (ret)
		return ret;
	ret = ck_claims_sync(sl->claims, file, fd->fd, &lost, err);
	ck_slices_put(sl, fd);
	if (lost)
		ck_draft_poison(sl->draft, err->msg);
	return ret;
}

int ck_slice_sync(struct ck_slices *sl, struct ck_slice of, struct ck_err *err)
{
	uint32_t nr, last = CK_NONE;
	const uint32_t *v = pieces_of(sl, &of, &nr);
	int ret = 0;

	/* by file, as pieces are */
	for (uint32_t i = 0; i < nr && !ret; i++) {
		uint32_t file = sl->plan.pieces[v[i]].file;

		if (file != last && ck_claims_unsafe(sl->claims, file))
			ret = sync_file(sl, file, err);
		last = file;
	}
	return ret;
}

int ck_slices_sync(struct ck_slices *sl, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t i = 0; i < sl->plan.nr_files && !ret; i++)
		if (ck_claims_unsafe(sl->claims, i))
			ret = sync_file(sl, i, err);
	return ret;
}
