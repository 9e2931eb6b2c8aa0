/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec_strategy.c - MindSpore's strategy files, for a mesh to come
 *
 * Rank = stage x devices + device.  A parameter that the strategy does not
 * know is whole on every rank, as transform_checkpoints leaves it; one that it
 * knows is on the ranks of its stages only, on each as that stage has it.
 */
#include "core/reshard/spec.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/mesh/strategy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct strategy {
	struct ck_reshard_spec base;
	struct ck_strategy by;
	bool *used; /* of each name: a tensor is called so */
};

static int other_shape(const struct ck_strategy_layout *l,
		       const uint64_t *shape, unsigned rank, struct ck_err *err)
{
	ck_auto_str struct ck_str have = { 0 }, want = { 0 };

	ck_str_json_u64(&have, shape, rank);
	ck_str_json_u64(&want, l->shape, l->shape_rank);
	if (have.failed || want.failed)
		return ck_no_memory(err);
	return ck_fail(err, EINVAL,
		       "its shape is %s, and the strategy's tensor_shape %s%s",
		       have.v, want.v,
		       l->shape_rank > rank ?
			       ", which does not make it: if it is of this "
			       "model, the strategy in protobuf form says how" :
			       ": it is of another model");
}

/* Where each entry of the map is a dimension; others may only be of one. */
static bool same_shape(const struct ck_strategy_layout *l,
		       const uint64_t *shape, unsigned rank)
{
	if (!l->has_shape)
		return true;
	for (unsigned d = l->shape_rank; d < rank; d++)
		if (shape[d] != 1)
			return false;
	for (unsigned d = rank; d < l->shape_rank; d++)
		if (l->shape[d] != 1)
			return false;
	return !memcmp(l->shape, shape,
		       CK_MIN(rank, l->shape_rank) * sizeof(*shape));
}

/* One of several entries of a dimension is as long as what cuts it. */
static bool is_outer(const struct ck_strategy_layout *l, unsigned k)
{
	return l->axis[k] >= 0 && l->dev[l->axis[k]] == l->shape[k];
}

/*
 * Which dimension of the tensor each entry of the map belongs to.  JSON makes
 * several entries of a dimension that several axes cut: those whose lengths
 * together make the dimension's.
 */
static int dims_of(const struct ck_strategy_layout *l, const uint64_t *shape,
		   unsigned rank, uint8_t *dim, struct ck_err *err)
{
	unsigned k = 0;
	bool made_all = true;

	memcpy(dim, l->dim, sizeof(l->dim));
	if (!l->expanded || !l->has_shape || l->nr_dims <= rank)
		return same_shape(l, shape, rank) ?
			       0 :
			       other_shape(l, shape, rank, err);
	for (unsigned d = 0; d < rank && made_all; d++) {
		uint64_t made = 1;
		bool outer = true;

		do {
			if (k == l->nr_map || !outer ||
			    !ck_mul_ok(made, l->shape[k], &made))
				break;
			outer = is_outer(l, k);
			dim[k++] = (uint8_t)d;
		} while (made < shape[d]);
		made_all = made == shape[d];
	}
	/* what is left can only be entries of length 1, which nothing cuts */
	for (; k < l->nr_map && rank && l->shape[k] == 1; k++)
		dim[k] = (uint8_t)(rank - 1);
	return k == l->nr_map && made_all ? 0 :
					    other_shape(l, shape, rank, err);
}

static int cut_item(const struct ck_strategy_layout *l, uint64_t devices,
		    const uint64_t *shape, unsigned rank,
		    struct ck_placement *out, struct ck_err *err)
{
	uint8_t dim[CK_STRATEGY_AXES];
	uint64_t slices, shards;
	int ret = ck_strategy_cuts(l, &slices, &shards, err);

	if (!ret)
		ret = dims_of(l, shape, rank, dim, err);
	if (!ret)
		ret = ck_strategy_placement(l, dim, rank, shards, out, err);
	out->mesh.base = (uint32_t)(l->stage * devices);
	return ret;
}

