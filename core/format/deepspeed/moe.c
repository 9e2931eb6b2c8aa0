/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe.c - which optimizer files share a parameter group of experts
 *
 *   base_optimizer_state.param_groups [{name: 'ep_size_2', moe: True, ...}]
 *   partition_count                   [ranks of each group]
 *   param_slice_mappings              [{NAME: ...}]
 *
 * Where there are experts, groups are not partitioned over all ranks: of W
 * ranks, E = W / count hold different experts, rank R those of part R % E, of
 * which it has partition R / E.  The order of the groups differs from rank to
 * rank; their names tell.  The fragments of the slice table are counted wrong
 * before DeepSpeed 0.15, so of them only the names are used.
 */
#include "core/format/deepspeed/moe.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool ck_ds_is_moe(const struct ck_ds_model *m)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	ck_pv v;

	return p && ck_pv_key(p, ck_pickle_root(p), "num_experts", &v);
}

static int add_group(struct ck_ds_rank *r, const struct ck_pickle *p, ck_pv v,
		     struct ck_err *err)
{
	struct ck_ds_group *to = ck_vec_push(&r->groups);
	const char *s = "";
	size_t len = 0;
	int64_t moe;
	ck_pv name;

	if (!to)
		return ck_fail(err, ENOMEM, "no memory for groups");
	*to = (struct ck_ds_group){ 0 };
	if (ck_pv_key(p, v, "name", &name))
		ck_pv_str(p, name, &s, &len);
	to->name = strndup(s, len);
	if (!to->name)
		return ck_fail(err, ENOMEM, "no memory for a name");
	to->moe = ck_pv_key(p, v, "moe", &name) && ck_pv_int(p, name, &moe) &&
		  moe;
	for (size_t i = 0; i + 1 < r->groups.nr; i++)
		to->nth += !strcmp(r->groups.v[i].name, to->name);
	return 0;
}

static int keep_names(struct ck_ds_zero *z, const struct ck_pickle *p,
		      ck_pv lists, struct ck_err *err)
{
	struct ck_piter groups, it;
	ck_pv group, key, v;
	const char *s;
	size_t len;

	ck_piter_init(&groups, p, lists);
	while (ck_piter_next(&groups, &group)) {
		ck_piter_init_pairs(&it, p, group);
		while (ck_piter_next2(&it, &key, &v)) {
			char *copy, **to;

			if (!ck_pv_str(p, key, &s, &len) ||
			    ck_strmap_get(&z->trained, s, len) !=
				    CK_STRMAP_NONE)
				continue;
			copy = strndup(s, len);
			to = copy ? ck_vec_push(&z->kept) : NULL;
			if (to)
				*to = copy;
			else
				free(copy);
			if (!to || ck_strmap_put(&z->trained, copy, len) ==
					   CK_STRMAP_NONE)
				return ck_fail(err, ENOMEM,
					       "no memory for names");
		}
	}
	return 0;
}

/* The counts of all groups; that of those without experts is of all ranks. */
static int read_counts(struct ck_ds_rank *r, const struct ck_pickle *p,
		       ck_pv list, const char *file, struct ck_err *err)
{
	struct ck_piter it;
	size_t i = 0;
	ck_pv item;
	int64_t n;

	ck_piter_init(&it, p, list);
	for (; ck_piter_next(&it, &item) && i < r->groups.nr; i++) {
		struct ck_ds_group *g = &r->groups.v[i];

		if (!ck_pv_int(p, item, &n) || n <= 0 || n > CK_DS_MAX_RANKS)
			return ck_fail(err, EINVAL,
				       "%s: partition_count is no number",
				       file);
		g->count = (uint64_t)n;
		if (g->moe)
			continue;
		if (r->count && r->count != g->count)
			return ck_fail(
				err, EINVAL,
				"%s: groups without experts are partitioned over %" PRIu64
				" and over %" PRIu64 " ranks",
				file, r->count, g->count);
		r->count = g->count;
	}
	return i == r->groups.nr && r->count ?
		       0 :
		       ck_fail(err, EINVAL,
			       "%s: partition_count and param_groups differ, or all groups are of experts, which is not read",
			       file);
}

