/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe.c - the optimizer of a model with experts: which parameter is where
 *
 *   base_optimizer_state.param_groups [{name: 'ep_size_2', moe: True, ...}]
 *   partition_count                   [ranks of each group]
 *   param_slice_mappings              [{NAME: ...}]
 *
 * Where there are experts, groups are not partitioned over all ranks: of W
 * ranks, E = W / count hold different experts, rank R those of part R % E, of
 * which it has partition R / E.  The order of the groups differs from rank to
 * rank; their names tell.
 *
 * No file of a save with experts says in what order a group's parameters lie
 * in its vector.  The bytes do: a vector is the master copy of its parameters,
 * and these, rounded, are in the model file and in those of the experts.  From
 * its beginning on, each is looked for among those that are left; usually the
 * next one of the model is it.
 */
#include "core/format/deepspeed/deepspeed.h"

#include "core/assemble/copies.h"
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/range.h"
#include "core/mesh/mesh.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COMPARED 4096 /* elements of a parameter */
#define FIRST_COMPARED 16
#define MAX_SLACK 512 /* elements a partition: padding */
#define MAX_TRIES 64 /* of each parameter, on average */

/* A weight that some group may have trained. */
struct weight {
	const char *name;
	const char *file; /* where it is as it was rounded */
	uint64_t off; /* of its first element */
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
	uint8_t dtype;
	bool plain; /* all elements in a row, of a dtype to compare */
	uint64_t numel;
	int64_t expert; /* its number; -1: of no expert */
	uint64_t of; /* so many its layer has */
	const struct deepspeed_vec *vec; /* where it was found; or NULL */
	uint64_t pos;
};

struct job {
	struct deepspeed_load *ld;
	struct deepspeed_zero *z;
	CK_VEC(struct weight) weights;
	struct ck_copies models, optims; /* files that are compared */
	uint64_t left; /* comparisons */
};

static void free_job(struct job *j)
{
	free(j->weights.v);
	ck_copies_free(&j->models);
	ck_copies_free(&j->optims);
}

/* ---- who has which vector ---- */

static struct deepspeed_vec *find_vec(struct deepspeed_zero *z,
				      const struct deepspeed_group *g,
				      uint64_t ep)
{
	for (size_t i = 0; i < z->vecs.nr; i++) {
		struct deepspeed_vec *v = &z->vecs.v[i];

		if (v->moe == g->moe && v->nth == g->nth && v->ep == ep &&
		    v->count == g->count && !strcmp(v->name, g->name))
			return v;
	}
	return NULL;
}

static int add_member(struct deepspeed_zero *z, const struct deepspeed_rank *r,
		      uint32_t group, struct ck_err *err)
{
	const struct deepspeed_group *g = &r->groups.v[group];
	uint64_t nr_ep = g->moe ? z->count / g->count : 1;
	struct deepspeed_vec *v;

	if (!nr_ep || z->count % g->count)
		return ck_fail(err, EINVAL,
			       "%s: group %" PRIu32
			       " is partitioned over %" PRIu64 " of %" PRIu64
			       " ranks, which is no part of them",
			       r->name, group, g->count, z->count);
	v = find_vec(z, g, r->dp % nr_ep);
	if (!v) {
		const struct deepspeed_vec new = {
			.name = g->name,
			.nth = g->nth,
			.moe = g->moe,
			.ep = r->dp % nr_ep,
			.nr_ep = nr_ep,
			.count = g->count,
			.of = ck_arena_alloc(&z->ld->mem,
					     g->count * sizeof(*v->of)),
		};

		if (!new.of || ck_vec_put(&z->vecs, err, new))
			return ck_no_memory(err);
		v = &z->vecs.v[z->vecs.nr - 1];
	}
	v->of[r->dp / nr_ep] = (struct deepspeed_member){ r, group };
	return 0;
}