/* What stage number @i of those that have it says, the lowest first. */
static const struct ck_strategy_item *item_of(const struct strategy *s,
					      const struct ck_catalog *img,
					      uint32_t tensor, uint32_t i)
{
	size_t len;
	const char *name = ck_catalog_str(img, img->tensors[tensor].name, &len);

	for (uint32_t stage = 0; stage < s->by.nr_stages; stage++) {
		const struct ck_strategy_item *it =
			ck_strategy_find(&s->by, name, len, stage);

		if (it)
			s->used[it->name] = true;
		if (it && !i--)
			return it;
	}
	return NULL;
}

static int further(const struct ck_reshard_spec *base,
		   const struct ck_catalog *img, uint32_t tensor, uint32_t i,
		   struct ck_placement *out, struct ck_err *err)
{
	const struct strategy *s = (const struct strategy *)base;
	const struct ck_tensor *t = &img->tensors[tensor];
	const struct ck_strategy_item *item = item_of(s, img, tensor, i);

	if (!item)
		return -ENOENT;
	if (item->why)
		return ck_fail(err, EINVAL, "%s", item->why);
	return cut_item(&item->l, s->by.devices, img->dims + t->shape, t->rank,
			out, err);
}

static int cut(const struct ck_reshard_spec *base, const struct ck_catalog *img,
	       uint32_t tensor, struct ck_placement *out, struct ck_err *err)
{
	int ret = further(base, img, tensor, 0, out, err);

	if (ret != -ENOENT)
		return ret;
	ck_reshard_cut_none(out, base->ranks);
	return 0;
}

static void report_unused(const struct ck_reshard_spec *base,
			  struct ck_str *out)
{
	const struct strategy *s = (const struct strategy *)base;
	size_t nr = 0;

	for (size_t i = 0; i < s->by.names.nr; i++)
		if (!s->used[i])
			ck_reshard_note_unused(out, nr++, "parameter",
					       s->by.names.v[i].s,
					       s->by.names.v[i].len);
	ck_reshard_note_end(out, nr);
}

static bool unused_options(const struct ck_reshard_spec *base)
{
	const struct strategy *s = (const struct strategy *)base;

	return s->by.names.nr && !memchr(s->used, true, s->by.names.nr);
}

static void free_strategy(struct ck_reshard_spec *base)
{
	struct strategy *s = (struct strategy *)base;

	ck_strategy_free(&s->by);
	free(s->used);
	free(s);
}

static const struct ck_reshard_spec_ops ops = {
	.cut = cut,
	.further = further,
	.note = report_unused,
	.unused_options = unused_options,
	.free = free_strategy,
};

/* Of one stage of several nothing says where the others' tensors go. */
static int check_stages(const struct strategy *s, const char *name,
			struct ck_err *err)
{
	ck_auto_free bool *seen = calloc(s->by.nr_stages, sizeof(*seen));

	if (!seen)
		return ck_no_memory(err);
	for (size_t i = 0; i < s->by.item.nr; i++)
		seen[s->by.item.v[i].l.stage] = true;
	for (uint32_t i = 0; i < s->by.nr_stages; i++)
		if (!seen[i])
			return ck_fail(err, EINVAL,
				       "strategy file %s: it has stage %" PRIu32
				       ", and not stage %" PRIu32
				       ": expected one of all stages, as "
				       "merge_pipeline_strategys makes it",
				       name, s->by.nr_stages - 1, i);
	return 0;
}

int ck_reshard_strategy(struct ck_reshard_spec **out, const char *name,
			const char *bytes, size_t len, struct ck_err *err)
{
	struct strategy *s = calloc(1, sizeof(*s));
	uint64_t ranks = 0;
	int ret;

	if (!s)
		return ck_no_memory(err);
	s->base.ops = &ops;
	ret = ck_strategy_add(&s->by, name, bytes, len, err);
	if (!ret && (!s->by.devices ||
		     !ck_mul_ok(s->by.devices, s->by.nr_stages, &ranks) ||
		     ranks > CK_RESHARD_MAX_RANKS))
		ret = ck_fail(err, EINVAL,
			      "strategy file %s: it has no devices, or over %d",
			      name, CK_RESHARD_MAX_RANKS);
	if (!ret)
		ret = check_stages(s, name, err);
	s->used = calloc(s->by.names.nr + 1, sizeof(*s->used));
	if (!ret && !s->used)
		ret = ck_no_memory(err);
	if (ret) {
		free_strategy(&s->base);
		return ret;
	}
	s->base.ranks = (uint32_t)ranks;
	*out = &s->base;
	return 0;
}
