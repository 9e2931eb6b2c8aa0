/* SPDX-License-Identifier: Apache-2.0 */
/* shard.c - positions in a box whose axes are in runs */
#include "core/geom/shard.h"

#include <string.h>

void ck_shard_whole(struct ck_shard *s, const uint64_t *shape, unsigned rank)
{
	s->box.rank = rank;
	s->nr = 0;
	for (unsigned d = 0; d < rank; d++) {
		s->box.start[d] = 0;
		s->box.len[d] = shape[d];
	}
}

/* Elements of one step along axis @d - 1. */
static uint64_t behind(const struct ck_shard *s, unsigned d)
{
	uint64_t n = 1;

	for (; d < s->box.rank; d++)
		n *= s->box.len[d];
	return n;
}

/* The run in which step @at of the axis lies; *before: steps of runs before. */
static const struct ck_shard_run *run_at(const struct ck_shard_cut *c,
					 uint64_t at, uint64_t *before)
{
	const struct ck_shard_run *r = c->run;

	for (*before = 0; at - *before >= r->len; r++)
		*before += r->len;
	return r;
}

/* One row of the innermost axis in runs. */
void ck_shard_at(const struct ck_shard *s, uint64_t at, struct ck_box *box,
		 uint64_t *skip)
{
	const struct ck_shard_cut *last;
	const struct ck_shard_run *r;
	uint64_t inner, row, before;

	*box = s->box;
	*skip = at;
	if (!s->nr)
		return;
	last = &s->cut[s->nr - 1];
	inner = behind(s, last->dim + 1);
	row = s->box.len[last->dim] * inner;
	ck_dims_coords(s->box.len, last->dim, at / row, box->start);
	for (unsigned k = 0; k + 1 < s->nr; k++) {
		uint64_t *start = &box->start[s->cut[k].dim];

		r = run_at(&s->cut[k], *start, &before);
		*start += r->start - before - s->box.start[s->cut[k].dim];
	}
	for (unsigned d = 0; d < last->dim; d++) {
		box->start[d] += s->box.start[d];
		box->len[d] = 1;
	}
	at %= row;
	r = run_at(last, at / inner, &before);
	box->start[last->dim] = r->start;
	box->len[last->dim] = r->len;
	*skip = at - before * inner;
}

unsigned ck_shard_pieces(const struct ck_shard *s)
{
	unsigned n = 1;

	for (unsigned k = 0; k < s->nr; k++)
		n *= s->cut[k].nr;
	return n;
}

void ck_shard_piece(const struct ck_shard *s, unsigned i, struct ck_box *box,
		    uint64_t *to)
{
	*box = s->box;
	memset(to, 0, s->box.rank * sizeof(*to));
	for (unsigned k = s->nr; k-- > 0; i /= s->cut[k].nr) {
		const struct ck_shard_cut *c = &s->cut[k];
		unsigned nr = i % c->nr;

		for (unsigned b = 0; b < nr; b++)
			to[c->dim] += c->run[b].len;
		box->start[c->dim] = c->run[nr].start;
		box->len[c->dim] = c->run[nr].len;
	}
}

bool ck_box_is_stretch(const struct ck_box *box, const uint64_t *shape,
		       uint64_t *first)
{
	unsigned d = 0;

	while (d < box->rank && box->len[d] == 1)
		d++;
	for (d++; d < box->rank; d++)
		if (box->len[d] != shape[d])
			return false;
	*first = ck_dims_index(shape, box->rank, box->start);
	return true;
}