/* That of the first, which is never cut off; 0 where one is not there. */
static uint64_t size_of(const struct deepspeed_vec *v)
{
	uint64_t size = 0;

	for (uint64_t k = 0; k < v->count; k++) {
		const struct deepspeed_flat *f =
			ck_deepspeed_flat(v->of[k].r, 0, v->of[k].group);

		if (!f || (k && f->run.len > size))
			return 0;
		if (!k)
			size = f->run.len;
	}
	return size;
}

static int find_vecs(struct deepspeed_zero *z, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < z->ranks.nr && !ret; i++) {
		const struct deepspeed_rank *r = &z->ranks.v[i];

		for (uint32_t g = 0; r->usable && g < r->groups.nr && !ret; g++)
			ret = add_member(z, r, g, err);
	}
	for (size_t i = 0; i < z->vecs.nr && !ret; i++)
		z->vecs.v[i].size = size_of(&z->vecs.v[i]);
	return ret;
}

/* ---- the weights ---- */

static int add_weight(struct job *j, struct ck_torch_open *f,
		      const struct deepspeed_tensors *t, const char *file,
		      int64_t expert, uint64_t of, struct ck_err *err)
{
	static const struct ck_audit_run master = { .dtype = CK_DT_F32 };
	struct weight new = { .file = file, .expert = expert, .of = of };
	struct ck_audit_run run;
	struct ck_torch_place at;
	int ret = ck_torch_place(f, t->v, &at, NULL);

	if (ret)
		return ret == -ENOMEM ? ck_no_memory(err) : 0;
	if (!ck_dims_volume(at.t.shape, at.t.rank, &new.numel))
		return 0;
	run = ck_deepspeed_run(NULL, &at.x, 0);
	new.off = run.off;
	new.dtype = run.dtype;
	new.plain =
		ck_audit_can_round(&master, &run) && ck_extent_is_dense(&at.x);
	new.rank = at.t.rank;
	memcpy(new.shape, at.t.shape, new.rank * sizeof(*new.shape));
	new.name = ck_arena_copy(&j->ld->mem, t->name, t->len);
	return new.name ? ck_vec_put(&j->weights, err, new) : ck_no_memory(err);
}

/*
 * Those of an expert's file; or with @expert -1 of the model file those that a
 * slice table names: the others are frozen.
 */
static int list_dict(struct job *j, struct ck_torch_open *f, ck_pv dict,
		     const char *file, int64_t expert, uint64_t of,
		     struct ck_err *err)
{
	struct deepspeed_tensors t;
	int ret = 0;

	ck_deepspeed_tensors(&t, f->ts.pickle, dict);
	while (!ret && ck_deepspeed_next(&t))
		if (expert >= 0 || ck_strmap_has(&j->z->trained, t.name, t.len))
			ret = add_weight(j, f, &t, file, expert, of, err);
	return ret;
}

/* How many experts its layer has; 0: it cannot be told. */
static uint64_t experts_of(const struct deepspeed_model *m,
			   const struct deepspeed_file *file)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	int64_t n = 0;
	ck_pv v;

	if (!ck_pq(p, m->root, "num_experts", &v) ||
	    (!ck_pv_int(p, v, &n) &&
	     (!ck_pv_at(p, v, file->layer, &v) || !ck_pv_int(p, v, &n))))
		return 0;
	return n > 0 ? (uint64_t)n : 0;
}

static int list_expert(struct job *j, const struct deepspeed_file *file,
		       struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	bool ok;
	int ret = ck_deepspeed_open(j->ld, &f, file->name, &ok, err);

	return ret || !ok ?
		       ret :
		       list_dict(j, &f, ck_pickle_root(f.ts.pickle), file->name,
				 file->dp, experts_of(j->z->m, file), err);
}

/* By layer, and then by expert, as the model has them. */
static int model_order(const void *pa, const void *pb)
{
	const struct deepspeed_file *a =
		*(const struct deepspeed_file *const *)pa;
	const struct deepspeed_file *b =
		*(const struct deepspeed_file *const *)pb;

	if (a->layer != b->layer)
		return a->layer < b->layer ? -1 : 1;
	return a->dp < b->dp ? -1 : a->dp > b->dp;
}

