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

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is trained ---- */

static int add_param(struct deepspeed_model *m, const struct ck_pq_each *e,
		     unsigned group, uint64_t *pos, struct ck_err *err)
{
	struct deepspeed_param new = { .name = e->name,
				       .name_len = e->len,
				       .shape = e->v,
				       .group = group,
				       .pos = *pos };
	uint64_t dims[CK_MAX_RANK];
	unsigned rank;

	if (!e->name)
		return ck_fail(err, EINVAL,
			       "%s: param_shapes: expected names as keys",
			       m->f.s->name);
	if (!ck_pq_dims(m->f.ts.pickle, e->v, "", dims, &rank) ||
	    !ck_dims_volume(dims, rank, &new.numel) ||
	    !ck_add_ok(*pos, new.numel, pos))
		return ck_fail(err, EINVAL,
			       "%s: param_shapes: no shape for %.*s",
			       m->f.s->name, (int)CK_MIN(e->len, 200), e->name);
	if (ck_strmap_has(&m->by_name, e->name, e->len))
		return ck_fail(err, EINVAL, "%s: param_shapes has %.*s twice",
			       m->f.s->name, (int)CK_MIN(e->len, 200), e->name);
	if (ck_strmap_put(&m->by_name, e->name, e->len) == CK_STRMAP_NONE)
		return ck_no_memory(err);
	return ck_vec_put(&m->params, err, new);
}

/* A list of groups; one dict in files of 2021. */
static int read_params(struct deepspeed_model *m, struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	bool list = ck_pv_kind(m->shapes) == CK_P_LIST;
	uint64_t pos = 0;
	int ret = 0;

	m->nr_groups = list ? ck_pv_len(p, m->shapes) :
			      ck_pv_kind(m->shapes) != CK_P_NONE;
	for (struct ck_pq_each e =
		     ck_pq_begin(p, m->shapes, list ? "[]/{}" : "{}");
	     !ret && ck_pq_next(&e);) {
		unsigned group = list ? e.at[0] : 0;

		if (!m->params.nr ||
		    m->params.v[m->params.nr - 1].group != group)
			pos = 0;
		ret = add_param(m, &e, group, &pos, err);
	}
	return ret;
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
	uint32_t at;

	if (len < 2 || s[0] != '^' || s[len - 1] != '$')
		return 0;
	name = ck_arena_alloc(&m->ld->mem, len);
	if (!name)
		return ck_no_memory(err);
	if (!unescape(s + 1, len - 2, name) ||
	    ck_strmap_has(&m->affine, name, strlen(name)))
		return 0;
	at = ck_strmap_put(&m->affine, name, strlen(name));
	if (at == CK_STRMAP_NONE)
		return ck_no_memory(err);
	m->affine.v[at].user = value;
	return 0;
}

static int read_affine(struct deepspeed_model *m, struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	ck_pv map;
	int ret = 0;

	if (!ck_pq(p, m->root, "universal_checkpoint_info/affine_map", &map) ||
	    ck_pq_int_or(p, map, "version", 0) != 1)
		return 0;
	for (struct ck_pq_each e = ck_pq_begin(p, map, "params/{}");
	     !ret && ck_pq_next(&e);)
		if (e.name)
			ret = add_affine(m, e.name, e.len, e.v, err);
	return ret;
}

/* What the record says of a rank; dicts are small: one key a rank. */
static bool find_rank(const struct ck_pickle *p, ck_pv record, int64_t want,
		      ck_pv *out)
{
	int64_t n;

	for (struct ck_pq_each e = ck_pq_begin(p, record, "ranks/{}");
	     ck_pq_next(&e);)
		if (ck_pv_int(p, e.key[0], &n) && n == want) {
			*out = e.v;
			return true;
		}
	return false;
}

