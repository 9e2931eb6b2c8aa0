/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - device grid, tensor map and shards, as boxes */
#include "core/format/mindspore/mindspore.h"

#include "core/base/check.h"
#include "core/base/str.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/*
 * Which dimension of the tensor each entry of an expanded map belongs to.  Of
 * a dimension that k axes cut, the first k - 1 entries are cut to length 1,
 * so only such entries lead to another.  Nothing is guessed: there must be one
 * way to do it.
 */
static int regroup(const struct ck_strategy_layout *l, const uint64_t *local,
		   unsigned rank, uint8_t *dim, struct ck_err *why)
{
	/* ways[i][j]: of j entries as i dimensions; 2 stands for more */
	uint8_t ways[CK_STRATEGY_AXES + 1][CK_STRATEGY_AXES + 1] = { { 1 } };
	uint8_t back[CK_STRATEGY_AXES + 1][CK_STRATEGY_AXES + 1];
	unsigned j = l->nr_map;

	for (unsigned i = 0; i < rank && i < CK_STRATEGY_AXES; i++)
		for (unsigned from = 0; from < j; from++)
			for (unsigned to = from; to < j; to++) {
				uint64_t n = l->axis[to] < 0 ?
						     1 :
						     l->dev[l->axis[to]];
				bool one = n == l->shape[to] && n > 1;
				uint8_t *w = &ways[i + 1][to + 1];

				if (ways[i][from] && n &&
				    l->shape[to] % n == 0 &&
				    l->shape[to] / n == local[i]) {
					*w = *w ? 2 : ways[i][from];
					back[i + 1][to + 1] = (uint8_t)from;
				}
				if (!one)
					break;
			}
	if (rank > CK_STRATEGY_AXES || ways[rank][j] != 1)
		return ck_fail(
			why, EINVAL,
			"its tensor map has %u entries for %u dimensions, and there is %s way to group them: the strategy file in protobuf form says it",
			l->nr_map, rank,
			rank <= CK_STRATEGY_AXES && ways[rank][j] ?
				"more than one" :
				"no");
	for (unsigned i = rank; i-- > 0;) {
		unsigned from = back[i + 1][j];

		for (unsigned k = from; k < j; k++)
			dim[k] = (uint8_t)i;
		j = from;
	}
	return 0;
}

static int dims_of(const struct ck_strategy_layout *l, const uint64_t *stored,
		   unsigned rank, uint64_t shards, uint8_t *dim,
		   struct ck_err *why)
{
	uint64_t local[CK_MAX_RANK];

	memcpy(dim, l->dim, sizeof(l->dim));
	if (l->nr_dims == rank)
		return 0;
	if (l->nr_dims > rank && l->expanded && l->has_shape && rank) {
		memcpy(local, stored, rank * sizeof(*local));
		if (!ck_mul_ok(local[0], shards, &local[0]))
			return ck_fail(why, EINVAL, "its shape overflows");
		return regroup(l, local, rank, dim, why);
	}
	/* Ascend graphs stored [12,2048] as [12,2048,1,1]. */
	for (unsigned i = l->nr_dims; i < rank; i++)
		if (stored[i] != 1)
			return ck_fail(
				why, ERANGE,
				"it is stored with %u dimensions, and its tensor map has %u",
				rank, l->nr_dims);
	if (l->nr_dims > rank)
		return ck_fail(
			why, ERANGE,
			"it is stored with %u dimensions, and its tensor map has %u",
			rank, l->nr_dims);
	return 0;
}

static void place_whole(const uint64_t *stored, unsigned rank,
			struct mindspore_place *out)
{
	out->rank = rank;
	out->grid_rank = 0;
	out->slice = 0;
	if (!rank)
		return;
	memset(out->start, 0, rank * sizeof(*stored));
	memcpy(out->shape, stored, rank * sizeof(*stored));
	memcpy(out->len, stored, rank * sizeof(*stored));
}

static int check_shape(const struct ck_strategy_layout *l,
		       const struct mindspore_place *out, struct ck_err *why)
{
	uint64_t want, have;
	ck_auto_str struct ck_str a = { 0 }, b = { 0 };

	if (!l->has_shape)
		return 0;
	if (!ck_dims_volume(l->shape, l->shape_rank, &want) ||
	    !ck_dims_volume(out->shape, out->rank, &have))
		return ck_fail(why, EINVAL, "its shape overflows");
	if (want == have &&
	    (l->shape_rank != out->rank ||
	     !memcmp(l->shape, out->shape, out->rank * sizeof(*l->shape))))
		return 0;
	ck_str_json_u64(&a, out->shape, out->rank);
	ck_str_json_u64(&b, l->shape, l->shape_rank);
	if (a.failed || b.failed)
		return ck_no_memory(why);
	return ck_fail(why, ERANGE,
		       "its pieces make %s, and the strategy says %s", a.v,
		       b.v);
}

