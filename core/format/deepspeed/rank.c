/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank.c - what one optimizer file holds: flat vectors, and what is said of them
 *
 *   stages 1, 2:  single_partition_of_fp32_groups [group], padding cut off;
 *                 base_optimizer_state.state[group], padding kept, or a list
 *                 (elastic_checkpoint), padding cut off
 *   stage 3:      fp32_flat_groups [sub-group],
 *                 optimizer_state_dict.state[sub-group]
 *
 *   param_slice_mappings  [{NAME: fragment_address(numel, start), ...}, ...]
 *   partition_count       how many ranks, or a list with one of each group
 */
#include "core/format/deepspeed/deepspeed.h"

#include "core/base/check.h"
#include "core/base/search.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct reading {
	struct deepspeed_zero *z;
	struct deepspeed_rank *r;
	struct ck_torch_open *f;
	const struct ck_pickle *p;
};

static int problem(struct reading *rd, struct ck_err *err, const char *what)
{
	return deepspeed_problem(rd->z->ld, CK_ERROR, rd->f->s->name, err, "%s",
				 what);
}

/* ---- vectors ---- */

/* A vector becomes a flat; what is no tensor, or has no axis, is left. */
static int add_flat(struct reading *rd, uint32_t state, uint32_t group, ck_pv v,
		    struct ck_err *err)
{
	struct deepspeed_flat new = { .state = state, .group = group };
	struct ck_torch_place at;
	struct ck_err why = { 0 };
	int ret;

	if (!ck_torch_is_rebuild(rd->p, v))
		return 0;
	ret = ck_torch_place(rd->f, v, &at, &why);
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	if (ret)
		return problem(rd, err, why.msg);
	if (at.t.rank != 1 || (at.t.shape[0] > 1 && at.t.stride[0] != 1))
		return at.t.rank ?
			       problem(rd, err,
				       "an optimizer state is no flat vector: it is left out") :
			       0;
	new.run.len = at.t.shape[0];
	new.run.x = at.x;
	new.run.x.shape = NULL;
	new.run.x.stride = NULL;
	return ck_vec_put(&rd->r->flats, err, new);
}

int ck_deepspeed_states_each(const struct ck_pickle *p, ck_pv base,
			     deepspeed_state_fn fn, void *ctx,
			     struct ck_err *err)
{
	/* elastic_checkpoint has a list */
	bool list = ck_pv_kind(base) == CK_P_LIST;
	int ret = 0;

	for (struct ck_pq_each e =
		     ck_pq_begin(p, base, list ? "[]/{}" : "state/{}/{}");
	     !ret && ck_pq_next(&e);) {
		int64_t n = e.at[0];

		if (list ||
		    (ck_pv_int(p, e.key[0], &n) && n >= 0 && n < UINT32_MAX))
			ret = fn(ctx, (uint32_t)n, e.key[1], e.v, err);
	}
	return ret;
}

static int add_state(void *ctx, uint32_t vector, ck_pv key, ck_pv v,
		     struct ck_err *err)
{
	struct reading *rd = ctx;
	struct deepspeed_rank *r = rd->r;
	char number[24];
	const char *name;
	uint32_t state;
	size_t len;
	int ret;

	if (!ck_pv_key_text(rd->p, key, number, &name, &len))
		return 0;
	if (len == 4 && !memcmp(name, "step", 4)) {
		if (r->has_step) /* the first group's stands for all */
			return 0;
		ret = ck_torch_number(rd->f, v, &r->step);
		r->has_step = ret > 0 && r->step >= 0 && r->step < 1e15;
		return ret < 0 ? ck_no_memory(err) : 0;
	}
	if (!ck_torch_is_rebuild(rd->p, v))
		return 0;
	state = ck_strmap_keep(&rd->z->states, &rd->z->ld->mem, name, len);
	if (state == CK_STRMAP_NONE)
		return ck_no_memory(err);
	return state < DEEPSPEED_MAX_STATES ?
		       add_flat(rd, state, vector, v, err) :
		       ck_fail(err, E2BIG, "over %d optimizer states",
			       DEEPSPEED_MAX_STATES);
}

static int flat_order(const void *pa, const void *pb)
{
	const struct deepspeed_flat *a = pa, *b = pb;

	return ck_order2(a->state, b->state, a->group, b->group);
}

/*
 * Stage 3: sub-groups follow each other; how long they are is what the weights
 * say, and vectors of another length are no states of single elements.
 */
static int join_groups(struct reading *rd, struct ck_err *err)
{
	struct deepspeed_rank *r = rd->r;
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
		struct deepspeed_flat *f = &r->flats.v[i];

		if (f->group >= nr ||
		    r->flats.v[f->group].run.len != f->run.len)
			continue;
		f->run.at = r->flats.v[f->group].run.at;
		r->flats.v[kept++] = *f;
	}
	if (kept == r->flats.nr)
		return 0;
	r->flats.nr = kept;
	return problem(
		rd, err,
		"a state is of another size than the weights: it is left out");
}

/* ---- what is said of them ---- */

