/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/geom/random_tensor.h"

#include "core/base/check.h"
#include "core/geom/cursor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct leaf {
	uint64_t start[16], len[16], flat[2];
	bool is_flat;
};

uint64_t rt_rnd(struct rt *r, uint64_t n)
{
	uint64_t high = (uint64_t)rand_r(&r->seed);

	return n ? (high << 20 ^ (uint64_t)rand_r(&r->seed)) % n : 0;
}

static bool one_in(struct rt *r, uint64_t n)
{
	return rt_rnd(r, n) == 0;
}

static void make_shape(struct rt *r)
{
	static const uint64_t sizes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 12, 24, 30 };
	uint64_t most = one_in(r, 5) ? RT_MAX_ELEMS : 400;

	r->rank = r->tall ? 6 : (unsigned)rt_rnd(r, 7);
	r->volume = 1;
	for (unsigned d = 0; d < r->rank && r->tall; d++)
		r->volume *= r->shape[d] = one_in(r, 4) ? 3 : 4;
	for (unsigned d = 0; d < r->rank && !r->tall; d++) {
		uint64_t n = sizes[rt_rnd(r, CK_ARRAY_LEN(sizes))];

		r->shape[d] = r->volume * n <= most ? n : 1 + rt_rnd(r, 2);
		if (r->volume * r->shape[d] > most)
			r->shape[d] = 1;
		if (one_in(r, 60))
			r->shape[d] = 0;
		r->volume *= r->shape[d];
	}
}

/* Splits axes into factors at random, and puts in axes of length 1. */
static void make_grid(struct rt *r)
{
	unsigned budget = r->tall || one_in(r, 2) ? 10 : 0;

	r->grid_rank = 0;
	for (unsigned d = 0; d < r->rank; d++) {
		uint64_t left = r->shape[d];

		for (uint64_t f = 2; f < left && budget; f++) {
			if (left % f || (!r->tall && one_in(r, 2)))
				continue;
			r->grid[r->grid_rank++] = f;
			left /= f;
			budget--;
			f = 1;
		}
		r->grid[r->grid_rank++] = left;
		if (budget && one_in(r, 6)) {
			r->grid[r->grid_rank++] = 1;
			budget--;
		}
	}
}

/* Cuts a random leaf in two, unevenly, sometimes leaving one of them empty. */
static void split(struct rt *r, struct leaf *v, unsigned *nr)
{
	struct leaf *a = &v[rt_rnd(r, *nr)], *b = &v[*nr];
	unsigned d;
	uint64_t cut;

	if (r->grid_rank == 0)
		return;
	d = (unsigned)rt_rnd(r, r->grid_rank);
	if (a->len[d] < 2 && !one_in(r, 30))
		return;
	cut = one_in(r, 30) ? 0 : 1 + rt_rnd(r, a->len[d] - 1);
	if (cut > a->len[d])
		return;
	*b = *a;
	b->start[d] += cut;
	b->len[d] -= cut;
	a->len[d] = cut;
	++*nr;
}

/* Equal pieces along one axis or two, as trainers make them. */
static void split_evenly(struct rt *r, struct leaf *v, unsigned *nr)
{
	unsigned d = (unsigned)rt_rnd(r, r->grid_rank);
	unsigned had = *nr;
	uint64_t n = r->grid_rank ? v[0].len[d] : 1, parts = 1;

	for (uint64_t p = 2; p <= n && p * had < 100; p++)
		if (n % p == 0 && one_in(r, 2))
			parts = p;
	for (unsigned i = 0; i < had; i++) {
		if (parts == 1)
			break;
		v[i].len[d] /= parts;
		for (uint64_t p = 1; p < parts; p++) {
			v[*nr] = v[i];
			v[(*nr)++].start[d] += p * v[i].len[d];
		}
	}
}

static uint64_t volume_of(const struct rt *r, const uint64_t *len)
{
	uint64_t volume = 1;

	for (unsigned d = 0; d < r->grid_rank; d++)
		volume *= len[d];
	return volume;
}

/* A leaf becomes some stretches of its row-major order. */
static void flatten(struct rt *r, struct leaf *v, unsigned i, unsigned *nr)
{
	uint64_t volume = volume_of(r, v[i].len);
	unsigned parts = 1 + (unsigned)rt_rnd(r, 5);
	uint64_t at = 0;

	for (unsigned p = 0; p < parts; p++) {
		struct leaf *l = p ? &v[(*nr)++] : &v[i];

		if (p)
			*l = v[i];
		l->is_flat = true;
		l->flat[0] = at;
		at += rt_rnd(r, volume - at + 1);
		if (p + 1 == parts)
			at = volume;
		l->flat[1] = at;
	}
}

