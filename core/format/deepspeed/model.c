/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - what a model file says of names, shapes and their order
 *
 * param_shapes is the layout of the optimizer files: groups of names, each
 * taking as many elements of the group's vector as its shape has.
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/check.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int add_param(struct ck_ds_model *m, ck_pv key, ck_pv shape,
		     uint64_t *pos, struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	struct ck_ds_param *to, new = { .shape = shape,
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
		return ck_fail(err, ENOMEM, "no memory for parameters");
	*to = new;
	return 0;
}

static int add_group(struct ck_ds_model *m, ck_pv group, struct ck_err *err)
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
static int read_params(struct ck_ds_model *m, ck_pv shapes, struct ck_err *err)
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

static int read_aliases(struct ck_ds_model *m, ck_pv shared, struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	struct ck_piter it;
	ck_pv key, value;

	ck_piter_init_pairs(&it, p, shared);
	while (ck_piter_next2(&it, &key, &value)) {
		struct ck_ds_alias a, *to;

		if (!ck_pv_str(p, key, &a.name, &a.name_len) ||
		    !ck_pv_str(p, value, &a.holder, &a.holder_len))
			continue;
		to = ck_vec_push(&m->aliases);
		if (!to)
			return ck_fail(err, ENOMEM, "no memory for names");
		*to = a;
	}
	return 0;
}

static int64_t whole_number(const struct ck_pickle *p, ck_pv dict,
			    const char *key, int64_t otherwise)
{
	int64_t n;
	ck_pv v;

	return ck_pv_key(p, dict, key, &v) && ck_pv_int(p, v, &n) && n >= 0 ?
		       n :
		       otherwise;
}

static void read_degrees(struct ck_ds_model *m, ck_pv root)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	ck_pv dims;
	int64_t n;

	if (!ck_pv_key(p, root, "checkpoint_parallel_dimensions", &dims))
		return;
	n = whole_number(p, dims, "pp_degree", 0);
	m->pp_degree = n <= CK_DS_MAX_RANKS ? (unsigned)n : 0;
	n = whole_number(p, dims, "tp_degree", 0);
	m->tp_degree = n <= CK_DS_MAX_RANKS ? (unsigned)n : 0;
}

int ck_ds_model_read(struct ck_ds_model *m, struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	ck_pv root = ck_pickle_root(p), v;
	int ret = 0;

	m->steps = whole_number(p, root, "global_steps", -1);
	m->skipped = whole_number(p, root, "skipped_steps", 0);
	read_degrees(m, root);
	if (!ck_pv_key(p, root, "module", &m->module)) /* pipelines: None */
		return ck_fail(err, EINVAL,
			       "it has no module: it is no model file");
	if (!ck_pv_key(p, root, "frozen_param_shapes", &m->frozen_shapes))
		m->frozen_shapes = 0;
	if (!ck_pv_key(p, root, "frozen_param_fragments", &m->frozen_parts))
		m->frozen_parts = 0;
	if (!ck_pv_key(p, root, "buffer_names", &m->buffers))
		m->buffers = 0;
	m->names = ck_pv_key(p, root, "param_shapes", &v);
	if (m->names)
		ret = read_params(m, v, err);
	if (!ret && ck_pv_key(p, root, "shared_params", &v))
		ret = read_aliases(m, v, err);
	if (!ret && ck_pv_key(p, root, "universal_checkpoint_info", &v))
		ret = ck_ds_affine_read(m, v, err);
	return ret;
}

void ck_ds_model_free(struct ck_ds_model *m)
{
	for (size_t i = 0; i < m->kept.nr; i++)
		free(m->kept.v[i]);
	free(m->kept.v);
	free(m->params.v);
	free(m->aliases.v);
	free(m->affine_values.v);
	ck_strmap_free(&m->by_name);
	ck_strmap_free(&m->affine_names);
	ck_torch_open_close(&m->f);
	*m = (struct ck_ds_model){ 0 };
}

bool ck_ds_is_buffer(const struct ck_ds_model *m, const char *name, size_t len)
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

int ck_ds_cut(const struct ck_ds_model *m, const char *name, size_t name_len,
	      const uint64_t *shape, unsigned rank, struct ck_cut *cut,
	      struct ck_err *why)
{
	uint32_t at;

	if (m->nr_tp == 1)
		return ck_cut_whole(cut, shape, rank, why);
	at = ck_strmap_get(&m->affine_names, name, name_len);
	if (at != CK_STRMAP_NONE)
		return ck_ds_affine_cut(m->f.ts.pickle, m->affine_values.v[at],
					m->tp, shape, rank, cut, why);
	if (ck_ds_is_buffer(m, name, name_len))
		return ck_cut_whole(cut, shape, rank, why);
	return ck_fail(
		why, EINVAL,
		"%u tensor-parallel ranks share it, and universal_checkpoint_info's affine_map in %s does not say how",
		m->nr_tp, m->f.s->name);
}

int ck_ds_path(struct ck_builder *b, const char *kind, const char *name,
	       size_t name_len, struct ck_str *full, struct ck_err *err)
{
	const struct ck_path_part parts[] = {
		{ .key = kind, .key_len = strlen(kind), .index = -1 },
		{ .key = name, .key_len = name_len, .index = -1 },
	};

	full->len = 0;
	ck_str_fmt(full, "%s.", kind);
	ck_str_add(full, name, name_len);
	if (full->failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	return ck_builder_path(b, 0, full->v, full->len, parts, 2, err);
}