static int list_weights(struct job *j, struct ck_err *err)
{
	struct deepspeed_model *m = j->z->m;
	size_t nr;
	const struct deepspeed_file *file =
		ck_deepspeed_files_of(j->ld, DEEPSPEED_EXPERT, m->mp, &nr);
	ck_auto_free const struct deepspeed_file **by =
		calloc(nr + 1, sizeof(*by));
	int ret;

	if (!by)
		return ck_no_memory(err);
	for (size_t i = 0; i < nr; i++)
		by[i] = &file[i];
	qsort(by, nr, sizeof(*by), model_order);
	ret = list_dict(j, &m->f, m->module, m->f.s->name, -1, 0, err);
	for (size_t i = 0; i < nr && !ret; i++)
		ret = list_expert(j, by[i], err);
	j->left = j->weights.nr * MAX_TRIES + MAX_COMPARED;
	return ret;
}

/* ---- which of them is where ---- */

/* Whether elements [lo, lo + nr) of a weight are what member @k has at @at. */
static int same(struct job *j, const struct weight *w,
		const struct deepspeed_member *k, uint64_t lo, uint64_t nr,
		uint64_t at)
{
	const struct deepspeed_flat *f = ck_deepspeed_flat(k->r, 0, k->group);
	struct ck_audit_budget budget = { .each = nr, .left = nr };
	struct ck_audit_run master, weights = { .dtype = w->dtype };
	int ret;

	if (!f || !ck_range_ok(at, nr, f->run.len))
		return 0;
	master = ck_deepspeed_run(NULL, &f->run.x, at);
	if (!ck_audit_can_round(&master, &weights))
		return 0;
	ret = ck_copies_open(&j->models, w->file, &weights.s, NULL);
	if (!ret && weights.s)
		ret = ck_copies_open(&j->optims, k->r->name, &master.s, NULL);
	if (ret || !weights.s || !master.s)
		return ret;
	weights.off = w->off + lo * ck_dtype_info(w->dtype)->size;
	ret = ck_audit_rounded(&master, &weights, nr, &budget);
	return ret < 0 ? ret : !ret;
}

/* Whether the first @most elements of @w are what the vector has at @pos. */
static int begins(struct job *j, const struct weight *w,
		  const struct deepspeed_vec *v, uint64_t pos, uint64_t most)
{
	uint64_t r = pos / v->size, lo, hi, at;
	int ret = 1;

	for (; ret > 0 && r < v->count &&
	       ck_split_meet(v->size, r, pos, CK_MIN(w->numel, most), &lo, &hi,
			     &at);
	     r++)
		ret = same(j, w, &v->of[r], lo, hi - lo, at);
	return ret;
}

/* 1: the vector has it at @pos; 0: not; or -ENOMEM. */
static int fits(struct job *j, const struct weight *w,
		const struct deepspeed_vec *v, uint64_t pos)
{
	uint64_t each = w->of / v->nr_ep;
	int ret;

	if (w->vec || !w->numel || v->moe != (w->expert >= 0) || !w->plain ||
	    !ck_range_ok(pos, w->numel, v->count * v->size) || !j->left)
		return 0;
	if (v->moe &&
	    (!each || w->of % v->nr_ep || (uint64_t)w->expert / each != v->ep))
		return 0;
	j->left--;
	ret = begins(j, w, v, pos, FIRST_COMPARED);
	return ret > 0 ? begins(j, w, v, pos, MAX_COMPARED) : ret;
}

/*
 * The weight at @pos, from number *at on; or NULL.  Where they are not in the
 * order of the model, and there are two that look alike, nobody knows: *two.
 */
static int find_next(struct job *j, const struct deepspeed_vec *v, uint64_t pos,
		     size_t *at, struct weight **out, bool *two)
{
	size_t nr = j->weights.nr, start = *at;

	*out = NULL;
	for (size_t i = 0; i < nr; i++) {
		struct weight *w = &j->weights.v[(start + i) % nr];
		int ret = fits(j, w, v, pos);

		if (ret < 0)
			return ret;
		if (!ret)
			continue;
		if (*out) {
			*two = true;
			return 0;
		}
		*out = w;
		*at = (start + i + 1) % nr;
		if (start + i < nr && !v->shuffled)
			return 0;
	}
	return 0;
}

