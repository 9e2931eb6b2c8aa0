/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - what a model file says of names, shapes and their order
 *
 * param_shapes is the layout of the optimizer files: groups of names, each
 * taking as many elements of the group's vector as its shape has.  By an
 * affine map AutoTP says how its ranks share a tensor:
 *
 *   {'^layers\.0\.qkv\.weight$': {logical_shape, ranks: {tp: {shard_shape,
 *     pieces: [{shape, source: [offset, strides], dest: [offset, strides]}]}}}}
 *
 * Offsets and strides count elements: of the whole in source, of the shard in
 * dest.  A piece is taken where it is a box of both.
 */
#include "core/format/deepspeed/deepspeed.h"

#include "core/base/check.h"
#include "core/geom/range.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is trained ---- */

static int add_param(struct deepspeed_model *m, ck_pv key, ck_pv shape,
		     uint64_t *pos, struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	struct deepspeed_param *to, new = { .shape = shape,
					    .group = (unsigned)m->nr_groups,
					    .pos = *pos };
	uint64_t dims[CK_MAX_RANK];
	unsigned rank;

	if (!ck_pv_str(p, key, &new.name, &new.name_len))
		return ck_fail(err, EINVAL,
			       "%s: param_shapes: expected names as keys",
			       m->f.s->name);
	if (!ck_torch_size(p, shape, dims, &rank) ||
	    !ck_dims_volume(dims, rank, &new.numel) ||
	    !ck_add_ok(*pos, new.numel, pos))
		return ck_fail(
			err, EINVAL, "%s: param_shapes: no shape for %.*s",
			m->f.s->name, (int)CK_MIN(new.name_len, 200), new.name);
	if (ck_strmap_get(&m->by_name, new.name, new.name_len) !=
	    CK_STRMAP_NONE)
		return ck_fail(err, EINVAL, "%s: param_shapes has %.*s twice",
			       m->f.s->name, (int)CK_MIN(new.name_len, 200),
			       new.name);
	to = ck_vec_push(&m->params);
	if (!to || ck_strmap_put(&m->by_name, new.name, new.name_len) ==
			   CK_STRMAP_NONE)
		return ck_no_memory(err);
	*to = new;
	return 0;
}

static int add_group(struct deepspeed_model *m, ck_pv group, struct ck_err *err)
{
	struct ck_piter it;
	ck_pv key, shape;
	uint64_t pos = 0;
	int ret = 0;

	ck_piter_init_pairs(&it, m->f.ts.pickle, group);
	while (!ret && ck_piter_next2(&it, &key, &shape))
		ret = add_param(m, key, shape, &pos, err);
	m->nr_groups++;
	return ret;
}

/* A list of groups; one dict in files of 2021. */
static int read_params(struct deepspeed_model *m, ck_pv shapes,
		       struct ck_err *err)
{
	struct ck_piter it;
	ck_pv group;
	int ret = 0;

	if (ck_pv_kind(shapes) != CK_P_LIST)
		return ck_pv_kind(shapes) == CK_P_NONE ?
			       0 :
			       add_group(m, shapes, err);
	ck_piter_init(&it, m->f.ts.pickle, shapes);
	while (!ret && ck_piter_next(&it, &group))
		ret = add_group(m, group, err);
	return ret;
}

static int read_aliases(struct deepspeed_model *m, ck_pv shared,
			struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	struct ck_piter it;
	ck_pv key, value;

	ck_piter_init_pairs(&it, p, shared);
	while (ck_piter_next2(&it, &key, &value)) {
		struct deepspeed_alias a, *to;

		if (!ck_pv_str(p, key, &a.name, &a.name_len) ||
		    !ck_pv_str(p, value, &a.holder, &a.holder_len))
			continue;
		to = ck_vec_push(&m->aliases);
		if (!to)
			return ck_no_memory(err);
		*to = a;
	}
	return 0;
}

/* ---- how ranks share a tensor ---- */

/* Copies what @s stands for to @out, which has room; false: it is a pattern. */
static bool unescape(const char *s, size_t len, char *out)
{
	for (size_t i = 0; i < len; i++) {
		if (s[i] == '\\' && i + 1 < len &&
		    !isalnum((unsigned char)s[i + 1]))
			i++;
		else if (!s[i] || strchr("\\.*+?()[]{}|^$", s[i]))
			return false;
		*out++ = s[i];
	}
	*out = '\0';
	return true;
}

