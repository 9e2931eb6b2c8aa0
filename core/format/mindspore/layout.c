/* SPDX-License-Identifier: Apache-2.0 */
/* layout.c - device grid, tensor map and shards, as boxes */
#include "core/format/mindspore/layout.h"

#include "core/base/check.h"
#include "core/base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* How one device cuts the dimensions of one tensor. */
struct cuts {
	uint64_t of[CK_MAX_RANK], at[CK_MAX_RANK]; /* parts, and which */
	uint64_t slices; /* product of all */
	uint64_t copies, copy; /* of devices with that slice, and which */
};

bool ck_ms_devices(const struct ck_ms_layout *l, uint64_t *nr)
{
	*nr = 1;
	for (unsigned i = 0; i < l->nr_dev; i++)
		if (!l->dev[i] || !ck_mul_ok(*nr, l->dev[i], nr))
			return false;
	return *nr <= UINT32_MAX;
}

static int check(const struct ck_ms_layout *l, uint64_t *devices,
		 uint64_t *slices, struct ck_err *why)
{
	uint64_t used = 0;

	*slices = 1;
	if (!ck_ms_devices(l, devices))
		return ck_fail(why, EINVAL, "its device matrix is none");
	for (unsigned i = 0; i < l->nr_map; i++) {
		if (l->axis[i] < 0)
			continue;
		if (l->axis[i] >= l->nr_dev)
			return ck_fail(
				why, EINVAL,
				"its tensor map names an axis that the device matrix of %u axes lacks",
				l->nr_dev);
		if (used >> l->axis[i] & 1)
			return ck_fail(
				why, EINVAL,
				"its tensor map uses axis %d of the device matrix twice",
				l->axis[i]);
		used |= UINT64_C(1) << l->axis[i];
		*slices *= l->dev[l->axis[i]];
	}
	return 0;
}

static int count_shards(const struct ck_ms_layout *l, uint64_t copies,
			uint64_t *shards, struct ck_err *why)
{
	*shards = 1;
	if (!l->shards)
		return 0;
	if (l->shards < -1)
		return ck_fail(why, EINVAL,
			       "its opt_weight_shard_size is %" PRId64,
			       l->shards);
	*shards = l->shards < 0 || (uint64_t)l->shards > copies ?
			  copies :
			  (uint64_t)l->shards;
	if (copies % *shards)
		return ck_fail(why, EINVAL,
			       "%" PRIu64 " copies cannot be cut into %" PRIu64
			       " optimizer shards",
			       copies, *shards);
	return 0;
}

int ck_ms_cuts(const struct ck_ms_layout *l, uint64_t *slices, uint64_t *shards,
	       struct ck_err *why)
{
	uint64_t devices;
	int ret = check(l, &devices, slices, why);

	return ret ? ret : count_shards(l, devices / *slices, shards, why);
}

/*
 * Which dimension of the tensor each entry of an expanded map belongs to.  Of
 * a dimension that k axes cut, the first k - 1 entries are cut to length 1,
 * so only such entries lead to another.  Nothing is guessed: there must be one
 * way to do it.
 */
