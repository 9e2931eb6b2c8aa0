/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.c - what one optimizer file holds: flat vectors, and its checks
 *
 *   stages 1, 2:  single_partition_of_fp32_groups [group], padding cut off;
 *                 base_optimizer_state.state[group], padding kept, or a list
 *                 (elastic_checkpoint), padding cut off
 *   stage 3:      fp32_flat_groups [sub-group],
 *                 optimizer_state_dict.state[sub-group]
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/check.h"
#include "core/container/torch_walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct reading {
	struct ck_ds_zero *z;
	struct ck_ds_rank *r;
	struct ck_torch_open *f;
	const struct ck_pickle *p;
};

static int state_number(struct ck_ds_zero *z, const char *name, size_t len,
			uint32_t *out, struct ck_err *err)
{
	for (*out = 0; *out < z->nr_states; ++*out)
		if (strlen(z->states[*out]) == len &&
		    !memcmp(z->states[*out], name, len))
			return 0;
	if (z->nr_states == CK_DS_MAX_STATES)
		return ck_fail(err, E2BIG, "over %d optimizer states",
			       CK_DS_MAX_STATES);
	z->states[z->nr_states] = strndup(name, len);
	if (!z->states[z->nr_states])
		return ck_fail(err, ENOMEM, "no memory for a name");
	z->nr_states++;
	return 0;
}

static int say(struct reading *rd, struct ck_err *err, const char *what)
{
	const struct ck_problem_in p = { .severity = CK_ERROR,
					 .file = rd->f->s->name };

	return ck_builder_problem(rd->z->b, &p, err, "%s", what);
}

/* A vector becomes a flat; what is no tensor, or has no axis, is left. */
static int add_flat(struct reading *rd, uint32_t state, uint64_t group, ck_pv v,
		    struct ck_err *err)
{
	struct ck_ds_flat *to,
		new = { .state = state, .group = (uint32_t)group };
	struct ck_torch_place *at = &new.run.place;
	struct ck_err why = { 0 };
	int ret;

	if (!ck_torch_is_rebuild(rd->p, v))
		return 0;
	ret = ck_torch_place(rd->f, v, at, &why);
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	if (ret)
		return say(rd, err, why.msg);
	if (at->t.rank != 1 || (at->t.shape[0] > 1 && at->t.stride[0] != 1))
		return at->t.rank ?
			       say(rd, err,
				   "an optimizer state is no flat vector: it is left out") :
			       0;
	new.run.len = at->t.shape[0];
	to = ck_vec_push(&rd->r->flats);
	if (!to)
		return ck_fail(err, ENOMEM, "no memory for vectors");
	*to = new;
	return 0;
}

/* A list of one vector a group. */
static int read_weights(struct reading *rd, ck_pv list, struct ck_err *err)
{
	struct ck_piter it;
	uint64_t group = 0;
	ck_pv v;
	int ret = 0;

	ck_piter_init(&it, rd->p, list);
	while (!ret && ck_piter_next(&it, &v))
		ret = add_flat(rd, 0, group++, v, err);
	return ret;
}

/* The first group's step stands for all. */
static int read_step(struct reading *rd, ck_pv v, struct ck_err *err)
{
	int ret;

	if (rd->r->has_step)
		return 0;
	ret = ck_torch_number(rd->f, v, &rd->r->step);
	if (ret < 0)
		return ck_fail(err, ENOMEM, "no memory for a step");
	rd->r->has_step = ret && rd->r->step >= 0 && rd->r->step < 1e15;
	return 0;
}

/* {exp_avg: vector, exp_avg_sq: vector, step: number, ...} of one group. */
static int read_state(struct reading *rd, uint64_t group, ck_pv dict,
		      struct ck_err *err)
{
	struct ck_piter it;
	ck_pv key, v;
	int ret = 0;

	ck_piter_init_pairs(&it, rd->p, dict);
	while (!ret && ck_piter_next2(&it, &key, &v)) {
		char number[24];
		const char *name;
		uint32_t state;
		size_t len;

		if (!ck_pv_key_text(rd->p, key, number, &name, &len))
			continue;
		if (len == 4 && !memcmp(name, "step", 4)) {
			ret = read_step(rd, v, err);
			continue;
		}
		if (!ck_torch_is_rebuild(rd->p, v))
			continue;
		ret = state_number(rd->z, name, len, &state, err);
		if (!ret)
			ret = add_flat(rd, state, group, v, err);
	}
	return ret;
}

static int read_states(struct reading *rd, ck_pv base, struct ck_err *err)
{
	struct ck_piter it;
	ck_pv states, key, v;
	uint64_t group = 0;
	int64_t n;
	int ret = 0;

	if (ck_pv_kind(base) == CK_P_LIST) { /* elastic_checkpoint */
		ck_piter_init(&it, rd->p, base);
		while (!ret && ck_piter_next(&it, &v))
			ret = read_state(rd, group++, v, err);
		return ret;
	}
	if (!ck_pv_key(rd->p, base, "state", &states))
		return 0;
	ck_piter_init_pairs(&it, rd->p, states);
	while (!ret && ck_piter_next2(&it, &key, &v))
		if (ck_pv_int(rd->p, key, &n) && n >= 0 && n < UINT32_MAX)
			ret = read_state(rd, (uint64_t)n, v, err);
	return ret;
}