/* A number, or a list with one for each group, which must be equal. */
static int read_count(struct reading *rd, ck_pv v, struct ck_err *err)
{
	int64_t n;

	if (ck_pv_int(rd->p, v, &n)) {
		rd->r->count = n > 0 ? (uint64_t)n : 0;
		return 0;
	}
	for (struct ck_pq_each e = ck_pq_begin(rd->p, v, "[]");
	     ck_pq_next(&e);) {
		if (!ck_pv_int(rd->p, e.v, &n) || n <= 0)
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
static int read_paddings(struct reading *rd, ck_pv inner, struct ck_err *err)
{
	int64_t n;
	int ret = 0;

	for (struct ck_pq_each e = ck_pq_begin(
		     rd->p, inner, "param_alignment_paddings/[]/[]");
	     !ret && ck_pq_next(&e);) {
		if (!ck_pv_int(rd->p, e.v, &n) || n < 0)
			return ck_fail(
				err, EINVAL,
				"%s: param_alignment_paddings: expected counts",
				rd->f->s->name);
		ret = ck_vec_put(&rd->r->paddings, err, (uint64_t)n);
	}
	return ret;
}

static int add_slice(struct reading *rd, uint32_t group, const char *name,
		     size_t len, ck_pv v, struct ck_err *err)
{
	const struct deepspeed_model *m = rd->z->m;
	int64_t start, numel;
	uint32_t param = ck_strmap_get(&m->by_name, name, len);

	if (!ck_pq_int(rd->p, v, "start", &start) ||
	    !ck_pq_int(rd->p, v, "numel", &numel) || start < 0 || numel < 0)
		return 0;
	if (param == CK_STRMAP_NONE || m->params.v[param].group != group) {
		rd->r->bad_slices = true;
		return 0;
	}
	return ck_vec_put(&rd->r->slices, err,
			  (struct deepspeed_slice){ param, (uint64_t)start,
						    (uint64_t)numel });
}

/*
 * The slices; of experts, whose fragments are counted wrong before DeepSpeed
 * 0.15, only the names.
 */
static int read_slices(struct reading *rd, ck_pv inner, struct ck_err *err)
{
	struct deepspeed_zero *z = rd->z;
	int ret = 0;

	for (struct ck_pq_each e =
		     ck_pq_begin(rd->p, inner, "param_slice_mappings/[]/{}");
	     !ret && ck_pq_next(&e);) {
		if (!e.name)
			continue;
		if (!z->m->moe)
			ret = add_slice(rd, e.at[0], e.name, e.len, e.v, err);
		else if (ck_strmap_keep(&z->trained, &z->ld->mem, e.name,
					e.len) == CK_STRMAP_NONE)
			ret = ck_no_memory(err);
	}
	return ret;
}

/* ---- groups of experts ---- */

static int add_group(struct reading *rd, ck_pv v, struct ck_err *err)
{
	struct deepspeed_rank *r = rd->r;
	struct deepspeed_group new = {
		.moe = ck_pq_int_or(rd->p, v, "moe", 0),
	};
	const char *s = "";
	size_t len = 0;

	ck_pq_str(rd->p, v, "name", &s, &len);
	new.name = ck_arena_copy(&rd->z->ld->mem, s, len);
	if (!new.name)
		return ck_no_memory(err);
	for (size_t i = 0; i < r->groups.nr; i++)
		new.nth += !strcmp(r->groups.v[i].name, new.name);
	return ck_vec_put(&r->groups, err, new);
}

/* The counts of all groups; that of those without experts is of all ranks. */
static int read_counts(struct reading *rd, ck_pv list, struct ck_err *err)
{
	struct deepspeed_rank *r = rd->r;
	size_t nr = 0;
	int64_t n;

	for (struct ck_pq_each e = ck_pq_begin(rd->p, list, "[]");
	     ck_pq_next(&e) && nr < r->groups.nr; nr++) {
		struct deepspeed_group *g = &r->groups.v[nr];

		if (!ck_pv_int(rd->p, e.v, &n) || n <= 0 ||
		    n > DEEPSPEED_MAX_RANKS)
			return ck_fail(err, EINVAL,
				       "%s: partition_count is no number",
				       rd->f->s->name);
		g->count = (uint64_t)n;
		if (g->moe)
			continue;
		if (r->count && r->count != g->count)
			return ck_fail(
				err, EINVAL,
				"%s: groups without experts are partitioned over %" PRIu64
				" and over %" PRIu64 " ranks",
				rd->f->s->name, r->count, g->count);
		r->count = g->count;
	}
	return nr == r->groups.nr && r->count ?
		       0 :
		       ck_fail(err, EINVAL,
			       "%s: partition_count and param_groups differ, or all groups are of experts, which is not read",
			       rd->f->s->name);
}

static int read_groups(struct reading *rd, ck_pv inner, struct ck_err *err)
{
	ck_pv groups, counts;
	int ret = 0;

	if (!ck_pq(rd->p, inner, "base_optimizer_state/param_groups",
		   &groups) ||
	    !ck_pq(rd->p, inner, "partition_count", &counts))
		return ck_fail(
			err, EINVAL,
			"%s: no param_groups or partition_count, which say who has which experts",
			rd->f->s->name);
	for (struct ck_pq_each e = ck_pq_begin(rd->p, groups, "[]");
	     !ret && ck_pq_next(&e);)
		ret = add_group(rd, e.v, err);
	return ret ? ret : read_counts(rd, counts, err);
}

/* ---- the file ---- */

static int read_inner(struct reading *rd, ck_pv inner, struct ck_err *err)
{
	const struct ck_pickle *p = rd->p;
	struct deepspeed_rank *r = rd->r;
	bool moe = rd->z->m->moe;
	ck_pv v;
	int ret = 0;

	r->stage3 = ck_pq(p, inner, "fp32_flat_groups", &v);
	for (struct ck_pq_each e = ck_pq_begin(
		     p, inner,
		     r->stage3 ? "fp32_flat_groups/[]" :
				 "single_partition_of_fp32_groups/[]");
	     !ret && ck_pq_next(&e);)
		ret = add_flat(rd, 0, e.at[0], e.v, err);
	if (!ret && moe)
		ret = read_groups(rd, inner, err);
	else if (!ret && ck_pq(p, inner, "partition_count", &v))
		ret = read_count(rd, v, err);
	if (!ret && (moe || !r->stage3))
		ret = read_slices(rd, inner, err);
	if (!ret &&
	    ck_pq(p, inner,
		  r->stage3 ? "optimizer_state_dict" : "base_optimizer_state",
		  &v))
		ret = ck_deepspeed_states_each(p, v, add_state, rd, err);
	if (!ret)
		ret = read_paddings(rd, inner, err);
	if (!ret && r->flats.nr)
		qsort(r->flats.v, r->flats.nr, sizeof(*r->flats.v), flat_order);
	return !ret && r->stage3 ? join_groups(rd, err) : ret;
}

static int read_rank(struct deepspeed_zero *z, struct deepspeed_rank *r,
		     struct ck_torch_open *f, struct ck_err *err)
{
	struct reading rd = { .z = z, .r = r, .f = f, .p = f->ts.pickle };
	struct ck_err why = { 0 };
	ck_pv inner;
	int ret;

	if (!ck_pq(rd.p, ck_pickle_root(rd.p), "optimizer_state_dict", &inner))
		return problem(&rd, err, "no optimizer_state_dict in it");
	ret = read_inner(&rd, inner, &why);
	if (ret == -EINVAL)
		return problem(&rd, err, why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	r->usable = true;
	return 0;
}

void ck_deepspeed_rank_free(struct deepspeed_rank *r)
{
	free(r->flats.v);
	free(r->groups.v);
	free(r->slices.v);
	free(r->paddings.v);
	*r = (struct deepspeed_rank){ 0 };
}

static int read_one(struct deepspeed_zero *z, const struct deepspeed_file *file,
		    struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	struct deepspeed_rank *r;
	bool ok = false;
	int ret = ck_vec_put(
		&z->ranks, err,
		(struct deepspeed_rank){ .name = file->name, .dp = file->dp });

	if (!ret)
		ret = ck_deepspeed_open_all(z->ld, &f, file->name, &ok, err);
	if (ret || !ok)
		return ret;
	r = &z->ranks.v[z->ranks.nr - 1];
	r->src = f.src;
	return read_rank(z, r, &f, err);
}

int ck_deepspeed_zero_read(struct deepspeed_zero *z, struct ck_err *err)
{
	size_t nr;
	const struct deepspeed_file *file =
		ck_deepspeed_files_of(z->ld, DEEPSPEED_OPTIM, z->m->mp, &nr);
	int ret = 0;

	if (ck_strmap_put(&z->states, "fp32", 4) == CK_STRMAP_NONE)
		return ck_no_memory(err);
	for (size_t i = 0; i < nr && !ret; i++)
		ret = read_one(z, &file[i], err);
	return ret;
}

void ck_deepspeed_zero_free(struct deepspeed_zero *z)
{
	for (size_t i = 0; i < z->ranks.nr; i++)
		ck_deepspeed_rank_free(&z->ranks.v[i]);
	ck_strmap_free(&z->states);
	ck_strmap_free(&z->trained);
	free(z->placed.v);
	free(z->ranks.v);
	free(z->pos);
	free(z->vecs.v);
	*z = (struct deepspeed_zero){ 0 };
}

const struct deepspeed_rank *ck_deepspeed_first(const struct deepspeed_zero *z)
{
	for (size_t i = 0; i < z->ranks.nr; i++)
		if (z->ranks.v[i].usable)
			return &z->ranks.v[i];
	return NULL;
}

const struct deepspeed_flat *ck_deepspeed_flat(const struct deepspeed_rank *r,
					       uint32_t state, uint32_t group)
{
	for (size_t i = 0; r && r->usable && i < r->flats.nr; i++)
		if (r->flats.v[i].state == state &&
		    r->flats.v[i].group == group)
			return &r->flats.v[i];
	return NULL;
}
