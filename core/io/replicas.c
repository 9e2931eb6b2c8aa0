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
	struct ck_reader *r;
	struct ck_walk a, b;
	struct ck_cursor cur;
	uint64_t pos; /* of the piece in the tensor */
	struct ck_err why; /* of the segment, where it is not known */
	ck_differ_fn differ;
	void *ctx;
};

/* Stretches of bytes that differ, of one run at @at of the piece. */
static void compare_run(struct pair *p, uint32_t a, uint32_t b, uint64_t at,
			uint64_t len)
{
	const unsigned char *x = p->a.buf + at, *y = p->b.buf + at;
	uint64_t i = 0, from;

	if (!memcmp(x, y, len))
		return;
	while (i < len) {
		while (i < len && x[i] == y[i])
			i++;
		for (from = i; i < len && x[i] != y[i];)
			i++;
		if (from < i)
			p->differ(p->ctx, a, b, p->pos + at + from, i - from,
				  NULL);
	}
}

static void each_run(struct pair *p, const struct ck_seg *seg, uint32_t b,
		     const struct ck_err *why)
{
	struct ck_runs it;

	for (ck_runs_init(&it, seg); !it.done; ck_runs_step(&it))
		if (why)
			p->differ(p->ctx, seg->chunk, b, p->pos + it.dst,
				  seg->run, why);
		else
			compare_run(p, seg->chunk, b, it.dst, seg->run);
}

static void compare(struct pair *p, const struct ck_seg *seg)
{
	const struct ck_chunk *chunks = p->r->in.img->chunks;
	uint32_t left = p->r->in.img->tensors[p->a.t].nr_all;
	uint32_t c = chunks[seg->chunk].next;
	struct ck_err why = { 0 };

	if (c == CK_NONE || c == seg->chunk)
		return;
	if (seg->kind == CK_SEG_UNRESOLVED)
		each_run(p, seg, seg->chunk, &p->why);
	if (seg->kind != CK_SEG_COPY)
		return;
	if (ck_walk_alt(&p->a, seg, seg->chunk, &why)) {
		each_run(p, seg, seg->chunk, &why);
		return;
	}
	for (; c != CK_NONE && c != seg->chunk && left; left--) {
		why = (struct ck_err){ 0 };
		if (ck_walk_alt(&p->b, seg, c, &why))
			each_run(p, seg, c, &why);
		else
			each_run(p, seg, c, NULL);
		c = chunks[c].next;
	}
}

int ck_reader_replicas(struct ck_reader *r, uint32_t t, ck_differ_fn differ,
		       void *ctx, struct ck_err *err)
{
	const struct ck_tensor *ten = &r->in.img->tensors[t];
	uint64_t room = CK_MIN(PIECE, ten->size);
	ck_auto_free unsigned char *buf = NULL;
	struct pair p = { .r = r, .differ = differ, .ctx = ctx };
	struct ck_seg seg;

	if (ten->nr_all == ten->nr || !ten->size)
		return 0;
	buf = malloc(2 * room);
	p.a = (struct ck_walk){ .r = r, .t = t, .cur = &p.cur, .buf = buf };
	p.a.s = ck_scratch_mine();
	if (!buf || !p.a.s)
		return ck_no_memory(err);
	p.b = p.a;
	p.b.buf = buf + room;
	for (; p.pos < ten->size; p.pos += p.a.len) {
		p.a.len = p.b.len = CK_MIN(room, ten->size - p.pos);
		ck_cursor_init(&p.cur, r->in.img, r->in.resolved, ten, p.pos,
			       p.a.len);
		ck_cursor_resolve(&p.cur, &p.why);
		while (ck_cursor_next(&p.cur, &seg))
			compare(&p, &seg);
	}
	return 0;
}
