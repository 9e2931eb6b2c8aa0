/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_once.c - slices that are written once, and those of several ranks
 *
 * Nothing that was written is written over.  Of ranks that hold the same one
 * writes it; what the others have is a digest in a journal of theirs, same-R.log,
 * which a publish compares with what was written.
 */
#include "core/slices/slices_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/cursor.h"
#include "core/geom/dtype.h"
#include "core/io/plan.h"
#include "core/root/openat_beneath.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define KIND 3
#define FLUSHED (UINT64_C(1) << 20) /* bytes at once */
#define OTHERS "differ from those that were written before"

static uint64_t bytes_of(const struct ck_slices *sl,
			 const struct ck_slice_part *of)
{
	return ck_box_volume(of->box) *
	       ck_dtype_info(sl->img.tensors[of->tensor].dtype)->size;
}

struct once {
	struct ck_slices *sl;
	const struct ck_slice_part *of;
	char *beside; /* CK_SLICES_BUFFER bytes, or NULL */
	struct ck_err *err;
};

static uint64_t differs_at(const char *a, const char *b, uint64_t len)
{
	uint64_t i = 0;

	while (i < len && a[i] == b[i])
		i++;
	return i;
}

static int compare(struct once *w, uint32_t file, uint64_t off, const char *buf,
		   uint64_t len)
{
	const struct ck_slice_plan_piece *p = &w->sl->plan.pieces[w->of->piece];
	int ret = 0;

	if (!w->beside)
		w->beside = malloc(CK_SLICES_BUFFER);
	if (!w->beside)
		return ck_no_memory(w->err);
	for (uint64_t at = 0, n; at < len && !ret; at += n) {
		n = CK_MIN(CK_SLICES_BUFFER, len - at);
		ret = ck_slices_read_at(w->sl, file, off + at, w->beside, n,
					w->err);
		if (!ret && memcmp(w->beside, buf + at, n) != 0)
			return ck_slices_refuse(
				w->sl, w->of->piece,
				off + at - p->off +
					differs_at(w->beside, buf + at, n),
				off + at - p->off + n, EBADMSG, OTHERS, w->err);
	}
	return ret;
}

static int write_run(void *ctx, uint32_t file, uint64_t off, char *buf,
		     uint64_t len)
{
	struct once *w = ctx;
	const struct ck_slice_plan_piece *p = &w->sl->plan.pieces[w->of->piece];
	uint64_t begin = off, end = off + len, from, to;
	bool first = len == bytes_of(w->sl, w->of);
	int ret = 0;

	while (off < end && !ret) {
		ck_claims_gap(w->sl->claims, file, off, end, &from, &to);
		first &= from == begin && to == end;
		ret = compare(w, file, off, buf, from - off);
		if (!ret)
			ret = ck_slices_write_at(w->sl, file, from,
						 buf + (from - off), to - from,
						 w->err);
		buf += to - off;
		off = to;
	}
	if (!ret && len >= FLUSHED)
		ck_slices_flush(w->sl, file, begin, len);
	return ret ? ret :
		     ck_slices_sum_add(w->sl, w->of->piece, begin - p->off,
				       first ? buf - len : NULL, len, w->err);
}

int ck_slice_write_once(struct ck_slices *sl, const struct ck_slice_part *of,
			const void *buf, struct ck_err *err)
{
	struct once w = { .sl = sl, .of = of, .err = err };
	struct ck_cursor cur;
	int ret;

	ck_cursor_init_box(&cur, &sl->img, NULL, &sl->img.tensors[of->tensor],
			   of->box);
	ret = ck_slices_walk(sl, &cur, (char *)buf, write_run, &w, err);
	free(w.beside);
	return ret;
}

/* ---- what another rank writes ---- */

struct body {
	uint64_t rank, hi, lo;
	uint32_t piece, tensor; /* of the plan, and of the catalog */
	uint64_t start[CK_MAX_RANK], len[CK_MAX_RANK];
};

static int nothing(void *ctx, const struct ck_journal_record *r,
		   struct ck_err *err)
{
	(void)ctx;
	(void)r;
	(void)err;
	return 0;
}

/* Our own, which an earlier try may have begun. */
static int open_own(struct ck_slices *sl, uint64_t rank, struct ck_err *err)
{
	uint64_t id = sl->plan.id;
	char name[40];
	int ret;

	snprintf(name, sizeof(name), "same-%" PRIu64 ".log", rank);
	ret = ck_journal_open(&sl->same, sl->dir, name, true, KIND, id,
			      "slices/", err);
	if (!ret)
		return ck_journal_replay(&sl->same, nothing, NULL, err);
	if (ret == -ENOENT)
		ret = ck_journal_make(&sl->same, sl->dir, name, KIND, id,
				      "slices/", err);
	return ret;
}