static int regroup(const struct ck_ms_layout *l, const uint64_t *local,
		   unsigned rank, uint8_t *dim, struct ck_err *why)
{
	/* ways[i][j]: of j entries as i dimensions; 2 stands for more */
	uint8_t ways[CK_MS_MAX_AXES + 1][CK_MS_MAX_AXES + 1] = { { 1 } };
	uint8_t back[CK_MS_MAX_AXES + 1][CK_MS_MAX_AXES + 1];
	unsigned j = l->nr_map;

	for (unsigned i = 0; i < rank && i < CK_MS_MAX_AXES; i++)
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
	if (rank > CK_MS_MAX_AXES || ways[rank][j] != 1)
		return ck_fail(
			why, EINVAL,
			"its tensor map has %u entries for %u dimensions, and there is %s way to group them: the strategy file in protobuf form says it",
			l->nr_map, rank,
			rank <= CK_MS_MAX_AXES && ways[rank][j] ?
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

static int dims_of(const struct ck_ms_layout *l, const uint64_t *stored,
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

static void cut(const struct ck_ms_layout *l, const uint8_t *dim, unsigned rank,
		uint64_t at, struct cuts *c)
{
	uint64_t where[CK_MS_MAX_AXES];
	bool used[CK_MS_MAX_AXES] = { false };

	for (unsigned i = l->nr_dev; i-- > 0;) {
		where[i] = at % l->dev[i];
		at /= l->dev[i];
	}
	for (unsigned d = 0; d < rank; d++) {
		c->of[d] = 1;
		c->at[d] = 0;
	}
	c->slices = 1;
	for (unsigned i = 0; i < l->nr_map; i++) {
		if (l->axis[i] < 0)
			continue;
		used[l->axis[i]] = true;
		c->of[dim[i]] *= l->dev[l->axis[i]];
		c->at[dim[i]] =
			c->at[dim[i]] * l->dev[l->axis[i]] + where[l->axis[i]];
		c->slices *= l->dev[l->axis[i]];
	}
	c->copies = 1;
	c->copy = 0;
	for (unsigned i = 0; i < l->nr_dev; i++) {
		if (used[i])
			continue;
		c->copies *= l->dev[i];
		c->copy = c->copy * l->dev[i] + where[i];
	}
}

static void whole(const uint64_t *stored, unsigned rank,
		  struct ck_ms_piece *out)
{
	out->rank = rank;
	out->grid_rank = 0;
	out->slice = 0;
	for (unsigned d = 0; d < rank; d++) {
		out->shape[d] = out->len[d] = stored[d];
		out->start[d] = 0;
	}
}

/* Rows of every device, @l->field runs of them, one device after the other. */
static int interleave(const struct ck_ms_layout *l, const struct cuts *c,
		      uint64_t shards, struct ck_ms_piece *out,
		      struct ck_err *why)
{
	uint64_t rows = out->len[0];
	unsigned rank = out->rank;

	if (shards > 1 || c->copies > 1 || c->of[0] != c->slices ||
	    rank + 2 > CK_MAX_RANK || rows % l->field)
		return ck_fail(
			why, EINVAL,
			"its rows interleave in %" PRIu64
			" fields, which is known only for tensors that all devices cut by rows alone",
			l->field);
	memmove(out->start + 3, out->start + 1, (rank - 1) * sizeof(uint64_t));
	memmove(out->len + 3, out->len + 1, (rank - 1) * sizeof(uint64_t));
	memcpy(out->grid + 3, out->shape + 1, (rank - 1) * sizeof(uint64_t));
	out->grid[0] = out->len[0] = l->field;
	out->grid[1] = c->slices;
	out->grid[2] = out->len[2] = rows / l->field;
	out->start[0] = out->start[2] = 0;
	out->start[1] = c->at[0];
	out->len[1] = 1;
	out->grid_rank = rank + 2;
	return 0;
}

static int uneven(const struct ck_ms_layout *l, const struct cuts *c,
		  uint64_t shards, struct ck_ms_piece *out, struct ck_err *why)
{
	uint64_t all = 0, before = 0;

	if (shards > 1 || c->of[0] != c->slices || c->slices != l->nr_rows)
		return ck_fail(
			why, EINVAL,
			"its rows are split by hand into %u parts, and its tensor map says %" PRIu64,
			l->nr_rows, c->of[0]);
	for (uint32_t i = 0; i < l->nr_rows; i++) {
		if (i == c->at[0])
			before = all;
		if (!ck_add_ok(all, l->rows[i], &all))
			return ck_fail(why, EINVAL, "its shape overflows");
	}
	if (out->len[0] != l->rows[c->at[0]])
		return ck_fail(why, EINVAL,
			       "%" PRIu64 " rows are stored, and %" PRIu64
			       " are split off by hand",
			       out->len[0], l->rows[c->at[0]]);
	out->shape[0] = all;
	out->start[0] = before;
	return 0;
}

static int spread(const struct cuts *c, uint64_t shards,
		  struct ck_ms_piece *out, struct ck_err *why)
{
	uint64_t shard = shards > 1 ? c->copy % shards : 0;

	for (unsigned d = 0; d < out->rank; d++) {
		uint64_t part = out->len[d];

		if ((!d && !ck_mul_ok(part, shards, &part)) ||
		    !ck_mul_ok(part, c->of[d], &out->shape[d]))
			return ck_fail(why, EINVAL, "its shape overflows");
		out->start[d] = part * c->at[d] + (d ? 0 : shard * out->len[d]);
		out->slice = out->slice * c->of[d] + c->at[d];
	}
	out->slice = out->slice * shards + shard;
	return 0;
}

static int check_shape(const struct ck_ms_layout *l,
		       const struct ck_ms_piece *out, struct ck_err *why)
{
	uint64_t want = 1, have = 1;
	ck_auto_str struct ck_str a = { 0 }, b = { 0 };

	if (!l->has_shape)
		return 0;
	for (unsigned d = 0; d < l->shape_rank; d++)
		if (!ck_mul_ok(want, l->shape[d], &want))
			return ck_fail(why, EINVAL, "its shape overflows");
	for (unsigned d = 0; d < out->rank; d++)
		if (!ck_mul_ok(have, out->shape[d], &have))
			return ck_fail(why, EINVAL, "its shape overflows");
	if (want == have &&
	    (l->shape_rank != out->rank ||
	     !memcmp(l->shape, out->shape, out->rank * sizeof(*l->shape))))
		return 0;
	ck_str_json_u64(&a, out->shape, out->rank);
	ck_str_json_u64(&b, l->shape, l->shape_rank);
	if (a.failed || b.failed)
		return ck_fail(why, ENOMEM, "no memory for shapes");
	return ck_fail(why, ERANGE,
		       "its pieces make %s, and the strategy says %s", a.v,
		       b.v);
}

int ck_ms_place(const struct ck_ms_layout *l, enum ck_ms_how how,
		const uint64_t *stored, unsigned rank, uint64_t at,
		struct ck_ms_piece *out, struct ck_err *why)
{
	uint8_t dim[CK_MS_MAX_AXES];
	uint64_t devices, slices, shards;
	struct cuts c;
	int ret = check(l, &devices, &slices, why);

	if (ret || how == CK_MS_WHOLE) {
		whole(stored, rank, out);
		return ret ? ret : check_shape(l, out, why);
	}
	ret = count_shards(l, devices / slices, &shards, why);
	if (how == CK_MS_UNSHARDED)
		shards = 1;
	if (!ret)
		ret = dims_of(l, stored, rank, shards, dim, why);
	if (!ret && !rank && (shards > 1 || slices > 1))
		ret = ck_fail(why, ERANGE,
			      "it is one number, which cannot be cut");
	if (ret)
		return ret;
	cut(l, dim, rank, at % devices, &c);
	whole(stored, rank, out);
	ret = l->nr_rows && rank ? uneven(l, &c, shards, out, why) :
				   spread(&c, shards, out, why);
	if (!ret && l->nr_rows)
		out->slice = c.at[0];
	if (!ret)
		ret = check_shape(l, out, why);
	return ret || !l->field || !rank ? ret :
					   interleave(l, &c, shards, out, why);
}