static void forget(struct job *j, const struct deepspeed_vec *v)
{
	for (size_t i = 0; i < j->weights.nr; i++)
		if (j->weights.v[i].vec == v)
			j->weights.v[i].vec = NULL;
}

/* *pos: up to where it is known what is in it. */
static int walk_vec(struct job *j, struct deepspeed_vec *v, uint64_t all,
		    uint64_t *pos, bool *two)
{
	size_t at = 0, was;
	int ret = 0;

	*pos = 0;
	while (*pos < all && !ret && !*two) {
		struct weight *w;

		was = at;
		ret = find_next(j, v, *pos, &at, &w, two);
		if (ret || !w || *two)
			return ret;
		v->shuffled |= at && at <= was;
		w->vec = v;
		w->pos = *pos;
		*pos += w->numel;
	}
	return ret;
}

static int place_vec(struct job *j, struct deepspeed_vec *v, struct ck_err *err)
{
	uint64_t pos, all;
	bool two = false;
	int ret;

	if (!v->size || !ck_mul_ok(v->size, v->count, &all))
		return 0;
	ret = walk_vec(j, v, all, &pos, &two);
	if (!ret && v->shuffled && !two) {
		forget(j, v);
		ret = walk_vec(j, v, all, &pos, &two);
	}
	if (ret)
		return ck_no_memory(err);
	if (!two && all - pos <= MAX_SLACK * v->count)
		return 0;
	forget(j, v);
	if (two)
		return deepspeed_problem(
			j->ld, CK_ERROR, NULL, err,
			"optimizer group %s, experts %" PRIu64 " of %" PRIu64
			": at element %" PRIu64
			" there is the master copy of several weights that are alike, which are in no known order: it is not read",
			v->name, v->ep, v->nr_ep, pos);
	return deepspeed_problem(
		j->ld, CK_ERROR, NULL, err,
		"optimizer group %s, experts %" PRIu64 " of %" PRIu64
		": at element %" PRIu64 " of %" PRIu64
		" there is the master copy of no weight that a file has: it is not read",
		v->name, v->ep, v->nr_ep, pos, all);
}

/* ---- parts ---- */

/* One by one: two files may have one name. */
static int add_states(struct job *j, const struct weight *w, struct ck_err *err)
{
	const struct deepspeed_states of = { .vec = w->vec,
					     .name = w->name,
					     .len = strlen(w->name),
					     .nr = j->z->states.nr,
					     .pos = w->pos,
					     .numel = w->numel };
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(j->ld);
	ck_auto_cut struct ck_cut cut = { 0 };
	int ret;

	if (!w->vec && !w->numel)
		return 0;
	if (!w->vec)
		ret = ck_deepspeed_refuse(
			&a, "fp32", w->name, of.len, err,
			"no optimizer file that is there, with all others of its group, has what it is, rounded");
	else
		ret = ck_cut_whole(&cut, w->shape, w->rank, err);
	if (!ret && w->vec)
		ret = ck_deepspeed_states_give(&a, j->z, &of, &cut, err);
	return ret ? ret : ck_asm_join(&a, err);
}

/*
 * Buffers and frozen parameters: what no rank trains, once all are there; where
 * param_shapes names what is trained, they are added with the weights.
 */
static int add_untrained(struct job *j, struct ck_err *err)
{
	struct deepspeed_model *m = j->z->m;
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(j->ld);
	struct deepspeed_tensors t;
	int ret = 0;

	if (!j->z->complete || m->names)
		return 0;
	ck_deepspeed_tensors(&t, m->f.ts.pickle, m->module);
	while (!ret && ck_deepspeed_next(&t))
		if (!ck_strmap_has(&j->z->trained, t.name, t.len))
			ret = ck_deepspeed_give(&a, m, &m->f, "fp32", t.name,
						t.len, t.v, err);
	return ret ? ret : ck_asm_join(&a, err);
}