/* A number, or a list with one for each group, which must be equal. */
static int read_count(struct reading *rd, ck_pv v, struct ck_err *err)
{
	struct ck_piter it;
	ck_pv item;
	int64_t n;

	if (ck_pv_int(rd->p, v, &n)) {
		rd->r->count = n > 0 ? (uint64_t)n : 0;
		return 0;
	}
	ck_piter_init(&it, rd->p, v);
	while (ck_piter_next(&it, &item)) {
		if (!ck_pv_int(rd->p, item, &n) || n <= 0)
			return ck_fail(err, EINVAL,
				       "%s: partition_count is no number",
				       rd->f->s->name);
		if (rd->r->count && rd->r->count != (uint64_t)n)
			return ck_fail(
				err, EINVAL,
				"%s: groups are partitioned over %" PRIu64
				" and over %" PRIi64
				" ranks, as experts are, which is not read",
				rd->f->s->name, rd->r->count, n);
		rd->r->count = (uint64_t)n;
	}
	return 0;
}

/* Unused elements after each parameter, in the order of param_shapes. */
static int read_paddings(struct reading *rd, ck_pv lists, struct ck_err *err)
{
	struct ck_piter groups, it;
	ck_pv group, item;
	int64_t n;

	ck_piter_init(&groups, rd->p, lists);
	while (ck_piter_next(&groups, &group)) {
		ck_piter_init(&it, rd->p, group);
		while (ck_piter_next(&it, &item)) {
			uint64_t *to = ck_vec_push(&rd->r->paddings);

			if (!to)
				return ck_fail(err, ENOMEM, "no memory");
			if (!ck_pv_int(rd->p, item, &n) || n < 0)
				return ck_fail(
					err, EINVAL,
					"%s: param_alignment_paddings: expected counts",
					rd->f->s->name);
			*to = (uint64_t)n;
		}
	}
	return 0;
}

static int flat_order(const void *pa, const void *pb)
{
	const struct ck_ds_flat *a = pa, *b = pb;

	if (a->state != b->state)
		return a->state < b->state ? -1 : 1;
	return a->group < b->group ? -1 : a->group > b->group;
}

/*
 * Stage 3: sub-groups follow each other; how long they are is what the weights
 * say, and vectors of another length are no states of single elements.
 */
static int join_groups(struct reading *rd, struct ck_err *err)
{
	struct ck_ds_rank *r = rd->r;
	uint64_t at = 0;
	size_t nr = 0, kept;

	while (nr < r->flats.nr && !r->flats.v[nr].state) {
		if (r->flats.v[nr].group != nr)
			return ck_fail(err, EINVAL,
				       "%s: sub-group %zu has no vector",
				       rd->f->s->name, nr);
		r->flats.v[nr].run.at = at;
		if (!ck_add_ok(at, r->flats.v[nr++].run.len, &at))
			return ck_fail(err, EINVAL, "%s: vectors overflow",
				       rd->f->s->name);
	}
	kept = nr;
	for (size_t i = nr; i < r->flats.nr; i++) {
		struct ck_ds_flat *f = &r->flats.v[i];

		if (f->group >= nr ||
		    r->flats.v[f->group].run.len != f->run.len)
			continue;
		f->run.at = r->flats.v[f->group].run.at;
		r->flats.v[kept++] = *f;
	}
	if (kept == r->flats.nr)
		return 0;
	r->flats.nr = kept;
	return say(
		rd, err,
		"a state is of another size than the weights: it is left out");
}

static int read_inner(struct reading *rd, ck_pv inner, struct ck_err *err)
{
	const struct ck_pickle *p = rd->p;
	ck_pv v;
	int ret = 0;

	rd->r->stage3 = ck_pv_key(p, inner, "fp32_flat_groups", &v);
	if (rd->r->stage3 ||
	    ck_pv_key(p, inner, "single_partition_of_fp32_groups", &v))
		ret = read_weights(rd, v, err);
	if (!ret && rd->z->moe)
		ret = ck_ds_moe_groups_read(rd->z, rd->r, p, inner,
					    rd->f->s->name, err);
	else if (!ret && ck_pv_key(p, inner, "partition_count", &v))
		ret = read_count(rd, v, err);
	if (!ret && ck_pv_key(p, inner,
			      rd->r->stage3 ? "optimizer_state_dict" :
					      "base_optimizer_state",
			      &v))
		ret = read_states(rd, v, err);
	if (!ret && ck_pv_key(p, inner, "param_alignment_paddings", &v))
		ret = read_paddings(rd, v, err);
	if (!ret && !rd->r->stage3 && !rd->z->moe &&
	    ck_pv_key(p, inner, "param_slice_mappings", &v))
		ret = ck_ds_slices_read(rd->r, rd->z->m, p, v, err);
	if (!ret && rd->r->flats.nr)
		qsort(rd->r->flats.v, rd->r->flats.nr, sizeof(*rd->r->flats.v),
		      flat_order);
	return !ret && rd->r->stage3 ? join_groups(rd, err) : ret;
}

int ck_ds_rank_read(struct ck_ds_zero *z, struct ck_ds_rank *r,
		    struct ck_torch_open *f, struct ck_err *err)
{
	struct reading rd = { .z = z, .r = r, .f = f, .p = f->ts.pickle };
	struct ck_err why = { 0 };
	ck_pv inner;
	int ret;

	if (!ck_pv_key(rd.p, ck_pickle_root(rd.p), "optimizer_state_dict",
		       &inner))
		return say(&rd, err, "no optimizer_state_dict in it");
	ret = read_inner(&rd, inner, &why);
	if (ret == -EINVAL)
		return say(&rd, err, why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	r->usable = true;
	return 0;
}

void ck_ds_rank_free(struct ck_ds_rank *r)
{
	free(r->flats.v);
	for (size_t i = 0; i < r->groups.nr; i++)
		free(r->groups.v[i].name);
	free(r->groups.v);
	free(r->slices.v);
	free(r->paddings.v);
	*r = (struct ck_ds_rank){ 0 };
}
