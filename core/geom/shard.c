/* SPDX-License-Identifier: Apache-2.0 */
/* shard.c - positions in a box whose one axis is in runs */
#include "core/geom/shard.h"

#include <string.h>

void ck_shard_whole(struct ck_shard *s, const uint64_t *shape, unsigned rank)
{
	s->box.rank = rank;
	s->dim = 0;
	s->nr = rank > 0;
	for (unsigned d = 0; d < rank; d++) {
		s->box.start[d] = 0;
		s->box.len[d] = shape[d];
	}
	if (rank)
		s->run[0] = (struct ck_shard_run){ 0, shape[0] };
}

/* Elements of one step along axis @d - 1. */
static uint64_t behind(const struct ck_shard *s, unsigned d)
{
	uint64_t n = 1;

	for (; d < s->box.rank; d++)
		n *= s->box.len[d];
	return n;
}

void ck_shard_at(const struct ck_shard *s, uint64_t at, struct ck_box *box,
		 uint64_t *skip)
{
	uint64_t inner, row, before = 0;
	unsigned i = 0;

	*box = s->box;
	*skip = at;
	if (s->nr <= 1) {
		if (s->nr)
			box->start[s->dim] = s->run[0].start;
		return;
	}
	inner = behind(s, s->dim + 1);
	row = s->box.len[s->dim] * inner;
	ck_dims_coords(s->box.len, s->dim, at / row, box->start);
	for (unsigned d = 0; d < s->dim; d++) {
		box->start[d] += s->box.start[d];
		box->len[d] = 1;
	}
	at %= row;
	while (at - before >= s->run[i].len * inner)
		before += s->run[i++].len * inner;
	box->start[s->dim] = s->run[i].start;
	box->len[s->dim] = s->run[i].len;
	*skip = at - before;
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
