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

int ck_cut_axis(struct ck_cut *c, const uint64_t *shard, unsigned rank,
		unsigned axis, uint64_t blocks, uint64_t at, uint64_t nr,
		struct ck_err *err)
{
	uint64_t len, volume;

	*c = (struct ck_cut){ .rank = rank };
	if (axis >= rank)
		return ck_fail(err, EINVAL,
			       "it is split along axis %u, and has %u", axis,
			       rank);
	if (!blocks || shard[axis] % blocks)
		return ck_fail(err, EINVAL,
			       "%" PRIu64 " of axis %u are not %" PRIu64
			       " equal blocks",
			       shard[axis], axis, blocks);
	memcpy(c->shard, shard, rank * sizeof(*shard));
	memcpy(c->whole, shard, rank * sizeof(*shard));
	if (at >= nr || !ck_mul_ok(shard[axis], nr, &c->whole[axis]) ||
	    !ck_dims_volume(c->whole, rank, &volume))
		return ck_fail(err, EINVAL, "its whole shape overflows");
	len = shard[axis] / blocks;
	for (uint64_t i = 0; i < blocks; i++) {
		struct ck_cut_piece *p;
		int ret = add_piece(c, &p, err);

		if (ret)
			return ret;
		p->len[axis] = len;
		p->shard[axis] = i * len;
		p->whole[axis] = (i * nr + at) * len;
	}
	return 0;
}

int ck_cut_parts(struct ck_cut *c, const uint64_t *shard, unsigned rank,
		 unsigned axis, const uint64_t *parts, unsigned nr_parts,
		 uint64_t at, uint64_t nr, struct ck_err *err)
{
	uint64_t whole = 0, mine = 0, volume;

	*c = (struct ck_cut){ .rank = rank };
	if (axis >= rank || !nr || at >= nr)
		return ck_fail(err, EINVAL,
			       "it is split along axis %u, and has %u", axis,
			       rank);
	memcpy(c->shard, shard, rank * sizeof(*shard));
	memcpy(c->whole, shard, rank * sizeof(*shard));
	for (unsigned i = 0; i < nr_parts; i++) {
		struct ck_cut_piece *p;
		uint64_t len = parts[i] / nr;
		int ret = add_piece(c, &p, err);

		if (ret)
			return ret;
		p->len[axis] = len;
		p->shard[axis] = mine;
		p->whole[axis] = whole + at * len;
		if (parts[i] % nr || !ck_add_ok(whole, parts[i], &whole) ||
		    !ck_add_ok(mine, len, &mine))
			return ck_fail(err, EINVAL,
				       "a part of %" PRIu64
				       " is not shared by %" PRIu64 " ranks",
				       parts[i], nr);
	}
	c->whole[axis] = whole;
	if (mine != shard[axis] || !ck_dims_volume(c->whole, rank, &volume))
		return ck_fail(
			err, EINVAL,
			"its parts have %" PRIu64
			" of axis %u for each rank, where it has %" PRIu64,
			mine, axis, shard[axis]);
	return 0;
}

/* One box of the whole whose elements follow each other in the shard. */
struct dense {
	uint64_t at; /* in the shard's order */
	uint64_t volume;
	uint64_t start[CK_MAX_RANK], len[CK_MAX_RANK];
};

struct say {
	const struct ck_cut *c;
	struct ck_builder *b;
	const char *name;
	size_t name_len;
	uint64_t lo, hi, pos;
	const struct ck_cut_run *run;
};

static int add_dense(const struct say *s, const struct dense *d,
		     struct ck_err *err)
{
	const struct ck_torch_place *place = &s->run->place;
	uint64_t size = ck_dtype_info(place->t.dtype)->size;
	/* what of [lo, hi) the run has, as elements of the shard */
	uint64_t lo =
		s->run->at > s->pos ? s->lo + (s->run->at - s->pos) : s->lo;
	uint64_t end = s->run->at + s->run->len;
	uint64_t hi =
		end > s->pos ? CK_MIN(s->hi, s->lo + (end - s->pos)) : s->lo;
	uint64_t flat[2] = { CK_MAX(lo, d->at), CK_MIN(hi, d->at + d->volume) };
	struct ck_part part = {
		.name = s->name,
		.name_len = s->name_len,
		.src = place->src,
		.dtype = (uint8_t)place->t.dtype,
		.xform = place->xform,
		.rank = s->c->rank,
		.shape = s->c->whole,
		.start = d->start,
		.len = d->len,
		.flat = flat,
	};