static unsigned make_leaves(struct rt *r, struct leaf *v)
{
	unsigned nr = 1, cuts = (unsigned)rt_rnd(r, one_in(r, 4) ? 50 : 8), had;

	if (r->tall)
		cuts = 1;
	memset(v[0].start, 0, sizeof(v[0].start));
	memcpy(v[0].len, r->grid, sizeof(v[0].len));
	v[0].is_flat = false;
	if (!r->tall && one_in(r, 2)) {
		split_evenly(r, v, &nr);
		if (one_in(r, 2))
			split_evenly(r, v, &nr);
	} else {
		while (cuts--)
			split(r, v, &nr);
	}
	had = nr;
	for (unsigned i = 0; i < had; i++)
		if (one_in(r, had > 20 ? 20 : 4))
			flatten(r, v, i, &nr);
	return nr;
}

/* Random order of axes, padding, direction, and axes that are not there. */
static void make_strides(struct rt *r, const struct leaf *l, int64_t *stride,
			 uint64_t *first, uint64_t *span)
{
	unsigned order[16], n = r->grid_rank;
	bool shuffled = r->tall || one_in(r, 2), padded = one_in(r, 3);
	int64_t step = 1;

	for (unsigned d = 0; d < n; d++)
		order[d] = d;
	for (unsigned d = 0; d < n && shuffled; d++) {
		unsigned e = (unsigned)rt_rnd(r, n), swap = order[d];

		order[d] = order[e];
		order[e] = swap;
	}
	*first = 0;
	*span = 1;
	for (unsigned i = n; i-- > 0;) {
		unsigned d = order[i];
		uint64_t full = l->len[d] + (padded ? rt_rnd(r, 3) : 0);
		uint64_t way = (uint64_t)step * (l->len[d] ? l->len[d] - 1 : 0);

		stride[d] = one_in(r, 25) ? 0 : step;
		if (stride[d] && one_in(r, 8)) {
			stride[d] = -step;
			*first += way;
		}
		if (stride[d])
			*span += way;
		step *= (int64_t)(full ? full : 1);
	}
}

/* The reference: element by element, by the definition of each layout. */
static void fill_addr(struct rt *r, struct rt_chunk *c, const struct leaf *l,
		      const int64_t *stride, uint64_t off)
{
	c->addr = malloc((r->volume + 1) * sizeof(*c->addr));
	for (uint64_t e = 0; e < r->volume; e++) {
		uint64_t left = e, place = 0, row = 1;
		int64_t dist = 0;
		bool inside = true;

		for (unsigned d = r->grid_rank; d-- > 0;) {
			uint64_t at = left % r->grid[d];

			left /= r->grid[d];
			inside = inside && at >= l->start[d] &&
				 at - l->start[d] < l->len[d];
			at -= l->start[d];
			place += at * row;
			row *= l->len[d];
			dist += (int64_t)at * stride[d];
		}
		c->addr[e] = RT_NOWHERE;
		if (inside && !l->is_flat)
			c->addr[e] = off + (uint64_t)(dist * (int64_t)r->elem);
		else if (inside && place >= l->flat[0] && place < l->flat[1])
			c->addr[e] = off + (place - l->flat[0]) * r->elem;
	}
}

static uint8_t random_state(struct rt *r)
{
	if (one_in(r, 15))
		return CK_MISSING;
	/* Unrolled segments are judged together; see cursor.h. */
	return r->grid_rank <= CK_SEG_AXES && one_in(r, 8) ? CK_TORN : CK_OK;
}

/* What a resolver would say; sometimes it has said so already. */
static void make_deferred(struct rt *r, struct rt_chunk *c, uint32_t chunk)
{
	if (one_in(r, 4))
		c->place = (struct ck_place){ .err = EBADMSG };
	if (one_in(r, 2))
		return;
	if (c->place.err)
		ck_resolved_put_bad(r->resolved, chunk, c->place.err);
	else
		ck_resolved_put(r->resolved, chunk, &c->place, r->grid_rank);
}