/* [offset, strides] */
static bool read_view(const struct ck_pickle *p, ck_pv piece, const char *at,
		      unsigned rank, struct ck_cut_view *out)
{
	int64_t offset;
	unsigned nr;
	ck_pv v;

	if (!ck_pq(p, piece, at, &v) || !ck_pq_int(p, v, "0", &offset) ||
	    offset < 0 || !ck_pq_dims(p, v, "1", out->stride, &nr))
		return false;
	out->offset = (uint64_t)offset;
	return nr == rank;
}

static int add_piece(const struct ck_pickle *p, ck_pv v, struct ck_cut *cut,
		     struct ck_err *why)
{
	struct ck_cut_view whole, shard;
	uint64_t len[CK_MAX_RANK];
	unsigned rank;
	int ret = -EINVAL;

	if (ck_pq_dims(p, v, "shape", len, &rank) && rank == cut->rank &&
	    read_view(p, v, "source", rank, &whole) &&
	    read_view(p, v, "dest", rank, &shard))
		ret = ck_cut_add_views(cut, len, &whole, &shard, why);
	return ret != -EINVAL ?
		       ret :
		       ck_fail(why, EINVAL,
			       "a piece of its affine_map is no box of the tensor and of the shard");
}

static int cut_affine(const struct ck_pickle *p, ck_pv record, unsigned tp,
		      const uint64_t *shape, unsigned rank, struct ck_cut *cut,
		      struct ck_err *why)
{
	ck_pv mine, pieces;
	unsigned whole_rank, shard_rank;
	uint64_t volume;
	int ret = 0;

	*cut = (struct ck_cut){ .rank = rank };
	if (!ck_pq_dims(p, record, "logical_shape", cut->whole, &whole_rank) ||
	    !find_rank(p, record, tp, &mine) ||
	    !ck_pq_dims(p, mine, "shard_shape", cut->shard, &shard_rank) ||
	    !ck_pv_key(p, mine, "pieces", &pieces) ||
	    !ck_dims_volume(cut->whole, whole_rank, &volume) ||
	    !ck_dims_volume(cut->shard, shard_rank, &volume))
		return ck_fail(why, EINVAL,
			       "its affine_map says nothing of rank %u", tp);
	if (whole_rank != rank || shard_rank != rank ||
	    memcmp(cut->shard, shape, rank * sizeof(*shape)) != 0)
		return ck_fail(
			why, EINVAL,
			"its affine_map is of another shape than what is stored");
	for (struct ck_pq_each e = ck_pq_begin(p, pieces, "[]");
	     !ret && ck_pq_next(&e);)
		ret = add_piece(p, e.v, cut, why);
	return ret;
}

int ck_deepspeed_cut(const struct deepspeed_model *m, const char *name,
		     size_t name_len, const uint64_t *shape, unsigned rank,
		     struct ck_cut *cut, struct ck_err *why)
{
	uint32_t at = ck_strmap_get(&m->affine, name, name_len);

	if (m->nr_tp == 1)
		return ck_cut_whole(cut, shape, rank, why);
	if (at != CK_STRMAP_NONE)
		return cut_affine(m->f.ts.pickle, m->affine.v[at].user, m->tp,
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
	return ck_strmap_has(&m->buffers, name, len);
}

static int read_weights(struct deepspeed_model *m, struct ck_err *err)
{
	struct deepspeed_tensors t;

	ck_deepspeed_tensors(&t, m->f.ts.pickle, m->module);
	while (ck_deepspeed_next(&t)) {
		size_t nr = m->weights.nr;
		uint32_t at =
			ck_strmap_keep(&m->weights, &m->ld->mem, t.name, t.len);

		if (at == CK_STRMAP_NONE)
			return ck_no_memory(err);
		if (at == nr) /* the first of that name */
			m->weights.v[at].user = t.v;
	}
	return 0;
}

bool ck_deepspeed_weight(const struct deepspeed_model *m, const char *name,
			 size_t len, ck_pv *out)
{
	uint32_t at = ck_strmap_get(&m->weights, name, len);

	if (at != CK_STRMAP_NONE)
		*out = m->weights.v[at].user;
	return at != CK_STRMAP_NONE;
}

bool ck_deepspeed_holder(const struct deepspeed_model *m, uint32_t alias,
			 uint32_t *param)
{
	const char *s;
	size_t len;

	if (!ck_pv_str(m->f.ts.pickle, m->aliases.v[alias].user, &s, &len))
		return false;
	*param = ck_strmap_get(&m->by_name, s, len);
	return true;
}

/* ---- the two against each other ---- */

int ck_deepspeed_check_shape(struct deepspeed_load *ld,
			     const struct ck_torch_open *f, const char *where,
			     const char *name, size_t len, ck_pv v,
			     const uint64_t *dims, unsigned rank,
			     struct ck_err *err)
{
	ck_auto_str struct ck_str full = { 0 };
	ck_auto_str struct ck_str both = { 0 };
	struct ck_torch_tensor t;

