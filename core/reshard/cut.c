/* SPDX-License-Identifier: Apache-2.0 */
/* cut.c - steps taken one after the other; see cut.h */
#include "core/reshard/cut.h"

#include "core/base/check.h"
#include "core/base/search.h"
#include "core/reshard/reshard.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

unsigned ck_reshard_add_axis(struct ck_reshard_cut *c, uint32_t size)
{
	uint64_t nr;

	if (!c->nr_axes)
		c->nr = 1;
	if (c->nr_axes == CK_RESHARD_AXES || !size ||
	    !ck_mul_ok(c->nr, size, &nr) || nr > CK_RESHARD_MAX_RANKS)
		return CK_RESHARD_AXES;
	c->nr = (uint32_t)nr;
	c->size[c->nr_axes] = size;
	return c->nr_axes++;
}

struct ck_reshard_step *ck_reshard_add_step(struct ck_reshard_cut *c,
					    unsigned dim, unsigned axis,
					    enum ck_lay_sizes how)
{
	struct ck_reshard_step *s;

	if (c->nr_steps == CK_RESHARD_STEPS || axis >= c->nr_axes)
		return NULL;
	s = &c->step[c->nr_steps++];
	s->dim = (uint8_t)dim;
	s->how = (uint8_t)how;
	s->nr = c->size[axis];
	s->nr_axes = 1;
	s->axis[0] = (uint8_t)axis;
	return s;
}

uint32_t ck_reshard_rank_at(const struct ck_reshard_cut *c, uint32_t at)
{
	if (!c->place)
		return c->base + at;
	for (uint32_t i = 0; i < c->nr; i++)
		if (c->place[i].at == at)
			return c->place[i].rank;
	return 0;
}

bool ck_reshard_place_of(const struct ck_reshard_cut *c, uint32_t rank,
			 uint32_t *at)
{
	uint32_t k;

	if (!c->place) {
		*at = rank - c->base;
		return rank >= c->base && *at < c->nr;
	}
	k = CK_FIRST(i, 0, c->nr, c->place[i].rank >= rank);
	if (k == c->nr || c->place[k].rank != rank)
		return false;
	*at = c->place[k].at;
	return true;
}

struct runs {
	unsigned nr;
	struct ck_shard_run v[CK_SHARD_RUNS];
};

static uint64_t runs_len(const struct runs *r)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < r->nr; i++)
		n += r->v[i].len;
	return n;
}

static int add_run(struct runs *r, uint64_t start, uint64_t len,
		   struct ck_err *err)
{
	struct ck_shard_run *last = r->nr ? &r->v[r->nr - 1] : NULL;

	if (last && (!len || last->start + last->len == start)) {
		last->len += len;
		return 0;
	}
	if (last && !last->len)
		r->nr--;
	if (r->nr == CK_SHARD_RUNS)
		return ck_fail(err, EINVAL,
			       "a rank would hold it in over %d pieces",
			       CK_SHARD_RUNS);
	r->v[r->nr++] = (struct ck_shard_run){ start, len };
	return 0;
}

/* Adds [start, start + len) of the rows of @in. */
static int add_slice(struct runs *out, const struct runs *in, uint64_t start,
		     uint64_t len, struct ck_err *err)
{
	int ret = 0;

	for (unsigned i = 0; i < in->nr && !ret; i++) {
		uint64_t all = in->v[i].len, n;
		bool last = i + 1 == in->nr;

		if (start >= all && !(last && start == all)) {
			start -= all;
			continue;
		}
		n = CK_MIN(len, all - start);
		ret = add_run(out, in->v[i].start + start, n, err);
		len -= n;
		start = 0;
		if (!len)
			break;
	}
	return ret;
}

static int part_of(const struct ck_reshard_step *s, uint64_t extent, uint64_t i,
		   uint64_t *start, uint64_t *len, struct ck_err *err)
{
	const struct ck_lay_split split = { .how = (enum ck_lay_sizes)s->how,
					    .nr = s->nr,
					    .given = s->given };

	if (s->how == CK_LAY_EVEN && extent % s->nr)
		return ck_fail(err, EINVAL,
			       "dimension %u: %" PRIu64
			       " is no multiple of %" PRIu32,
			       s->dim, extent, s->nr);
	if (s->full && extent && extent < s->nr)
		return ck_fail(err, EINVAL,
			       "dimension %u: %" PRIu64
			       " would leave some of %" PRIu32
			       " ranks without any",
			       s->dim, extent, s->nr);
	return ck_lay_part(&split, extent, i, start, len, err);
}

static uint64_t weights(const struct ck_reshard_step *s)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < CK_RESHARD_WEIGHTS; i++)
		sum += s->weight[i];
	return sum;
}

/* Block @b of @extent rows. */
static int block_of(const struct ck_reshard_step *s, uint64_t extent,
		    uint64_t b, uint64_t *start, uint64_t *len,
		    struct ck_err *err)
{
	const struct ck_lay_split split = {
		.how = (enum ck_lay_sizes)s->block_how, .nr = s->blocks
	};
	uint64_t sum = weights(s), each, before = 0;

