/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cut.c - from stretches of a shard to boxes of the whole tensor
 */
#include "core/assemble/cut.h"

#include "core/base/check.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Boxes that a piece may fall into, where the shard keeps it scattered. */
#define MAX_RUNS (UINT64_C(1) << 20)

void ck_cut_free(struct ck_cut *c)
{
	free(c->pieces.v);
	*c = (struct ck_cut){ 0 };
}

static int add_piece(struct ck_cut *c, struct ck_cut_piece **out,
		     struct ck_err *err)
{
	*out = ck_vec_push(&c->pieces);
	if (!*out)
		return ck_no_memory(err);
	**out = (struct ck_cut_piece){ 0 };
	memcpy((*out)->len, c->shard, c->rank * sizeof(*c->shard));
	return 0;
}

int ck_cut_whole(struct ck_cut *c, const uint64_t *shape, unsigned rank,
		 struct ck_err *err)
{
	struct ck_cut_piece *p;
	uint64_t volume;

	*c = (struct ck_cut){ .rank = rank };
	if (!ck_dims_volume(shape, rank, &volume))
		return ck_fail(err, EINVAL,
			       "its shape has 2^62 elements or more");
	memcpy(c->whole, shape, rank * sizeof(*shape));
	memcpy(c->shard, shape, rank * sizeof(*shape));
	return add_piece(c, &p, err);
}

/* Whether the shard can be what a step leaves. */
static int check_step(const struct ck_mesh_step *s, const uint64_t *shard,
		      unsigned rank, struct ck_err *err)
{
	uint64_t mine = 0;

	if (s->dim >= rank)
		return ck_fail(err, EINVAL,
			       "it is split along axis %u, and has %u", s->dim,
			       rank);
	if (s->blocks && !s->weight[0] && shard[s->dim] % s->blocks)
		return ck_fail(err, EINVAL,
			       "%" PRIu64 " of axis %u are not %" PRIu64
			       " equal blocks",
			       shard[s->dim], s->dim, s->blocks);
	if (!s->weight[0])
		return 0;
	for (uint64_t i = 0; i < s->blocks; i++)
		if (s->weight[i] % s->split.nr ||
		    !ck_add_ok(mine, s->weight[i] / s->split.nr, &mine))
			return ck_fail(err, EINVAL,
				       "a part of %" PRIu64
				       " is not shared by %" PRIu64 " ranks",
				       s->weight[i], s->split.nr);
	return mine == shard[s->dim] ?
		       0 :
		       ck_fail(err, EINVAL,
			       "its parts have %" PRIu64
			       " of axis %u for each rank, where it has %" PRIu64,
			       mine, s->dim, shard[s->dim]);
}

int ck_cut_placed(struct ck_cut *c, const struct ck_placement *p, uint32_t at,
		  const uint64_t *shard, unsigned rank, struct ck_err *err)
{
	struct ck_shard boxes;
	uint64_t volume;
	bool zeros;
	int ret = 0;

	*c = (struct ck_cut){ .rank = rank };
	memcpy(c->shard, shard, rank * sizeof(*shard));
	for (uint32_t i = 0; i < p->nr && !ret; i++)
		ret = check_step(&p->step[i], shard, rank, err);
	if (!ret && (ck_placement_full(p, at, shard, rank, c->whole, NULL) ||
		     !ck_dims_volume(c->whole, rank, &volume)))
		ret = ck_fail(err, EINVAL, "its whole shape overflows");
	if (!ret)
		ret = ck_placement_at(p, at, c->whole, rank, &boxes, &zeros,
				      err);
	for (unsigned i = 0; !ret && i < ck_shard_pieces(&boxes); i++) {
		struct ck_cut_piece *to;
		struct ck_box box;

		ret = add_piece(c, &to, err);
		if (ret)
			break;
		ck_shard_piece(&boxes, i, &box, to->shard);
		memcpy(to->whole, box.start, rank * sizeof(*to->whole));
		memcpy(to->len, box.len, rank * sizeof(*to->len));
	}
	return ret;
}

/* Where a view begins in a row-major @shape; false: it is no box of it. */
static bool view_start(const struct ck_cut_view *v, const uint64_t *shape,
		       const uint64_t *len, unsigned rank, uint64_t *start)
{
	uint64_t step = 1, volume;

	if (!ck_dims_volume(shape, rank, &volume) || v->offset >= volume)
		return false;
	ck_dims_coords(shape, rank, v->offset, start);
	for (unsigned d = rank; d-- > 0; step *= shape[d])
		if ((len[d] > 1 && v->stride[d] != step) ||
		    !ck_range_ok(start[d], len[d], shape[d]))
			return false;
	return true;
}

int ck_cut_add_views(struct ck_cut *c, const uint64_t *len,
		     const struct ck_cut_view *whole,
		     const struct ck_cut_view *shard, struct ck_err *err)
{
	struct ck_cut_piece *p;
	int ret = add_piece(c, &p, err);

	if (ret)
		return ret;
	memcpy(p->len, len, c->rank * sizeof(*len));
	return view_start(whole, c->whole, len, c->rank, p->whole) &&
			       view_start(shard, c->shard, len, c->rank,
					  p->shard) ?
		       0 :
		       ck_fail(err, EINVAL,
			       "a piece is no box of the tensor and of the shard");
}

/* ---- what a file has of it ---- */

/* One box of the whole whose elements follow each other in the shard. */
struct dense {
	uint64_t at; /* in the shard's order */
	uint64_t volume;
	uint64_t start[CK_MAX_RANK], len[CK_MAX_RANK];
};