	if (ck_torch_tensor_read(f->ts.pickle, v, &t, NULL) ||
	    (rank == t.rank && !memcmp(dims, t.shape, rank * sizeof(*dims))))
		return 0; /* what is no tensor is said where it is added */
	ck_str_json_u64(&both, t.shape, t.rank);
	ck_str_fmt(&both, " in %s, and ", where);
	ck_str_json_u64(&both, dims, rank);
	ck_str_puts(&full, "module.");
	ck_str_add(&full, name, len);
	if (both.failed || full.failed)
		return ck_no_memory(err);
	return ck_builder_problem(
		ld->b,
		&(const struct ck_problem_in){ .severity = CK_ERROR,
					       .tensor = full.v,
					       .tensor_len = full.len,
					       .file = f->s->name },
		err,
		"it is %s in param_shapes, by which the optimizers' states are found: one of the two is wrong",
		both.v);
}

static int check_param(const struct deepspeed_model *m,
		       const struct deepspeed_param *is, ck_pv v,
		       struct ck_err *err)
{
	uint64_t dims[CK_MAX_RANK];
	unsigned rank;

	if (!ck_pq_dims(m->f.ts.pickle, is->shape, "", dims, &rank))
		return 0;
	return ck_deepspeed_check_shape(m->ld, &m->f, "module", is->name,
					is->name_len, v, dims, rank, err);
}

int ck_deepspeed_check_shapes(const struct deepspeed_model *m,
			      struct ck_err *err)
{
	const struct deepspeed_param *lost = NULL;
	size_t nr_lost = 0;
	int ret = 0;

	/* Pipelines and experts have weights elsewhere, stage 3 has none. */
	for (size_t i = 0; i < m->params.nr && !ret && !m->stage3; i++) {
		const struct deepspeed_param *is = &m->params.v[i];
		ck_pv v;

		if (ck_deepspeed_weight(m, is->name, is->name_len, &v))
			ret = check_param(m, is, v, err);
		else if (!nr_lost++)
			lost = is;
	}
	if (ret || !nr_lost || m->moe || ck_pv_kind(m->module) == CK_P_NONE)
		return ret;
	return deepspeed_problem(
		m->ld, CK_ERROR, m->f.s->name, err,
		"trained parameters in param_shapes that are not in module: %zu, the first is %.*s; their weights are lost",
		nr_lost, (int)CK_MIN(lost->name_len, 200), lost->name);
}

static void say_param(struct ck_str *out, const struct ck_pickle *p,
		      const char *name, size_t len, ck_pv shape)
{
	uint64_t dims[CK_MAX_RANK];
	unsigned rank;

	ck_str_add(out, name, CK_MIN(len, 200));
	if (ck_pq_dims(p, shape, "", dims, &rank)) {
		ck_str_puts(out, " ");
		ck_str_json_u64(out, dims, rank);
	}
}

static int say_params(const struct deepspeed_model *m,
		      const struct ck_torch_open *f, const char *name,
		      size_t len, ck_pv shape, const struct deepspeed_param *is,
		      struct ck_err *err)
{
	ck_auto_str struct ck_str text = { 0 };

