/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_dist.c - boxes of saved DTensors and ShardedTensors
 *
 *   _rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor,
 *       (DTensor, dtype, full size, ...),
 *       (None, {"_local_tensor": tensor, "_spec": DTensorSpec}))
 *
 *   _rebuild_from_type_v2(_rebuild_wrapper_subclass, ShardedTensor,
 *       (ShardedTensor, dtype, full size, ...),
 *       ([Shard{tensor, metadata{shard_offsets, shard_sizes}}, ...], ...))
 */
#include "core/container/torch_dist.h"

#include "core/base/check.h"
#include "core/mesh/mesh.h"
#include "core/parse/pickle_query.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static bool read_ints(const struct ck_pickle *p, ck_pv v, uint64_t *out,
		      unsigned max, unsigned *nr)
{
	uint64_t n[CK_MAX_RANK];

	if (!ck_pq_dims(p, v, "", n, nr) || *nr > max)
		return false;
	memcpy(out, n, *nr * sizeof(*n));
	return true;
}

/* The class, the size argument and the state of a wrapper subclass. */
static bool open_wrapper(const struct ck_pickle *p, ck_pv v, const char *class,
			 ck_pv *size, ck_pv *state)
{
	ck_pv args = ck_pv_args(p, v), func, type, inner;

	return ck_pv_kind(v) == CK_P_CALL &&
	       ck_pv_is_global(p, ck_pv_callee(p, v), NULL,
			       "_rebuild_from_type_v2") &&
	       ck_pv_at(p, args, 0, &func) && ck_pv_at(p, args, 1, &type) &&
	       ck_pv_at(p, args, 2, &inner) && ck_pv_at(p, args, 3, state) &&
	       ck_pv_is_global(p, func, NULL, "_rebuild_wrapper_subclass") &&
	       ck_pv_is_global(p, type, NULL, class) &&
	       ck_pv_at(p, inner, 2, size);
}

/* A key of a state: a dict, or a tuple that has it in one of its dicts. */
static bool state_key(const struct ck_pickle *p, ck_pv state, const char *key,
		      ck_pv *out)
{
	struct ck_piter it;
	ck_pv v;

	if (ck_pv_kind(state) != CK_P_TUPLE)
		return ck_pv_key(p, state, key, out);
	ck_piter_init(&it, p, state);
	while (ck_piter_next(&it, &v))
		if (ck_pv_key(p, v, key, out))
			return true;
	return false;
}

/* One axis of a mesh may itself be a product: ((2, 2), 4). */
static bool axis_size(const struct ck_pickle *p, ck_pv axis, uint64_t *out)
{
	uint64_t n[CK_TORCH_MESH];
	unsigned nr;
	ck_pv shape;

	if (!ck_pv_attr(p, axis, "shape", &shape) ||
	    !read_ints(p, shape, n, CK_TORCH_MESH, &nr))
		return false;
	*out = 1;
	for (unsigned i = 0; i < nr; i++)
		if (!ck_mul_ok(*out, n[i], out))
			return false;
	return true;
}

/* Since 2.10 or so: _layout.axes; before: the shape of an int tensor. */
static bool mesh_sizes(const struct ck_pickle *p, ck_pv mesh,
		       struct ck_torch_mesh *m)
{
	struct ck_piter it;
	ck_pv v, axes;

	m->rank = 0;
	if (ck_pv_attr(p, mesh, "_layout", &v) &&
	    ck_pv_attr(p, v, "axes", &axes)) {
		ck_piter_init(&it, p, axes);
		while (ck_piter_next(&it, &v))
			if (m->rank == CK_TORCH_MESH ||
			    !axis_size(p, v, &m->size[m->rank++]))
				return false;
		return true;
	}
	return ck_pv_attr(p, mesh, "mesh", &v) &&
	       ck_pv_at(p, ck_pv_args(p, v), 2, &v) &&
	       read_ints(p, v, m->size, CK_TORCH_MESH, &m->rank);
}

static bool placement(const struct ck_pickle *p, ck_pv v,
		      struct ck_torch_mesh *m, unsigned i)
{
	ck_pv class = ck_pv_callee(p, v), dim, factor;
	int64_t n;

	if (ck_pv_is_global(p, class, NULL, "Replicate")) {
		m->place[i].how = CK_TORCH_REPLICATE;
		return true;
	}
	if (ck_pv_is_global(p, class, NULL, "_StridedShard"))
		m->place[i].how = CK_TORCH_STRIDED;
	else if (ck_pv_is_global(p, class, NULL, "Shard"))
		m->place[i].how = CK_TORCH_SHARD;
	else
		return false; /* Partial: no rank holds the value */
	if (!ck_pv_attr(p, v, "dim", &dim) || !ck_pv_int(p, dim, &n) || n < 0)
		return false;
	m->place[i].dim = (uint64_t)n;
	return m->place[i].how != CK_TORCH_STRIDED ||
	       (ck_pv_attr(p, v, "split_factor", &factor) &&
		ck_pv_int(p, factor, &m->place[i].factor));
}

static bool read_spec(const struct ck_pickle *p, ck_pv spec,
		      struct ck_torch_mesh *m)
{
	ck_pv mesh, at, places, v;
	struct ck_piter it;
	unsigned nr, i = 0;