	if (!sum && s->block_how == CK_LAY_EVEN && extent % s->blocks)
		return ck_fail(err, EINVAL,
			       "dimension %u: %" PRIu64
			       " does not make %" PRIu64 " equal blocks",
			       s->dim, extent, s->blocks);
	if (!sum)
		return ck_lay_part(&split, extent, b, start, len, err);
	if (extent % sum)
		return ck_fail(err, EINVAL,
			       "dimension %u: %" PRIu64
			       " does not make blocks of %" PRIu64 " shares",
			       s->dim, extent, sum);
	each = extent / sum;
	for (uint64_t i = 0; i < b; i++)
		before += s->weight[i];
	*start = before * each;
	*len = s->weight[b] * each;
	return 0;
}

static int take_step(const struct ck_reshard_step *s, uint64_t i,
		     const struct runs *in, struct runs *out,
		     struct ck_err *err)
{
	uint64_t all = runs_len(in), start, len, at, n;
	int ret;

	out->nr = 0;
	if (!s->blocks) {
		ret = part_of(s, all, i, &start, &len, err);
		return ret ? ret : add_slice(out, in, start, len, err);
	}
	if (s->blocks > CK_SHARD_RUNS)
		return ck_fail(err, EINVAL, "over %d blocks", CK_SHARD_RUNS);
	for (uint64_t b = 0; b < s->blocks; b++) {
		ret = block_of(s, all, b, &start, &len, err);
		if (!ret)
			ret = part_of(s, len, i, &at, &n, err);
		if (!ret)
			ret = add_slice(out, in, start + at, n, err);
		if (ret)
			return ret;
	}
	return 0;
}

/* Where axis @dim is in the cuts, or would be. */
static unsigned cut_along(const struct ck_shard *s, unsigned dim)
{
	unsigned k = 0;

	while (k < s->nr && s->cut[k].dim < dim)
		k++;
	return k;
}

static void load_runs(const struct ck_shard *s, unsigned dim, struct runs *r)
{
	unsigned k = cut_along(s, dim);

	if (k < s->nr && s->cut[k].dim == dim) {
		r->nr = s->cut[k].nr;
		memcpy(r->v, s->cut[k].run, r->nr * sizeof(r->v[0]));
		return;
	}
	r->nr = 1;
	r->v[0] = (struct ck_shard_run){ s->box.start[dim], s->box.len[dim] };
}

static int store_runs(struct ck_shard *s, unsigned dim, const struct runs *r,
		      struct ck_err *err)
{
	unsigned k = cut_along(s, dim), old, now = r->nr > 1;

	old = k < s->nr && s->cut[k].dim == dim;
	if (now > old && s->nr == CK_SHARD_CUTS)
		return ck_fail(err, EINVAL,
			       "over %d dimensions would be in pieces",
			       CK_SHARD_CUTS);
	memmove(&s->cut[k + now], &s->cut[k + old],
		(s->nr - k - old) * sizeof(s->cut[0]));
	s->nr += now - old;
	if (now) {
		s->cut[k].dim = dim;
		s->cut[k].nr = r->nr;
		memcpy(s->cut[k].run, r->v, r->nr * sizeof(r->v[0]));
	}
	s->box.start[dim] = r->v[0].start;
	s->box.len[dim] = runs_len(r);
	if (ck_shard_pieces(s) > CK_SHARD_PIECES)
		return ck_fail(err, EINVAL,
			       "a rank would hold it in over %d pieces",
			       CK_SHARD_PIECES);
	return 0;
}

static uint64_t part_number(const struct ck_reshard_cut *c,
			    const struct ck_reshard_step *s,
			    const uint64_t *coord)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < s->nr_axes; i++)
		n = n * c->size[s->axis[i]] + coord[s->axis[i]];
	return n % s->nr;
}

int ck_reshard_cut_at(const struct ck_reshard_cut *c, uint32_t at,
		      const uint64_t *shape, unsigned rank,
		      struct ck_shard *out, bool *zeros, struct ck_err *err)
{
	uint64_t coord[CK_RESHARD_AXES];
	struct runs in, left;
	int ret = 0;

	*zeros = false;
	for (unsigned i = c->nr_axes; i-- > 0; at /= c->size[i]) {
		coord[i] = at % c->size[i];
		if (coord[i] && c->partial >> i & 1)
			*zeros = true;
	}
	ck_shard_whole(out, shape, rank);
	for (unsigned i = 0; i < c->nr_steps && !ret; i++) {
		const struct ck_reshard_step *s = &c->step[i];

		if (s->dim >= rank)
			return ck_fail(err, EINVAL,
				       "it has %u dimensions, and dimension %u "
				       "is to be cut",
				       rank, s->dim);
		load_runs(out, s->dim, &in);
		ret = take_step(s, part_number(c, s, coord), &in, &left, err);
		if (!ret)
			ret = store_runs(out, s->dim, &left, err);
	}
	return ret;
}