static uint32_t add_chunk(struct rt *r, const struct leaf *l, uint32_t cell)
{
	struct rt_chunk *c = &r->c[r->nr_all++];
	uint64_t first = 0, span, off = r->elem * rt_rnd(r, 9) + rt_rnd(r, 3);
	bool dense = l->is_flat || one_in(r, 2);
	struct ik_chunk in = { .rank = r->grid_rank,
			       .start = l->start,
			       .len = l->len,
			       .state = random_state(r),
			       .xform = one_in(r, 6) ? CK_XF_BYTESWAP : 0,
			       .op = one_in(r, 12) ? CK_OP_ADD : CK_OP_SET };
	uint64_t row = 1, torn = 0;

	make_strides(r, l, c->stride, &first, &span);
	for (unsigned d = r->grid_rank; dense && d-- > 0; row *= l->len[d])
		c->stride[d] = (int64_t)row;
	if (dense) {
		first = 0;
		span = l->is_flat ? l->flat[1] - l->flat[0] : row;
	}
	in.off = off + first * r->elem;
	c->span = off + span * r->elem;
	c->cell = cell;
	fill_addr(r, c, l, c->stride, in.off);
	in.flat = l->is_flat ? l->flat : NULL;
	in.stride = dense && one_in(r, 2) ? NULL : c->stride;
	c->deferred = one_in(r, 6);
	c->place = (struct ck_place){ .off = in.off,
				      .stride = in.stride ? c->stride : NULL,
				      .xform = one_in(r, 3) ? CK_XF_NEG : 0 };
	if (c->deferred) {
		in.off = 5;
		in.item_len = 100;
	}
	if (in.state == CK_TORN)
		torn = rt_rnd(r, c->span);
	in.src = ik_src(&r->kit, CK_SRC_FILE, "f", c->span - torn);
	return ik_chunk(&r->kit, &in);
}

static void make_chunks(struct rt *r, const struct leaf *v, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		add_chunk(r, &v[i], i);
	r->nr = nr;
	for (unsigned i = 0; i < nr; i++) {
		uint32_t ring[4] = { i };
		unsigned members = 1;

		while (members < 4 && one_in(r, 4) && r->nr_all < RT_MAX_CHUNKS)
			ring[members++] = add_chunk(r, &v[i], i);
		ik_ring(&r->kit, ring, members);
	}
}

/* The index moves cells; the reference's table moves with them. */
static void follow_order(struct rt *r)
{
	struct rt_chunk *old = malloc(r->nr_all * sizeof(*old));
	uint32_t *to = malloc(r->nr_all * sizeof(*to));

	memcpy(old, r->c, r->nr_all * sizeof(*old));
	for (unsigned i = 0; i < r->nr; i++) {
		/* Each chunk has a source of its own: that identifies it. */
		unsigned was = r->kit.chunks.v[i].src;

		r->c[i] = old[was];
		to[was] = i;
	}
	for (unsigned i = 0; i < r->nr_all; i++) {
		r->c[i].cell = to[r->c[i].cell];
		if (r->c[i].place.stride)
			r->c[i].place.stride = r->c[i].stride;
	}
	free(old);
	free(to);
}

static uint64_t note_cells(struct rt *r)
{
	uint64_t covered = 0;

	r->cell_of = malloc((r->volume + 1) * sizeof(*r->cell_of));
	for (uint64_t e = 0; e < r->volume; e++) {
		r->cell_of[e] = -1;
		for (unsigned i = 0; i < r->nr; i++)
			if (r->c[i].addr[e] != RT_NOWHERE)
				r->cell_of[e] = (int32_t)i;
		covered += r->cell_of[e] >= 0;
	}
	return covered;
}

void rt_make(struct rt *r, unsigned seed)
{
	static const enum ck_dtype dtypes[] = { CK_DT_U8, CK_DT_BF16, CK_DT_F32,
						CK_DT_I64, CK_DT_C128 };
	static struct leaf leaves[RT_MAX_CHUNKS];
	struct ik_tensor t = { 0 };
	unsigned nr;
	uint32_t tensor;

	*r = (struct rt){ .seed = seed };
	r->tall = one_in(r, 40);
	r->dtype = dtypes[rt_rnd(r, CK_ARRAY_LEN(dtypes))];
	r->elem = ck_dtype_info(r->dtype)->size;
	make_shape(r);
	make_grid(r);
	nr = make_leaves(r, leaves);
	if (nr > 1 && one_in(r, 3)) { /* a hole */
		nr--;
		leaves[rt_rnd(r, nr + 1)] = leaves[nr];
	}
	make_chunks(r, leaves, nr);
	t = (struct ik_tensor){ .dtype = r->dtype,
				.rank = r->rank,
				.shape = r->shape,
				.grid = r->grid,
				.grid_rank = r->grid_rank,
				.nr = r->nr,
				.nr_all = r->nr_all };
	tensor = ik_tensor(&r->kit, &t);
	ik_index(&r->kit, tensor);
	follow_order(r);
	r->kit.tensors.v[0].covered = note_cells(r);
	r->img = ik_image(&r->kit);
	r->resolved = ck_resolved_new(r->nr_all);
	for (unsigned i = 0; i < r->nr_all; i++)
		if (r->c[i].deferred)
			make_deferred(r, &r->c[i], i);
}

void rt_free(struct rt *r)
{
	for (unsigned i = 0; i < r->nr_all; i++)
		free(r->c[i].addr);
	free(r->cell_of);
	ck_resolved_free(r->resolved);
	ik_free(&r->kit);
}