struct given {
	const struct ck_cut *c;
	struct ck_asm *a;
	struct ck_asm_tensor *t;
	uint32_t file;
};

static int give(const struct given *g, const uint64_t *start,
		const uint64_t *len, const uint64_t *flat,
		const struct ck_extent *x, struct ck_err *err)
{
	const struct ck_cut *c = g->c;
	struct ck_asm_piece *p = ck_asm_piece(g->a, g->t, g->file);

	if (!p || ck_asm_set_box(g->a, p, start, len, c->whole, c->rank) ||
	    ck_asm_set_extent(g->a, p, x))
		return ck_no_memory(err);
	p->is_flat = flat;
	if (flat)
		memcpy(p->flat, flat, sizeof(p->flat));
	return 0;
}

/* What of it is in [lo, hi) of the shard, which @x has from element @lo on. */
static int give_dense(const struct given *g, const struct dense *d, uint64_t lo,
		      uint64_t hi, const struct ck_extent *x,
		      struct ck_err *err)
{
	uint64_t flat[2] = { CK_MAX(lo, d->at), CK_MIN(hi, d->at + d->volume) };
	uint64_t nr = flat[1] - flat[0];
	struct ck_extent part = *x;

	if (flat[0] >= flat[1])
		return 0;
	part.off += (flat[0] - lo) * ck_dtype_info(x->dtype)->size;
	part.shape = &nr;
	part.stride = NULL;
	part.rank = 1;
	flat[0] -= d->at;
	flat[1] -= d->at;
	return give(g, d->start, d->len, flat, &part, err);
}

/*
 * Axes from *first on are stored in a row; *runs: how many such rows.  False:
 * too many.
 */
static bool find_dense(const struct ck_cut *c, const struct ck_cut_piece *p,
		       unsigned *first, uint64_t *runs)
{
	unsigned k = c->rank ? c->rank - 1 : 0;

	while (k && p->len[k] == c->shard[k])
		k--;
	*first = k;
	*runs = 1;
	for (unsigned d = 0; d < k; d++)
		if (!ck_mul_ok(*runs, p->len[d], runs) || *runs > MAX_RUNS)
			return false;
	return true;
}

/* Row @i of piece @p. */
static void make_dense(const struct ck_cut *c, const struct ck_cut_piece *p,
		       unsigned first, uint64_t i, struct dense *d)
{
	uint64_t step = 1;

	d->at = 0;
	d->volume = 1;
	for (unsigned k = c->rank; k-- > 0;) {
		uint64_t index = 0;

		d->len[k] = 1;
		if (k >= first) {
			d->len[k] = p->len[k];
			d->volume *= p->len[k];
		} else {
			index = i % p->len[k];
			i /= p->len[k];
		}
		d->start[k] = p->whole[k] + index;
		d->at += (p->shard[k] + index) * step;
		step *= c->shard[k];
	}
}

/* Rows ascend. */
static int give_rows(const struct given *g, const struct ck_cut_piece *p,
		     uint64_t lo, uint64_t hi, const struct ck_extent *x,
		     struct ck_err *err)
{
	struct dense d;
	uint64_t rows;
	unsigned first;
	int ret = 0;

	if (!find_dense(g->c, p, &first, &rows))
		return ck_asm_refuse(g->a, g->t, err,
				     "a piece lies in over 2^20 rows");
	for (uint64_t i = 0; i < rows && !ret; i++) {
		make_dense(g->c, p, first, i, &d);
		if (d.at >= hi)
			break;
		ret = give_dense(g, &d, lo, hi, x, err);
	}
	return ret;
}

int ck_cut_give_run(const struct ck_cut *c, struct ck_asm *a,
		    struct ck_asm_tensor *t, uint32_t file, uint64_t lo,
		    uint64_t hi, uint64_t pos, const struct ck_asm_run *run,
		    struct ck_err *err)
{
	const struct given g = { c, a, t, file };
	uint64_t from = CK_MAX(run->at, pos), end = run->at + run->len;
	struct ck_extent x = run->x;
	int ret = ck_asm_declare(a, t, x.dtype, c->whole, c->rank);

	if (ret)
		return ck_no_memory(err);
	x.off += (from - run->at) * ck_dtype_info(x.dtype)->size;
	hi = end > from ? CK_MIN(hi, lo + (end - pos)) : lo;
	lo += from - pos;
	for (size_t i = 0; i < c->pieces.nr && !ret; i++)
		ret = give_rows(&g, &c->pieces.v[i], lo, hi, &x, err);
	return ret;
}

int ck_cut_give(const struct ck_cut *c, struct ck_asm *a,
		struct ck_asm_tensor *t, uint32_t file,
		const struct ck_extent *x, struct ck_err *err)
{
	const struct given g = { c, a, t, file };
	int64_t size = ck_dtype_info(x->dtype)->size;
	int ret = ck_asm_declare(a, t, x->dtype, c->whole, c->rank);

	if (ret)
		return ck_no_memory(err);
	if (x->rank != c->rank ||
	    memcmp(x->shape, c->shard, c->rank * sizeof(*c->shard)) != 0)
		return ck_asm_refuse(
			a, t, err,
			"the stored tensor is not of the shape that is said of it");
	for (size_t i = 0; i < c->pieces.nr && !ret; i++) {
		const struct ck_cut_piece *p = &c->pieces.v[i];
		struct ck_extent part = *x;

		/* inside the storage, as all of the tensor's elements are */
		for (unsigned d = 0; d < c->rank; d++)
			part.off +=
				p->shard[d] * (uint64_t)(x->stride[d] * size);
		ret = give(&g, p->whole, p->len, NULL, &part, err);
	}
	return ret;
}