int ck_slice_same(struct ck_slices *sl, const struct ck_slice_part *of,
		  uint64_t rank, const void *buf, struct ck_err *err)
{
	XXH128_hash_t h = XXH3_128bits(buf, bytes_of(sl, of));
	struct body b = { .rank = rank,
			  .hi = h.high64,
			  .lo = h.low64,
			  .piece = of->piece,
			  .tensor = of->tensor };
	int ret = 0;

	memcpy(b.start, of->box->start, of->box->rank * sizeof(*b.start));
	memcpy(b.len, of->box->len, of->box->rank * sizeof(*b.len));
	ck_auto_lock(&sl->same_lock);
	if (sl->same.fd < 0)
		ret = open_own(sl, rank, err);
	return ret ? ret : ck_journal_append(&sl->same, 1, &b, sizeof(b), err);
}

/* Where the record can be of the plan: its box, inside of the piece's. */
static bool box_of(const struct ck_slices *sl, const struct body *b,
		   struct ck_box *box)
{
	const struct ck_slice_plan *p = &sl->plan;
	const struct ck_slice_plan_piece *x = &p->pieces[b->piece];
	const uint64_t *start, *len;

	if (b->piece >= p->nr_pieces || b->tensor >= p->nr_tensors ||
	    sl->to_plan[b->tensor] != x->tensor || x->flat)
		return false;
	box->rank = p->tensors[x->tensor].grid_rank;
	start = p->dims + x->dims;
	len = start + box->rank;
	for (unsigned d = 0; d < box->rank; d++) {
		box->start[d] = b->start[d];
		box->len[d] = b->len[d];
		if (b->start[d] < start[d] || b->len[d] > len[d] ||
		    b->start[d] - start[d] > len[d] - b->len[d])
			return false;
	}
	return true;
}

static int check_record(void *ctx, const struct ck_journal_record *r,
			struct ck_err *err)
{
	struct ck_slices *sl = ctx;
	const struct ck_claims_digest *known;
	struct ck_slice_part of;
	ck_auto_free char *buf = NULL;
	struct ck_box box;
	struct body b;
	XXH128_hash_t h;
	char what[120];
	int ret;

	if (r->len == sizeof(b))
		memcpy(&b, r->body, sizeof(b));
	if (r->len != sizeof(b) || !box_of(sl, &b, &box))
		return ck_fail(err, EINVAL,
			       "record %" PRIu64
			       ": expected elements of a piece of the plan",
			       r->number);
	of = (struct ck_slice_part){ b.tensor, b.piece, &box };
	known = ck_slices_told_digest(sl, b.piece);
	if (known && known->hi == b.hi && known->lo == b.lo &&
	    bytes_of(sl, &of) == sl->plan.pieces[b.piece].len)
		return 0;
	buf = malloc(bytes_of(sl, &of) + 1);
	if (!buf)
		return ck_no_memory(err);
	ret = ck_slices_read_part(sl, &of, buf, err);
	h = XXH3_128bits(buf, bytes_of(sl, &of));
	if (ret || (h.high64 == b.hi && h.low64 == b.lo))
		return ret;
	snprintf(what, sizeof(what),
		 "are other ones at rank %" PRIu64 ", in a box of %" PRIu64
		 " bytes",
		 b.rank, bytes_of(sl, &of));
	return ck_slices_refuse(sl, b.piece, 0, sl->plan.pieces[b.piece].len,
				EBADMSG, what, err);
}

static bool is_log(const char *name)
{
	size_t len = strlen(name);

	return len > 9 && !strncmp(name, "same-", 5) &&
	       !strcmp(name + len - 4, ".log");
}

static int check_log(struct ck_slices *sl, const char *name, struct ck_err *err)
{
	ck_auto_journal struct ck_journal j = { .fd = -1 };
	int ret = ck_journal_open(&j, sl->dir, name, false, KIND, sl->plan.id,
				  "slices/", err);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	return ck_journal_replay(&j, check_record, sl, err);
}

int ck_slices_check_same(struct ck_slices *sl, struct ck_err *err)
{
	ck_auto_dir DIR *d = NULL;
	const struct dirent *e;
	int ret = ck_beneath_list(sl->dir, "", &d);

	if (ret)
		return ck_fail(err, -ret, "slices: %s", strerror(-ret));
	while (!ret && (e = readdir(d)))
		if (is_log(e->d_name))
			ret = check_log(sl, e->d_name, err);
	return ret;
}