/* A pattern that may mean several names says nothing of one. */
static int add_affine(struct deepspeed_model *m, const char *s, size_t len,
		      ck_pv value, struct ck_err *err)
{
	char *name;
	ck_pv *to;

	if (len < 2 || s[0] != '^' || s[len - 1] != '$')
		return 0;
	name = ck_arena_alloc(&m->ld->mem, len);
	if (!name)
		return ck_no_memory(err);
	if (!unescape(s + 1, len - 2, name) ||
	    ck_strmap_get(&m->affine_names, name, strlen(name)) !=
		    CK_STRMAP_NONE)
		return 0;
	to = ck_vec_push(&m->affine_values);
	if (!to || ck_strmap_put(&m->affine_names, name, strlen(name)) ==
			   CK_STRMAP_NONE)
		return ck_no_memory(err);
	*to = value;
	return 0;
}

static int read_affine(struct deepspeed_model *m, ck_pv info,
		       struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	ck_pv params, key, value;
	struct ck_piter it;
	const char *s;
	size_t len;
	int ret = 0;

	if (ck_pq_int_or(p, info, "affine_map/version", 0) != 1 ||
	    !ck_pq(p, info, "affine_map/params", &params))
		return 0;
	ck_piter_init_pairs(&it, p, params);
	while (!ret && ck_piter_next2(&it, &key, &value))
		if (ck_pv_str(p, key, &s, &len))
			ret = add_affine(m, s, len, value, err);
	return ret;
}

/* The value under a number; dicts are small: one key a rank. */
static bool key_number(const struct ck_pickle *p, ck_pv dict, int64_t want,
		       ck_pv *out)
{
	struct ck_piter it;
	ck_pv key;
	int64_t n;

	ck_piter_init_pairs(&it, p, dict);
	while (ck_piter_next2(&it, &key, out))
		if (ck_pv_int(p, key, &n) && n == want)
			return true;
	return false;
}

/*
 * Where a piece with [offset, strides] begins in a row-major @shape; false
 * where it is no box of it.
 */
static bool box_start(const struct ck_pickle *p, ck_pv v, const uint64_t *shape,
		      const uint64_t *len, unsigned rank, uint64_t *start)
{
	uint64_t stride[CK_MAX_RANK], step = 1, volume;
	ck_pv offset, strides;
	unsigned nr;
	int64_t at;

	if (!ck_pv_at(p, v, 0, &offset) || !ck_pv_at(p, v, 1, &strides) ||
	    !ck_pv_int(p, offset, &at) || at < 0 ||
	    !ck_torch_size(p, strides, stride, &nr) || nr != rank ||
	    !ck_dims_volume(shape, rank, &volume) || (uint64_t)at >= volume)
		return false;
	ck_dims_coords(shape, rank, (uint64_t)at, start);
	for (unsigned d = rank; d-- > 0; step *= shape[d])
		if ((len[d] > 1 && stride[d] != step) ||
		    !ck_range_ok(start[d], len[d], shape[d]))
			return false;
	return true;
}

static int add_piece(const struct ck_pickle *p, ck_pv v, struct ck_cut *cut,
		     struct ck_err *why)
{
	struct ck_cut_piece *piece = ck_vec_push(&cut->pieces);
	ck_pv shape, source, dest;
	unsigned rank;

	if (!piece)
		return ck_no_memory(why);
	*piece = (struct ck_cut_piece){ 0 };
	if (!ck_pq(p, v, "shape", &shape) || !ck_pq(p, v, "source", &source) ||
	    !ck_pq(p, v, "dest", &dest) ||
	    !ck_torch_size(p, shape, piece->len, &rank) || rank != cut->rank ||
	    !box_start(p, source, cut->whole, piece->len, rank, piece->whole) ||
	    !box_start(p, dest, cut->shard, piece->len, rank, piece->shard))
		return ck_fail(
			why, EINVAL,
			"a piece of its affine_map is no box of the tensor and of the shard");
	return 0;
}

static int cut_affine(const struct ck_pickle *p, ck_pv record, unsigned tp,
		      const uint64_t *shape, unsigned rank, struct ck_cut *cut,
		      struct ck_err *why)
{
	ck_pv logical, ranks, mine, shard, pieces, item;
	struct ck_piter it;
	unsigned whole_rank, shard_rank;
	uint64_t volume;
	int ret = 0;

