/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mend.c - replicas that differ, made alike
 *
 * PIECE bytes of the tensor at a time: a segment as each member of its ring has
 * it, one after another, and a mask of the bytes that are not the same in all.
 * Stretches of these are decided one by one, and nothing else is written, so
 * that no byte is which has no replica.
 */
#include "core/io/read_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (UINT64_C(1) << 20)
#define GAP 64 /* bytes between what differs that are written with it */

struct mend {
	struct ck_ring_walk w; /* a: what counts; b: another member */
	const struct ck_mend *in;
	unsigned char *mask;
	uint32_t has_a, has_b; /* whose bytes of the segment are there */
};

/* The member after @at of the ring that @seg is of. */
static uint32_t next(const struct mend *m, const struct ck_seg *seg,
		     uint32_t at)
{
	return ck_ring_next(m->w.a.r->in.img, seg->chunk, at);
}

/* The elements of @seg as @chunk has them; *has is whose are there. */
static int load(struct ck_walk *w, uint32_t *has, const struct ck_seg *seg,
		uint32_t chunk, struct ck_err *err)
{
	int ret = 0;

	if (*has == chunk)
		return 0;
	*has = CK_NONE;
	ret = ck_walk_alt(w, seg, chunk, err);
	if (!ret)
		*has = chunk;
	return ret;
}

/* Where a and b differ; whether they do. */
static bool mark(struct mend *m, const struct ck_seg *seg)
{
	struct ck_runs it;
	bool any = false;

	for (ck_runs_init(&it, seg); !it.done; ck_runs_step(&it)) {
		const unsigned char *x = m->w.a.buf + it.dst;
		const unsigned char *y = m->w.b.buf + it.dst;

		if (!memcmp(x, y, seg->run))
			continue;
		any = true;
		for (uint64_t i = 0; i < seg->run; i++)
			m->mask[it.dst + i] |= x[i] != y[i];
	}
	return any;
}

/* Bytes [at, at + len) of the piece: of all that count the same, into a. */
static int choose(struct mend *m, const struct ck_seg *seg, uint64_t at,
		  uint64_t len, unsigned *nr, bool *agree, struct ck_err *err)
{
	const uint32_t t = m->w.a.t;
	int ret = 0;

	*nr = 0;
	*agree = true;
	for (uint32_t c = seg->chunk; !ret && c != CK_NONE;
	     c = next(m, seg, c)) {
		if (!m->in->counts(m->in->ctx, t, c, m->w.pos + at, len))
			continue;
		ret = *nr ? load(&m->w.b, &m->has_b, seg, c, err) :
			    load(&m->w.a, &m->has_a, seg, c, err);
		if (!ret && (*nr)++)
			*agree = *agree &&
				 !memcmp(m->w.a.buf + at, m->w.b.buf + at, len);
	}
	return ret;
}

static int stretch(struct mend *m, const struct ck_seg *seg, uint64_t at,
		   uint64_t len, struct ck_err *err)
{
	bool agree;
	unsigned nr;
	int ret = choose(m, seg, at, len, &nr, &agree, err);

	if (ret)
		return ret;
	if (!nr || !agree)
		m->in->undecided(m->in->ctx, m->w.a.t, m->w.pos + at, len, nr);
	else if (m->in->put)
		ret = m->in->put(m->in->ctx, m->w.a.t, m->w.a.buf + at, len,
				 m->w.pos + at, err);
	return ret;
}

/* Whole elements from the first to the last that differs, up to a gap. */
static int each_stretch(struct mend *m, const struct ck_seg *seg, uint64_t at,
			struct ck_err *err)
{
	const unsigned char *mask = m->mask + at;
	uint64_t i = 0;
	int ret = 0;

	while (!ret && i < seg->run) {
		const unsigned char *hit = memchr(mask + i, 1, seg->run - i);
		uint64_t from, end, elem = seg->elem;

		if (!hit)
			break;
		from = (uint64_t)(hit - mask);
		for (i = end = from + 1; i < seg->run && i < end + GAP; i++)
			if (mask[i])
				end = i + 1;
		from -= CK_MIN(from, (m->w.pos + at + from) % elem);
		end += elem - 1 - (m->w.pos + at + end + elem - 1) % elem;
		end = CK_MIN(end, seg->run);
		i = end;
		ret = stretch(m, seg, at + from, end - from, err);
	}
	return ret;
}

static int mend_seg(struct ck_ring_walk *w, const struct ck_seg *seg,
		    struct ck_err *err)
{
	struct mend *m = (struct mend *)w;
	uint32_t c = seg->chunk;
	struct ck_runs it;
	bool any = false;
	int ret;

	if (seg->kind == CK_SEG_UNRESOLVED)
		return ck_fail_as(err, &w->why);
	if (seg->kind != CK_SEG_COPY)
		return 0;
	m->has_a = m->has_b = CK_NONE;
	for (ck_runs_init(&it, seg); !it.done; ck_runs_step(&it))
		memset(m->mask + it.dst, 0, seg->run);
	ret = load(&w->a, &m->has_a, seg, c, err);
	while (!ret && (c = next(m, seg, c)) != CK_NONE) {
		ret = load(&w->b, &m->has_b, seg, c, err);
		if (!ret && mark(m, seg))
			any = true;
	}
	if (ret || !any)
		return ret;
	for (ck_runs_init(&it, seg); !it.done && !ret; ck_runs_step(&it))
		ret = each_stretch(m, seg, it.dst, err);
	return ret;
}

int ck_reader_mend(struct ck_reader *r, uint32_t t, const struct ck_mend *mend,
		   struct ck_err *err)
{
	ck_auto_free unsigned char *mask = malloc(PIECE);
	struct mend m = { .in = mend, .mask = mask };

	return mask ? ck_ring_walk(&m.w, r, t, PIECE, mend_seg, err) :
		      ck_no_memory(err);
}