/* ---- the order of all, for order.c ---- */

/* What group @v, or the one of other experts that is like it, is in @first. */
static bool vector_of(const struct deepspeed_zero *z,
		      const struct deepspeed_vec *v,
		      const struct deepspeed_rank *first, uint32_t *out)
{
	for (size_t i = 0; i < z->vecs.nr; i++) {
		const struct deepspeed_vec *like = &z->vecs.v[i];

		if (like->nth != v->nth || strcmp(like->name, v->name) != 0)
			continue;
		for (uint64_t k = 0; k < like->count; k++)
			if (like->of[k].r == first) {
				*out = like->of[k].group;
				return true;
			}
	}
	return false;
}

/*
 * Weights are listed as the model has them, all experts of a layer one after
 * another, and so has each vector those it has.  Which of several groups of
 * experts comes first differs from rank to rank: DeepSpeed goes through a set.
 */
static const char *no_order(const struct job *j)
{
	const char *experts = NULL;

	if (!j->z->complete)
		return "an optimizer file of it is missing";
	for (size_t i = 0; i < j->z->vecs.nr; i++) {
		const struct deepspeed_vec *v = &j->z->vecs.v[i];

		if (v->shuffled)
			return "a group of it is not in the order of the model";
		if (!v->moe)
			continue;
		if (v->nth || (experts && strcmp(experts, v->name) != 0))
			return "its groups of experts are in another order on "
			       "each rank";
		experts = v->name;
	}
	for (size_t i = 0; i < j->weights.nr; i++)
		if (!j->weights.v[i].vec)
			return "a parameter is in no group of it";
	return NULL;
}

static int keep_order(struct job *j, struct ck_err *err)
{
	struct deepspeed_zero *z = j->z;
	const struct deepspeed_rank *first = ck_deepspeed_first(z);

	z->unplaced = no_order(j);
	for (size_t i = 0; i < j->weights.nr && !z->unplaced; i++) {
		struct deepspeed_placed new = { .name = j->weights.v[i].name };

		if (!vector_of(z, j->weights.v[i].vec, first, &new.vector))
			z->unplaced = "a group of it is not in the first file";
		if (ck_vec_put(&z->placed, err, new))
			return -ENOMEM;
	}
	return 0;
}

static int add_all(struct job *j, struct ck_err *err)
{
	struct deepspeed_zero *z = j->z;
	int ret = find_vecs(z, err);

	if (!ret)
		ret = list_weights(j, err);
	for (size_t i = 0; i < z->vecs.nr && !ret; i++) {
		j->ld->nr_ep =
			CK_MAX(j->ld->nr_ep, (unsigned)z->vecs.v[i].nr_ep);
		ret = place_vec(j, &z->vecs.v[i], err);
	}
	for (size_t i = 0; i < j->weights.nr && !ret; i++)
		ret = add_states(j, &j->weights.v[i], err);
	if (!ret)
		ret = keep_order(j, err);
	return ret ? ret : add_untrained(j, err);
}

int ck_deepspeed_moe_add(struct deepspeed_zero *z, struct ck_err *err)
{
	struct deepspeed_load *ld = z->ld;
	struct job j = {
		.ld = ld, .z = z, .models.dir = ld->dir, .optims.dir = ld->dir
	};
	struct ck_err why = { 0 };
	int ret;

	if (!z->ranks.nr)
		return 0;
	if (ld->nr_mp > 1)
		return deepspeed_problem(
			ld, CK_ERROR, NULL, err,
			"%u model-parallel ranks share the experts: their optimizer states are not read",
			ld->nr_mp);
	ret = add_all(&j, &why);
	free_job(&j);
	if (ret == -EINVAL)
		return deepspeed_problem(ld, CK_ERROR, NULL, err, "%s",
					 why.msg);
	return ret ? ck_fail(err, -ret, "%s", why.msg) : 0;
}