	*cut = (struct ck_cut){ .rank = rank };
	if (!ck_pq(p, record, "logical_shape", &logical) ||
	    !ck_pq(p, record, "ranks", &ranks) ||
	    !key_number(p, ranks, tp, &mine) ||
	    !ck_pq(p, mine, "shard_shape", &shard) ||
	    !ck_pv_key(p, mine, "pieces", &pieces) ||
	    !ck_torch_size(p, logical, cut->whole, &whole_rank) ||
	    !ck_torch_size(p, shard, cut->shard, &shard_rank) ||
	    !ck_dims_volume(cut->whole, whole_rank, &volume) ||
	    !ck_dims_volume(cut->shard, shard_rank, &volume))
		return ck_fail(why, EINVAL,
			       "its affine_map says nothing of rank %u", tp);
	if (whole_rank != rank || shard_rank != rank ||
	    memcmp(cut->shard, shape, rank * sizeof(*shape)) != 0)
		return ck_fail(
			why, EINVAL,
			"its affine_map is of another shape than what is stored");
	ck_piter_init(&it, p, pieces);
	while (!ret && ck_piter_next(&it, &item))
		ret = add_piece(p, item, cut, why);
	return ret;
}

int ck_deepspeed_cut(const struct deepspeed_model *m, const char *name,
		     size_t name_len, const uint64_t *shape, unsigned rank,
		     struct ck_cut *cut, struct ck_err *why)
{
	uint32_t at = ck_strmap_get(&m->affine_names, name, name_len);

	if (m->nr_tp == 1)
		return ck_cut_whole(cut, shape, rank, why);
	if (at != CK_STRMAP_NONE)
		return cut_affine(m->f.ts.pickle, m->affine_values.v[at], m->tp,
				  shape, rank, cut, why);
	if (ck_deepspeed_is_buffer(m, name, name_len))
		return ck_cut_whole(cut, shape, rank, why);
	return ck_fail(
		why, EINVAL,
		"%u tensor-parallel ranks share it, and universal_checkpoint_info's affine_map in %s does not say how",
		m->nr_tp, m->f.s->name);
}

/* ---- the file ---- */

bool ck_deepspeed_is_buffer(const struct deepspeed_model *m, const char *name,
			    size_t len)
{
	struct ck_piter it;
	const char *s;
	size_t s_len;
	ck_pv item;

	ck_piter_init(&it, m->f.ts.pickle, m->buffers);
	while (ck_piter_next(&it, &item))
		if (ck_pv_str(m->f.ts.pickle, item, &s, &s_len) &&
		    s_len == len && !memcmp(s, name, len))
			return true;
	return false;
}

static int64_t number(const struct deepspeed_model *m, const char *path,
		      int64_t otherwise, int64_t most)
{
	int64_t n = ck_pq_int_or(m->f.ts.pickle, m->root, path, otherwise);

	return n >= 0 && n <= most ? n : otherwise;
}

int ck_deepspeed_model_read(struct deepspeed_model *m, struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	ck_pv root = ck_pickle_root(p), v;
	int ret = 0;

	m->root = root;
	m->steps = number(m, "global_steps", -1, INT64_MAX);
	m->skipped = number(m, "skipped_steps", 0, INT64_MAX);
	m->pp_degree =
		(unsigned)number(m, "checkpoint_parallel_dimensions/pp_degree",
				 0, DEEPSPEED_MAX_RANKS);
	m->tp_degree =
		(unsigned)number(m, "checkpoint_parallel_dimensions/tp_degree",
				 0, DEEPSPEED_MAX_RANKS);
	if (!ck_pv_key(p, root, "module", &m->module)) /* pipelines: None */
		return ck_fail(err, EINVAL,
			       "it has no module: it is no model file");
	ck_pq(p, root, "frozen_param_shapes", &m->frozen_shapes);
	ck_pq(p, root, "frozen_param_fragments", &m->frozen_parts);
	ck_pq(p, root, "buffer_names", &m->buffers);
	m->moe = ck_pv_key(p, root, "num_experts", &v);
	m->names = ck_pv_key(p, root, "param_shapes", &v);
	if (m->names)
		ret = read_params(m, v, err);
	if (!ret && ck_pq(p, root, "shared_params", &v))
		ret = read_aliases(m, v, err);
	if (!ret && ck_pq(p, root, "universal_checkpoint_info", &v))
		ret = read_affine(m, v, err);
	return ret;
}

void ck_deepspeed_model_free(struct deepspeed_model *m)
{
	const struct deepspeed_model rank = {
		.ld = m->ld, .mp = m->mp, .tp = m->tp, .nr_tp = m->nr_tp
	};

	free(m->params.v);
	free(m->aliases.v);
	free(m->affine_values.v);
	ck_strmap_free(&m->by_name);
	ck_strmap_free(&m->affine_names);
	ck_torch_open_close(&m->f);
	*m = rank;
}