	if (!ck_pv_attr(p, spec, "mesh", &mesh) || !mesh_sizes(p, mesh, m) ||
	    !ck_pv_attr(p, mesh, "_coordinate_on_dim", &at) ||
	    !read_ints(p, at, m->at, CK_TORCH_MESH, &nr) || nr != m->rank ||
	    !ck_pv_attr(p, spec, "placements", &places))
		return false;
	ck_piter_init(&it, p, places);
	while (ck_piter_next(&it, &v))
		if (i == m->rank || !placement(p, v, m, i++))
			return false;
	for (unsigned d = 0; d < m->rank; d++)
		if (m->at[d] >= m->size[d])
			return false;
	return i == m->rank;
}

/* Into how many pieces the axes right of @i cut its dimension. */
static bool is_factor(const struct ck_torch_mesh *m, unsigned i)
{
	uint64_t pieces = 1;

	for (unsigned k = i + 1; k < m->rank; k++)
		if (m->place[k].how != CK_TORCH_REPLICATE &&
		    m->place[k].dim == m->place[i].dim &&
		    !ck_mul_ok(pieces, m->size[k], &pieces))
			return false;
	return pieces == (uint64_t)m->place[i].factor;
}

/* Adds axis @i, by torch.chunk's rule. */
static void add_step(const struct ck_torch_mesh *m, unsigned i,
		     struct ck_mesh_step *steps, unsigned *nr)
{
	steps[(*nr)++] = (struct ck_mesh_step){
		.split = { CK_SIZES_CEIL, m->size[i], NULL },
		.dim = (uint8_t)m->place[i].dim,
		.nr_axes = 1,
		.axis = { (uint8_t)i },
	};
}

/*
 * Mesh axes cut from left to right, but a strided shard cuts what all the axes
 * to its right have left; a split factor says so, and no other is known.
 */
bool ck_torch_mesh_box(const struct ck_torch_mesh *m,
		       struct ck_torch_piece *out)
{
	struct ck_mesh_step steps[CK_TORCH_MESH];
	struct ck_placed placed;
	unsigned nr = 0;

	for (unsigned i = 0; i < m->rank; i++) {
		if (m->place[i].how == CK_TORCH_REPLICATE)
			continue;
		if (m->place[i].dim >= out->rank)
			return false;
		if (m->place[i].how == CK_TORCH_SHARD)
			add_step(m, i, steps, &nr);
	}
	for (unsigned i = m->rank; i-- > 0;) {
		if (m->place[i].how != CK_TORCH_STRIDED)
			continue;
		if (!is_factor(m, i))
			return false;
		add_step(m, i, steps, &nr);
	}
	if (ck_mesh_place(steps, nr, m->at, out->shape, out->rank, &placed,
			  NULL))
		return false;
	memcpy(out->start, placed.start, out->rank * sizeof(*out->start));
	memcpy(out->len, placed.len, out->rank * sizeof(*out->len));
	return true;
}

static bool full_size(const struct ck_pickle *p, ck_pv size,
		      struct ck_torch_piece *out)
{
	return read_ints(p, size, out->shape, CK_MAX_RANK, &out->rank);
}

int ck_torch_dtensor(const struct ck_pickle *p, ck_pv v,
		     struct ck_torch_piece *out, struct ck_err *err)
{
	struct ck_torch_mesh m = { 0 };
	ck_pv size, state, spec;

	if (!open_wrapper(p, v, "DTensor", &size, &state))
		return 0;
	if (!full_size(p, size, out) ||
	    !state_key(p, state, "_local_tensor", &out->local) ||
	    !state_key(p, state, "_spec", &spec))
		return ck_fail(err, EINVAL, "a malformed DTensor");
	if (!read_spec(p, spec, &m) || !ck_torch_mesh_box(&m, out))
		return ck_fail(
			err, EINVAL,
			"a DTensor whose mesh or placements are not known");
	return 1;
}

static bool read_shard(const struct ck_pickle *p, ck_pv shard,
		       struct ck_torch_piece *out)
{
	ck_pv meta, offsets, sizes;
	unsigned a, b;

	return ck_pv_attr(p, shard, "tensor", &out->local) &&
	       ck_pv_attr(p, shard, "metadata", &meta) &&
	       ck_pv_attr(p, meta, "shard_offsets", &offsets) &&
	       ck_pv_attr(p, meta, "shard_sizes", &sizes) &&
	       read_ints(p, offsets, out->start, CK_MAX_RANK, &a) &&
	       read_ints(p, sizes, out->len, CK_MAX_RANK, &b) &&
	       a == out->rank && b == out->rank;
}

int ck_torch_sharded(const struct ck_pickle *p, ck_pv v, uint64_t i,
		     uint64_t *nr, struct ck_torch_piece *out,
		     struct ck_err *err)
{
	ck_pv size, state, shards, shard;

	if (!open_wrapper(p, v, "ShardedTensor", &size, &state))
		return 0;
	if (!full_size(p, size, out) || !ck_pv_at(p, state, 0, &shards) ||
	    ck_pv_kind(shards) != CK_P_LIST)
		return ck_fail(err, EINVAL, "a malformed ShardedTensor");
	*nr = ck_pv_len(p, shards);
	if (i >= *nr)
		return 1; /* this rank holds none, or no more */
	if (!ck_pv_at(p, shards, i, &shard) || !read_shard(p, shard, out))
		return ck_fail(
			err, EINVAL,
			"shard %" PRIu64 " of a ShardedTensor is malformed", i);
	return 1;
}