	if (flat[0] >= flat[1])
		return 0;
	part.off =
		place->off + (s->pos + (flat[0] - s->lo) - s->run->at) * size;
	flat[0] -= d->at;
	flat[1] -= d->at;
	return ck_builder_add(s->b, &part, err);
}

/* Axes from *first on are stored in a row; *runs: how many such rows. */
static int find_dense(const struct ck_cut *c, const struct ck_cut_piece *p,
		      unsigned *first, uint64_t *runs, struct ck_err *err)
{
	unsigned k = c->rank ? c->rank - 1 : 0;

	while (k && p->len[k] == c->shard[k])
		k--;
	*first = k;
	*runs = 1;
	for (unsigned d = 0; d < k; d++)
		if (!ck_mul_ok(*runs, p->len[d], runs) || *runs > MAX_RUNS)
			return ck_fail(err, EINVAL,
				       "a piece lies in over 2^20 rows");
	return 0;
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

static int add_piece_run(const struct say *s, const struct ck_cut_piece *p,
			 struct ck_err *err)
{
	struct dense d;
	unsigned first;
	uint64_t runs;
	int ret = find_dense(s->c, p, &first, &runs, err);

	for (uint64_t i = 0; i < runs && !ret; i++) {
		make_dense(s->c, p, first, i, &d);
		if (d.at >= s->hi)
			break; /* rows ascend */
		ret = add_dense(s, &d, err);
	}
	return ret;
}

/* A tensor without elements has no parts, and yet a name. */
static int declare(const struct ck_cut *c, struct ck_builder *b,
		   const char *name, size_t name_len, enum ck_dtype dtype,
		   struct ck_err *err)
{
	const struct ck_part decl = { .name = name,
				      .name_len = name_len,
				      .dtype = (uint8_t)dtype,
				      .rank = c->rank,
				      .shape = c->whole };

	return ck_builder_declare(b, &decl, err);
}

int ck_cut_add_run(const struct ck_cut *c, struct ck_builder *b,
		   const char *name, size_t name_len, uint64_t lo, uint64_t hi,
		   uint64_t pos, const struct ck_cut_run *run,
		   struct ck_err *err)
{
	const struct say s = { c, b, name, name_len, lo, hi, pos, run };
	int ret;

	ret = declare(c, b, name, name_len, run->place.t.dtype, err);
	for (size_t i = 0; i < c->pieces.nr && !ret; i++)
		ret = add_piece_run(&s, &c->pieces.v[i], err);
	return ret == -EINVAL ? ck_builder_refuse(b, 0, name, name_len, err,
						  "%s", err ? err->msg : "") :
				ret;
}

int ck_cut_add_tensor(const struct ck_cut *c, struct ck_builder *b,
		      const char *name, size_t name_len,
		      const struct ck_torch_place *place, struct ck_err *err)
{
	int64_t size = ck_dtype_info(place->t.dtype)->size;
	uint64_t volume;
	int ret = declare(c, b, name, name_len, place->t.dtype, err);

	if (!ret && (place->t.rank != c->rank ||
		     memcmp(place->t.shape, c->shard,
			    c->rank * sizeof(*c->shard)) != 0))
		return ck_builder_refuse(
			b, 0, name, name_len, err,
			"the stored tensor is not of the shape that is said of it");
	if (!ret && (!ck_dims_volume(c->shard, c->rank, &volume) || !volume))
		return 0;
	for (size_t i = 0; i < c->pieces.nr && !ret; i++) {
		const struct ck_cut_piece *p = &c->pieces.v[i];
		struct ck_part part = {
			.name = name,
			.name_len = name_len,
			.src = place->src,
			.dtype = (uint8_t)place->t.dtype,
			.xform = place->xform,
			.rank = c->rank,
			.shape = c->whole,
			.start = p->whole,
			.len = p->len,
			.stride = place->t.stride,
		};
		int64_t off = (int64_t)place->off;

		/* inside the storage, as all of the tensor's elements are */
		for (unsigned d = 0; d < c->rank; d++)
			off += (int64_t)p->shard[d] * place->t.stride[d] * size;
		part.off = (uint64_t)off;
		ret = ck_builder_add(b, &part, err);
	}
	return ret;
}
