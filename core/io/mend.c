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
	const struct ck_mend *in;
	struct ck_reader *r;
	struct ck_walk a, b; /* what counts; another member */
	struct ck_cursor cur;
	unsigned char *mask;
	uint64_t pos; /* of the piece in the tensor */
	struct ck_err why; /* of the segment, where it is not known */
	uint32_t has_a, has_b; /* whose bytes of the segment are there */
};

static const struct ck_chunk *chunks(const struct mend *m)
{
	return m->r->in.img->chunks;
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
		const unsigned char *x = m->a.buf + it.dst;
		const unsigned char *y = m->b.buf + it.dst;

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
	uint32_t left = m->r->in.img->tensors[m->a.t].nr_all;
	uint32_t c = seg->chunk;
	int ret = 0;

	*nr = 0;
	*agree = true;
	do {
		if (m->in->counts(m->in->ctx, m->a.t, c, m->pos + at, len)) {
			ret = *nr ? load(&m->b, &m->has_b, seg, c, err) :
				    load(&m->a, &m->has_a, seg, c, err);
			if (!ret && (*nr)++)
				*agree = *agree && !memcmp(m->a.buf + at,
							   m->b.buf + at, len);
		}
		c = chunks(m)[c].next;
	} while (!ret && c != CK_NONE && c != seg->chunk && left--);
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
		m->in->undecided(m->in->ctx, m->a.t, m->pos + at, len, nr);
	else if (m->in->put)
		ret = m->in->put(m->in->ctx, m->a.t, m->a.buf + at, len,
				 m->pos + at, err);
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
		from -= CK_MIN(from, (m->pos + at + from) % elem);
		end += elem - 1 - (m->pos + at + end + elem - 1) % elem;
		end = CK_MIN(end, seg->run);
		i = end;
		ret = stretch(m, seg, at + from, end - from, err);
	}
	return ret;
}

static int mend_seg(struct mend *m, const struct ck_seg *seg,
		    struct ck_err *err)
{
	uint32_t left = m->r->in.img->tensors[m->a.t].nr_all;
	uint32_t c = chunks(m)[seg->chunk].next;
	struct ck_runs it;
	bool any = false;
	int ret;

	if (c == CK_NONE || c == seg->chunk)
		return 0;
	if (seg->kind == CK_SEG_UNRESOLVED)
		return ck_fail_as(err, &m->why);
	if (seg->kind != CK_SEG_COPY)
		return 0;
	m->has_a = m->has_b = CK_NONE;
	for (ck_runs_init(&it, seg); !it.done; ck_runs_step(&it))
		memset(m->mask + it.dst, 0, seg->run);
	ret = load(&m->a, &m->has_a, seg, seg->chunk, err);
	for (; !ret && c != CK_NONE && c != seg->chunk && left--;
	     c = chunks(m)[c].next) {
		ret = load(&m->b, &m->has_b, seg, c, err);
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
	const struct ck_tensor *ten = &r->in.img->tensors[t];
	uint64_t room = CK_MIN(PIECE, ten->size);
	ck_auto_free unsigned char *buf = NULL;
	struct mend m = { .in = mend, .r = r };
	struct ck_seg seg;
	int ret = 0;

	if (ten->nr_all == ten->nr || !ten->size)
		return 0;
	buf = malloc(3 * room);
	m.a = (struct ck_walk){ .r = r, .t = t, .cur = &m.cur, .buf = buf };
	m.a.s = ck_scratch_mine();
	if (!buf || !m.a.s)
		return ck_no_memory(err);
	m.b = m.a;
	m.b.buf = buf + room;
	m.mask = buf + 2 * room;
	for (; !ret && m.pos < ten->size; m.pos += m.a.len) {
		m.a.len = m.b.len = CK_MIN(room, ten->size - m.pos);
		ck_cursor_init(&m.cur, r->in.img, r->in.resolved, ten, m.pos,
			       m.a.len);
		ck_cursor_resolve(&m.cur, &m.why);
		while (!ret && ck_cursor_next(&m.cur, &seg))
			ret = mend_seg(&m, &seg, err);
	}
	return ret;
}
