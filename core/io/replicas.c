/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replicas.c - every copy of every part of a tensor, against the one that is
 * read
 *
 * PIECE bytes of the tensor at a time in two buffers: one as it is read, one
 * as another replica has it.
 */
#include "core/io/read_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (UINT64_C(4) << 20)

struct pair {
	struct ck_ring_walk w;
	ck_differ_fn differ;
	void *ctx;
};

/* Stretches of bytes that differ, of one run at @at of the piece. */
static void compare_run(struct pair *p, uint32_t a, uint32_t b, uint64_t at,
			uint64_t len)
{
	const unsigned char *x = p->w.a.buf + at, *y = p->w.b.buf + at;
	uint64_t i = 0, from;

	if (!memcmp(x, y, len))
		return;
	while (i < len) {
		while (i < len && x[i] == y[i])
			i++;
		for (from = i; i < len && x[i] != y[i];)
			i++;
		if (from < i)
			p->differ(p->ctx, a, b, p->w.pos + at + from, i - from,
				  NULL);
	}
}

static void each_run(struct pair *p, const struct ck_seg *seg, uint32_t b,
		     const struct ck_err *why)
{
	struct ck_runs it;

	for (ck_runs_init(&it, seg); !it.done; ck_runs_step(&it))
		if (why)
			p->differ(p->ctx, seg->chunk, b, p->w.pos + it.dst,
				  seg->run, why);
		else
			compare_run(p, seg->chunk, b, it.dst, seg->run);
}

static int compare(struct ck_ring_walk *w, const struct ck_seg *seg,
		   struct ck_err *err)
{
	struct pair *p = (struct pair *)w;
	uint32_t c = seg->chunk;
	struct ck_err why = { 0 };

	(void)err;
	if (seg->kind == CK_SEG_UNRESOLVED)
		each_run(p, seg, c, &w->why);
	if (seg->kind != CK_SEG_COPY)
		return 0;
	if (ck_walk_alt(&w->a, seg, c, &why)) {
		each_run(p, seg, c, &why);
		return 0;
	}
	while ((c = ck_ring_next(w->a.r->in.img, seg->chunk, c)) != CK_NONE) {
		why = (struct ck_err){ 0 };
		if (ck_walk_alt(&w->b, seg, c, &why))
			each_run(p, seg, c, &why);
		else
			each_run(p, seg, c, NULL);
	}
	return 0;
}

int ck_reader_replicas(struct ck_reader *r, uint32_t t, ck_differ_fn differ,
		       void *ctx, struct ck_err *err)
{
	struct pair p = { .differ = differ, .ctx = ctx };

	return ck_ring_walk(&p.w, r, t, PIECE, compare, err);
}

int ck_ring_walk(struct ck_ring_walk *w, struct ck_reader *r, uint32_t t,
		 uint64_t piece,
		 int (*each)(struct ck_ring_walk *w, const struct ck_seg *seg,
			     struct ck_err *err),
		 struct ck_err *err)
{
	const struct ck_catalog *img = r->in.img;
	const struct ck_tensor *ten = &img->tensors[t];
	uint64_t room = CK_MIN(piece, ten->size);
	ck_auto_free unsigned char *buf = NULL;
	struct ck_seg seg;
	int ret = 0;

	if (ten->nr_all == ten->nr || !ten->size)
		return 0;
	buf = malloc(2 * room);
	w->a = (struct ck_walk){ .r = r, .t = t, .cur = &w->cur, .buf = buf };
	w->a.s = ck_scratch_mine();
	if (!buf || !w->a.s)
		return ck_no_memory(err);
	w->b = w->a;
	w->b.buf = buf + room;
	for (w->pos = 0; !ret && w->pos < ten->size; w->pos += w->a.len) {
		w->a.len = w->b.len = CK_MIN(room, ten->size - w->pos);
		ck_cursor_init(&w->cur, img, r->in.resolved, ten, w->pos,
			       w->a.len);
		ck_cursor_resolve(&w->cur, &w->why);
		while (!ret && ck_cursor_next(&w->cur, &seg))
			if (ck_ring_next(img, seg.chunk, seg.chunk) != CK_NONE)
				ret = each(w, &seg, err);
	}
	return ret;
}