int ck_ds_moe_groups_read(struct ck_ds_zero *z, struct ck_ds_rank *r,
			  const struct ck_pickle *p, ck_pv inner,
			  const char *file, struct ck_err *err)
{
	ck_pv base, list, item;
	struct ck_piter it;
	int ret = 0;

	if (!ck_pv_key(p, inner, "base_optimizer_state", &base) ||
	    !ck_pv_key(p, base, "param_groups", &list) ||
	    !ck_pv_key(p, inner, "partition_count", &item))
		return ck_fail(
			err, EINVAL,
			"%s: no param_groups or partition_count, which say who has which experts",
			file);
	ck_piter_init(&it, p, list);
	while (!ret && ck_piter_next(&it, &base))
		ret = add_group(r, p, base, err);
	if (!ret)
		ret = read_counts(r, p, item, file, err);
	if (!ret && ck_pv_key(p, inner, "param_slice_mappings", &list))
		ret = keep_names(z, p, list, err);
	return ret;
}

static struct ck_ds_vec *find_vec(struct ck_ds_vecs *vs,
				  const struct ck_ds_group *g, uint64_t ep)
{
	for (size_t i = 0; i < vs->v.nr; i++) {
		struct ck_ds_vec *v = &vs->v.v[i];

		if (v->moe == g->moe && v->nth == g->nth && v->ep == ep &&
		    v->count == g->count && !strcmp(v->name, g->name))
			return v;
	}
	return NULL;
}

static int add_member(struct ck_ds_vecs *vs, const struct ck_ds_zero *z,
		      const struct ck_ds_rank *r, uint32_t group,
		      struct ck_err *err)
{
	const struct ck_ds_group *g = &r->groups.v[group];
	uint64_t nr_ep = g->moe ? z->count / g->count : 1;
	struct ck_ds_vec *v;

	if (!nr_ep || z->count % g->count)
		return ck_fail(err, EINVAL,
			       "%s: group %" PRIu32
			       " is partitioned over %" PRIu64 " of %" PRIu64
			       " ranks, which is no part of them",
			       r->file->name, group, g->count, z->count);
	v = find_vec(vs, g, r->dp % nr_ep);
	if (!v) {
		v = ck_vec_push(&vs->v);
		if (!v)
			return ck_fail(err, ENOMEM, "no memory for groups");
		*v = (struct ck_ds_vec){
			.name = g->name,
			.nth = g->nth,
			.moe = g->moe,
			.ep = r->dp % nr_ep,
			.nr_ep = nr_ep,
			.count = g->count,
			.of = calloc(g->count, sizeof(*v->of)),
		};
		if (!v->of)
			return ck_fail(err, ENOMEM, "no memory for groups");
	}
	v->of[r->dp / nr_ep] = (struct ck_ds_member){ r, group };
	return 0;
}

const struct ck_ds_flat *ck_ds_flat_of(const struct ck_ds_member *m,
				       uint32_t state)
{
	for (size_t i = 0; m->r && i < m->r->flats.nr; i++)
		if (m->r->flats.v[i].state == state &&
		    m->r->flats.v[i].group == m->group)
			return &m->r->flats.v[i];
	return NULL;
}

/* That of the first, which is never cut off; 0 where one is not there. */
static uint64_t size_of(const struct ck_ds_vec *v)
{
	uint64_t size = 0;

	for (uint64_t k = 0; k < v->count; k++) {
		const struct ck_ds_flat *f = ck_ds_flat_of(&v->of[k], 0);

		if (!f || (k && f->run.len > size))
			return 0;
		if (!k)
			size = f->run.len;
	}
	return size;
}

int ck_ds_vecs_find(struct ck_ds_vecs *vs, const struct ck_ds_zero *z,
		    struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < z->ranks.nr && !ret; i++) {
		const struct ck_ds_rank *r = &z->ranks.v[i];

		for (uint32_t g = 0; r->usable && g < r->groups.nr && !ret; g++)
			ret = add_member(vs, z, r, g, err);
	}
	for (size_t i = 0; i < vs->v.nr && !ret; i++)
		vs->v.v[i].size = size_of(&vs->v.v[i]);
	return ret;
}

void ck_ds_vecs_free(struct ck_ds_vecs *vs)
{
	for (size_t i = 0; i < vs->v.nr; i++)
		free(vs->v.v[i].of);
	free(vs->v.v);
	*vs = (struct ck_ds_vecs){ 0 };
}