/* A layout of a stored tensor, on its way to a piece. */
struct cut {
	const struct ck_strategy_layout *l;
	struct ck_placement p;
	uint64_t devices, slices, shards;
	uint64_t rows; /* devices that cut dimension 0 */
	bool only_rows; /* no others do */
	uint32_t at;
};

static int begin_cut(struct cut *c, const struct ck_strategy_layout *l,
		     enum mindspore_how how, const uint64_t *stored,
		     unsigned rank, struct ck_err *why)
{
	uint8_t dim[CK_STRATEGY_AXES];
	int ret;

	if (how == MINDSPORE_UNSHARDED)
		c->shards = 1;
	ret = dims_of(l, stored, rank, c->shards, dim, why);
	if (!ret && !rank && (c->shards > 1 || c->slices > 1))
		ret = ck_fail(why, ERANGE,
			      "it is one number, which cannot be cut");
	if (!ret && rank)
		ret = ck_strategy_placement(l, dim, rank, c->shards, &c->p,
					    why);
	c->rows = 1;
	for (unsigned i = 0; i < l->nr_map && !ret; i++)
		if (l->axis[i] >= 0 && !dim[i])
			c->rows *= l->dev[l->axis[i]];
	c->only_rows = c->shards <= 1 && c->rows == c->slices;
	return ret;
}

/* The shape of the whole, and which of its slices that is. */
static int grow_shape(const struct cut *c, struct mindspore_place *out,
		      struct ck_err *why)
{
	uint32_t nr;
	int ret;

	if (c->l->nr_rows && !(c->only_rows && c->slices == c->l->nr_rows))
		return ck_fail(
			why, EINVAL,
			"its rows are split by hand into %u parts, and its tensor map says %" PRIu64,
			c->l->nr_rows, c->rows);
	ret = ck_placement_full(&c->p, c->at, out->len, out->rank, out->shape,
				why);
	if (!ret)
		out->slice = ck_placement_part(&c->p, -1, c->at, &nr);
	return ret ? ret : check_shape(c->l, out, why);
}

/* Where it is: in fields, of rows of every device after the other's, or so. */
static int place_slice(const struct cut *c, struct mindspore_place *out,
		       struct ck_err *why)
{
	struct ck_shard shard;
	struct ck_box *box = &shard.box;
	bool zeros;
	int ret;

	if (!c->l->field) {
		ret = ck_placement_at(&c->p, c->at, out->shape, out->rank,
				      &shard, &zeros, why);
		memcpy(out->start, box->start, sizeof(*box->start) * out->rank);
		return ret;
	}
	if (!c->only_rows || c->slices != c->devices ||
	    !ck_placement_grid(&c->p, c->at, out->shape, out->rank, out->grid,
			       box))
		return ck_fail(
			why, EINVAL,
			"its rows interleave in %" PRIu64
			" fields, which is known only for tensors that all devices cut by rows alone",
			c->l->field);
	out->grid_rank = box->rank;
	memcpy(out->start, box->start, box->rank * sizeof(*box->start));
	memcpy(out->len, box->len, box->rank * sizeof(*box->len));
	return 0;
}

int ck_mindspore_place(const struct ck_strategy_layout *l,
		       enum mindspore_how how, const uint64_t *stored,
		       unsigned rank, uint64_t at, struct mindspore_place *out,
		       struct ck_err *why)
{
	struct cut c = { .l = l };
	int ret = ck_strategy_cuts(l, &c.slices, &c.shards, why);

	place_whole(stored, rank, out);
	if (ret || how == MINDSPORE_WHOLE)
		return ret ? ret : check_shape(l, out, why);
	ck_strategy_devices(l, &c.devices);
	c.at = (uint32_t)(at % c.devices);
	ret = begin_cut(&c, l, how, stored, rank, why);
	if (ret || !rank)
		return ret ? ret : check_shape(l, out, why);
	ret = grow_shape(&c, out, why);
	return ret ? ret : place_slice(&c, out, why);
}
