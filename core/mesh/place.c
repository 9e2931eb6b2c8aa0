/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.c - the steps of a placement, taken one after the other
 *
 * What is left of a dimension is runs of it; a step takes its part of them.
 * With padding they reach past the end, and are clipped at last.
 */
#include "core/mesh/mesh.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

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

static int part_of(const struct ck_mesh_step *s, uint64_t extent, uint64_t i,
		   uint64_t *start, uint64_t *len, struct ck_err *err)
{
	uint64_t nr = s->split.nr;

	if (s->split.how == CK_SIZES_EVEN && extent % nr && !s->axis_name)
		return ck_fail(err, EINVAL,
			       "dimension %u: %" PRIu64
			       " is no multiple of %" PRIu64,
			       s->dim, extent, nr);
	if (s->nonempty && extent && extent < nr)
		return ck_fail(err, EINVAL,
			       "dimension %u: %" PRIu64
			       " would leave some of %" PRIu64
			       " ranks without any",
			       s->dim, extent, nr);
	return ck_split_part(&s->split, extent, i, start, len, err);
}

static uint64_t weights(const struct ck_mesh_step *s)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < CK_MESH_BLOCKS; i++)
		sum += s->weight[i];
	return sum;
}

/* Block @b of @extent rows. */
static int block_of(const struct ck_mesh_step *s, uint64_t extent, uint64_t b,
		    uint64_t *start, uint64_t *len, struct ck_err *err)
{
	const struct ck_split split = { .how = (enum ck_sizes)s->block_how,
					.nr = s->blocks };
	uint64_t sum = weights(s), each, before = 0;

	if (!sum && s->block_how == CK_SIZES_EVEN && extent % s->blocks)
		return ck_fail(err, EINVAL,
			       "dimension %u: %" PRIu64
			       " does not make %" PRIu64 " equal blocks",
			       s->dim, extent, s->blocks);
	if (!sum)
		return ck_split_part(&split, extent, b, start, len, err);
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

static int check_padded(const struct ck_mesh_step *s, uint64_t extent,
			const char *of, struct ck_err *err)
{
	if (!s->padded || s->padded >= extent)
		return 0;
	return ck_fail(err, EINVAL,
		       "padded to %" PRIu64 ", but there are %" PRIu64 "%s",
		       s->padded, extent, of);
}

static int take_step(const struct ck_mesh_step *s, uint64_t i, struct runs *in,
		     struct runs *out, struct ck_err *err)
{
	uint64_t all = runs_len(in), start, len, at, n;
	int ret = check_padded(s, all, "", err);

	out->nr = 0;
	if (ret)
		return ret;
	if (s->padded)
		in->v[in->nr - 1].len += s->padded - all;
	if (!s->blocks) {
		ret = part_of(s, CK_MAX(all, s->padded), i, &start, &len, err);
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

/* Which of the step's parts @coord has. */
static uint64_t part_at(const struct ck_mesh *m, const struct ck_mesh_step *s,
			const uint64_t *coord)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < s->nr_axes; i++)
		n = (i ? n * m->size[s->axis[i]] : 0) + coord[s->axis[i]];
	return n % s->split.nr;
}

/* What is left of the tensor, and of its row-major order. */
struct left {
	struct ck_shard *shard;
	struct ck_placed *placed;
};

static int shard_dim(const struct ck_mesh_step *s, uint64_t part,
		     struct ck_shard *shard, struct ck_err *err)
{
	struct runs in, left;
	int ret;

	load_runs(shard, s->dim, &in);
	ret = take_step(s, part, &in, &left, err);
	if (!ret)
		ret = store_runs(shard, s->dim, &left, err);
	return ret && s->axis_name ? ck_wrap(err, ret, "dim %u, cut by %s",
					     s->dim, s->axis_name) :
				     ret;
}

/* Keeps what is stored, and takes the padding off the box. */
static void clip(const struct left *l, const uint64_t *shape)
{
	memcpy(l->placed->full, l->shard->box.len,
	       l->shard->box.rank * sizeof(*shape));
	ck_box_clip(&l->shard->box, shape);
}

static int shard_flat(const struct ck_mesh_step *s, uint64_t part,
		      const uint64_t *shape, const struct left *l,
		      struct ck_err *err)
{
	struct ck_placed *out = l->placed;
	uint64_t start, len;
	int ret;

	if (!out->flat) {
		clip(l, shape);
		if (!ck_dims_volume(l->shard->box.len, l->shard->box.rank,
				    &out->stored))
			return ck_fail(err, EINVAL, "too large");
		out->flat = true;
	}
	ret = check_padded(s, out->stored, " elements", err);
	if (!ret)
		ret = part_of(s, CK_MAX(s->padded, out->stored), part, &start,
			      &len, err);
	if (ret)
		return ck_wrap(err, ret, "flat, cut by %s", s->axis_name);
	out->lo += start;
	out->stored = len;
	return 0;
}

static int bad_dim(const struct ck_mesh_step *s, unsigned rank,
		   struct ck_err *err)
{
	if (s->axis_name)
		return ck_fail(err, EINVAL, "dim %u is cut by %s, of %u dims",
			       s->dim, s->axis_name, rank);
	return ck_fail(err, EINVAL,
		       "it has %u dimensions, and dimension %u is to be cut",
		       rank, s->dim);
}

static int take_steps(const struct ck_mesh *mesh,
		      const struct ck_mesh_step *step, unsigned nr,
		      const uint64_t *coord, const uint64_t *shape,
		      unsigned rank, const struct left *l, struct ck_err *err)
{
	struct ck_placed *out = l->placed;
	uint64_t volume;
	int ret = 0;

	out->flat = false;
	out->lo = out->hi = out->stored = 0;
	ck_shard_whole(l->shard, shape, rank);
	for (unsigned i = 0; i < nr && !ret; i++) {
		const struct ck_mesh_step *s = &step[i];
		uint64_t part = part_at(mesh, s, coord);

		if (!s->flat && s->dim >= rank)
			return bad_dim(s, rank, err);
		ret = s->flat ? shard_flat(s, part, shape, l, err) :
				shard_dim(s, part, l->shard, err);
	}
	if (ret || !out->flat) {
		clip(l, shape);
		return ret;
	}
	volume = ck_box_volume(&l->shard->box);
	out->lo = CK_MIN(out->lo, volume);
	out->hi = out->lo + CK_MIN(out->stored, volume - out->lo);
	return 0;
}

int ck_mesh_place(const struct ck_mesh_step *step, unsigned nr,
		  const uint64_t *coord, const uint64_t *shape, unsigned rank,
		  struct ck_placed *out, struct ck_err *err)
{
	struct ck_shard shard;
	const struct left l = { &shard, out };
	int ret = take_steps(NULL, step, nr, coord, shape, rank, &l, err);

	memcpy(out->start, shard.box.start, rank * sizeof(*shape));
	memcpy(out->len, shard.box.len, rank * sizeof(*shape));
	return ret;
}

int ck_placement_at(const struct ck_placement *p, uint32_t at,
		    const uint64_t *shape, unsigned rank, struct ck_shard *out,
		    bool *zeros, struct ck_err *err)
{
	uint64_t coord[CK_MESH_AXES];
	struct ck_placed placed;
	const struct left l = { out, &placed };

	ck_mesh_coords(&p->mesh, at, coord);
	*zeros = false;
	for (unsigned i = 0; i < p->mesh.nr; i++)
		*zeros |= coord[i] && p->partial >> i & 1;
	return take_steps(&p->mesh, p->step, p->nr, coord, shape, rank, &l,
			  err);
}

uint32_t ck_placement_part(const struct ck_placement *p, int dim, uint32_t at,
			   uint32_t *nr)
{
	uint64_t coord[CK_MESH_AXES];
	uint32_t part = 0;

	*nr = 1;
	ck_mesh_coords(&p->mesh, at, coord);
	for (unsigned i = 0; i < p->nr; i++) {
		const struct ck_mesh_step *s = &p->step[i];

		if (dim >= 0 && s->dim != dim)
			continue;
		part = part * (uint32_t)s->split.nr +
		       (uint32_t)part_at(&p->mesh, s, coord);
		*nr *= (uint32_t)s->split.nr;
	}
	return part;
}

/* The extent of which part @part has @have. */
static int grow(const struct ck_mesh_step *s, uint64_t part, uint64_t have,
		uint64_t *out, struct ck_err *err)
{
	*out = 0;
	if (s->split.how != CK_SIZES_GIVEN)
		return ck_mul_ok(have, s->split.nr, out) ?
			       0 :
			       ck_fail(err, EINVAL, "its shape overflows");
	for (uint64_t i = 0; i < s->split.nr; i++)
		if (!ck_add_ok(*out, s->split.given[i], out))
			return ck_fail(err, EINVAL, "its shape overflows");
	return have == s->split.given[part] ?
		       0 :
		       ck_fail(err, EINVAL,
			       "%" PRIu64 " rows are stored, and %" PRIu64
			       " are split off by hand",
			       have, s->split.given[part]);
}

int ck_placement_full(const struct ck_placement *p, uint32_t at,
		      const uint64_t *stored, unsigned rank, uint64_t *shape,
		      struct ck_err *err)
{
	uint64_t coord[CK_MESH_AXES];
	int ret = 0;

	ck_mesh_coords(&p->mesh, at, coord);
	if (rank)
		memcpy(shape, stored, rank * sizeof(*shape));
	for (unsigned i = p->nr; i-- > 0 && !ret;) {
		const struct ck_mesh_step *s = &p->step[i];

		ret = s->dim >= rank ? bad_dim(s, rank, err) :
				       grow(s, part_at(&p->mesh, s, coord),
					    shape[s->dim], &shape[s->dim], err);
	}
	return ret;
}

bool ck_placement_grid(const struct ck_placement *p, uint32_t at,
		       const uint64_t *shape, unsigned rank, uint64_t *grid,
		       struct ck_box *out)
{
	const struct ck_mesh_step *s = p->step;
	uint64_t coord[CK_MESH_AXES], parts;
	unsigned dim = s->dim;

	if (p->nr != 1 || !s->blocks || s->split.how != CK_SIZES_EVEN ||
	    rank + 2 > CK_MAX_RANK ||
	    !ck_mul_ok(s->blocks, s->split.nr, &parts) || shape[dim] % parts)
		return false;
	ck_mesh_coords(&p->mesh, at, coord);
	memcpy(grid, shape, dim * sizeof(*grid));
	memcpy(grid + dim + 2, shape + dim, (rank - dim) * sizeof(*grid));
	grid[dim] = s->blocks;
	grid[dim + 1] = s->split.nr;
	grid[dim + 2] = shape[dim] / parts;
	*out = (struct ck_box){ .rank = rank + 2 };
	memcpy(out->len, grid, (rank + 2) * sizeof(*grid));
	out->start[dim + 1] = part_at(&p->mesh, s, coord);
	out->len[dim + 1] = 1;
	return true;
}
