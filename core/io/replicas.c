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

struct twins {
	struct ck_reader *r;
	struct ck_walk a, b;
	struct ck_cursor cur;
	uint64_t pos; /* of the piece in the tensor */
	ck_differ_fn differ;
	void *ctx;
};

/* Stretches of bytes that differ, of one run at @at of the piece. */
static void compare_run(struct twins *tw, uint32_t a, uint32_t b, uint64_t at,
			uint64_t len)
{
	const unsigned char *x = tw->a.buf + at, *y = tw->b.buf + at;
	uint64_t i = 0, from;

	if (!memcmp(x, y, len))
		return;
	while (i < len) {
		while (i < len && x[i] == y[i])
			i++;
		for (from = i; i < len && x[i] != y[i];)
			i++;
		if (from < i)
			tw->differ(tw->ctx, a, b, tw->pos + at + from, i - from,
				   NULL);
	}
}

static void each_run(struct twins *tw, const struct ck_seg *seg, uint32_t b,
		     const struct ck_err *why)
{
	struct ck_runs it;

	for (ck_runs_init(&it, seg); !it.done; ck_runs_step(&it))
		if (why)
			tw->differ(tw->ctx, seg->chunk, b, tw->pos + it.dst,
				   seg->run, why);
		else
			compare_run(tw, seg->chunk, b, it.dst, seg->run);
}

static void compare(struct twins *tw, const struct ck_seg *seg)
{
	const struct ck_chunk *chunks = tw->r->in.img->chunks;
	uint32_t left = tw->r->in.img->tensors[tw->a.t].nr_all;
	uint32_t c = chunks[seg->chunk].next;
	struct ck_err why = { 0 };

	if (seg->kind != CK_SEG_COPY || c == CK_NONE || c == seg->chunk)
		return;
	if (ck_walk_alt(&tw->a, seg, seg->chunk, &why)) {
		each_run(tw, seg, seg->chunk, &why);
		return;
	}
	for (; c != CK_NONE && c != seg->chunk && left; left--) {
		why = (struct ck_err){ 0 };
		if (ck_walk_alt(&tw->b, seg, c, &why))
			each_run(tw, seg, c, &why);
		else
			each_run(tw, seg, c, NULL);
		c = chunks[c].next;
	}
}

int ck_reader_replicas(struct ck_reader *r, uint32_t t, ck_differ_fn differ,
		       void *ctx, struct ck_err *err)
{
	const struct ck_tensor *ten = &r->in.img->tensors[t];
	uint64_t room = CK_MIN(PIECE, ten->size);
	ck_auto_free unsigned char *buf = NULL;
	struct twins tw = { .r = r, .differ = differ, .ctx = ctx };
	struct ck_seg seg;

	if (ten->nr_all == ten->nr || !ten->size)
		return 0;
	buf = malloc(2 * room);
	tw.a = (struct ck_walk){ .r = r, .t = t, .cur = &tw.cur, .buf = buf };
	tw.a.s = ck_scratch_mine();
	if (!buf || !tw.a.s)
		return ck_fail(err, ENOMEM, "reader: no memory");
	tw.b = tw.a;
	tw.b.buf = buf + room;
	for (; tw.pos < ten->size; tw.pos += tw.a.len) {
		tw.a.len = tw.b.len = CK_MIN(room, ten->size - tw.pos);
		ck_cursor_init(&tw.cur, r->in.img, r->in.resolved, ten, tw.pos,
			       tw.a.len);
		while (ck_cursor_next(&tw.cur, &seg))
			compare(&tw, &seg);
	}
	return 0;
}