	if (name)
		say_param(&text, f->ts.pickle, name, len, shape);
	ck_str_puts(&text, name ? " in param_shapes" : "its param_shapes ends");
	ck_str_puts(&text, ", where ");
	ck_str_puts(&text, m->f.s->name);
	ck_str_puts(&text, " has ");
	if (is)
		say_param(&text, m->f.ts.pickle, is->name, is->name_len,
			  is->shape);
	ck_str_puts(&text, is ? ": one of the two is wrong" :
				"no more: one of the two is wrong");
	return text.failed ? ck_no_memory(err) :
			     deepspeed_problem(m->ld, CK_ERROR, f->s->name, err,
					       "%s", text.v);
}

/* Whether it is called so, and has that shape. */
static bool is_param(const struct deepspeed_model *m,
		     const struct deepspeed_param *is,
		     const struct ck_pickle *p, const struct ck_pq_each *e)
{
	uint64_t a[CK_MAX_RANK], b[CK_MAX_RANK];
	unsigned ra, rb;

	return e->len == is->name_len && !memcmp(e->name, is->name, e->len) &&
	       ck_pq_dims(m->f.ts.pickle, is->shape, "", a, &ra) &&
	       ck_pq_dims(p, e->v, "", b, &rb) && ra == rb &&
	       !memcmp(a, b, ra * sizeof(*a));
}

int ck_deepspeed_check_params(const struct deepspeed_model *m,
			      const struct ck_torch_open *f, struct ck_err *err)
{
	const struct ck_pickle *p = f->ts.pickle;
	bool list;
	size_t i = 0;
	ck_pv v;

	if (!m->names || !ck_pv_key(p, ck_pickle_root(p), "param_shapes", &v))
		return 0;
	list = ck_pv_kind(v) == CK_P_LIST;
	for (struct ck_pq_each e = ck_pq_begin(p, v, list ? "[]/{}" : "{}");
	     ck_pq_next(&e); i++) {
		const struct deepspeed_param *is =
			i < m->params.nr ? &m->params.v[i] : NULL;

		if (e.name && (!is || !is_param(m, is, p, &e)))
			return say_params(m, f, e.name, e.len, e.v, is, err);
	}
	if (i >= m->params.nr)
		return 0;
	return say_params(m, f, NULL, 0, v, &m->params.v[i], err);
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
	int ret;

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
	m->moe = ck_pv_key(p, root, "num_experts", &v);
	m->names = ck_pv_key(p, root, "param_shapes", &m->shapes);
	ret = read_weights(m, err);
	if (!ret && m->names)
		ret = read_params(m, err);
	if (!ret)
		ret = ck_pq_index(&m->buffers, p, root, "buffer_names/[]", err);
	if (!ret)
		ret = ck_pq_index(&m->aliases, p, root, "shared_params/{}",
				  err);
	if (!ret)
		ret = ck_pq_index(&m->frozen, p, root, "frozen_param_shapes/{}",
				  err);
	return ret ? ret : read_affine(m, err);
}

void ck_deepspeed_model_free(struct deepspeed_model *m)
{
	const struct deepspeed_model rank = {
		.ld = m->ld, .mp = m->mp, .tp = m->tp, .nr_tp = m->nr_tp
	};
	struct ck_strmap *maps[] = { &m->weights, &m->by_name, &m->affine,
				     &m->buffers, &m->aliases, &m->frozen };

	for (size_t i = 0; i < CK_ARRAY_LEN(maps); i++)
		ck_strmap_free(maps[i]);
	free(m->params.v);
	ck_torch_open_close(&m->f);
	*m = rank;
}
