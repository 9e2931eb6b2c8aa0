/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe_say.c - which parameter is where in the vectors of moe.c
 *
 * No file of a save with experts says in what order a group's parameters lie
 * in its vector.  The bytes do: a vector is the master copy of its parameters,
 * and these, rounded, are in the model file and in those of the experts.  From
 * its beginning on, each is looked for among those that are left; usually the
 * next one of the model is it.
 */
#include "core/format/deepspeed/moe.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/container/torch_walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COMPARED 4096 /* elements of a parameter */
#define FIRST_COMPARED 16
#define MAX_SLACK 512 /* elements a partition: padding */
#define MAX_TRIES 64 /* of each parameter, on average */

/* A weight that some group may have trained. */
struct weight {
	const char *name; /* kept by the list */
	const char *file; /* borrowed; where it is as it was rounded */
	struct ck_torch_place w;
	uint64_t numel;
	int64_t expert; /* its number; -1: of no expert */
	uint64_t of; /* so many its layer has */
	const struct ck_ds_vec *vec; /* where it was found; or NULL */
	uint64_t pos;
};

struct job {
	struct ck_ds_load *ld;
	const struct ck_ds_zero *z;
	CK_VEC(struct weight) weights;
	CK_VEC(char *) kept;
	struct ck_source *model, *optim; /* those compared last */
	const char *model_name, *optim_name;
	uint64_t left; /* comparisons */
};

static void free_job(struct job *j)
{
	for (size_t i = 0; i < j->kept.nr; i++)
		free(j->kept.v[i]);
	free(j->kept.v);
	free(j->weights.v);
	ck_source_close(j->model);
	ck_source_close(j->optim);
}

static int add_weight(struct job *j, struct ck_torch_open *f, const char *file,
		      const char *s, size_t len, ck_pv v, int64_t expert,
		      uint64_t of, struct ck_err *err)
{
	struct weight *to, new = { .file = file, .expert = expert, .of = of };
	char **kept;
	int ret = ck_torch_place(f, v, &new.w, NULL);

	if (ret)
		return ret == -ENOMEM ? ck_fail(err, ENOMEM, "no memory") : 0;
	for (unsigned d = 0; d < new.w.t.rank; d++)
		if (!d)
			new.numel = new.w.t.shape[0];
		else if (!ck_mul_ok(new.numel, new.w.t.shape[d], &new.numel))
			return 0;
	if (!new.w.t.rank)
		new.numel = 1;
	kept = ck_vec_push(&j->kept);
	to = kept ? ck_vec_push(&j->weights) : NULL;
	if (kept)
		*kept = strndup(s, len);
	if (!to || !*kept)
		return ck_fail(err, ENOMEM, "no memory for names");
	new.name = *kept;
	*to = new;
	return 0;
}

/* Those of the model file that a slice table names: the others are frozen. */
static int list_model(struct job *j, const struct ck_ds_model *m,
		      struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	struct ck_piter it;
	ck_pv module, key, v;
	const char *s;
	size_t len;
	bool ok;
	int ret = ck_ds_open(&f, j->ld->dir, j->ld->b, m->f.s->name, &ok, err);

	if (ret || !ok ||
	    !ck_pv_key(f.ts.pickle, ck_pickle_root(f.ts.pickle), "module",
		       &module))
		return ret;
	ck_piter_init_pairs(&it, f.ts.pickle, module);
	while (!ret && ck_piter_next2(&it, &key, &v))
		if (ck_pv_str(f.ts.pickle, key, &s, &len) &&
		    ck_torch_is_rebuild(f.ts.pickle, v) &&
		    ck_strmap_get(&j->z->trained, s, len) != CK_STRMAP_NONE)
			ret = add_weight(j, &f, m->f.s->name, s, len, v, -1, 0,
					 err);
	return ret;
}

/* In older files, which are of all layers, 0. */
static unsigned layer_of(const char *file)
{
	unsigned layer;

	return sscanf(file, "layer_%9u_", &layer) == 1 ? layer : 0;
}

/* How many experts the layer of @file has; 0: it cannot be told. */
static uint64_t experts_of(const struct ck_ds_model *m, const char *file)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	int64_t n = 0;
	ck_pv v, item;

	if (!ck_pv_key(p, ck_pickle_root(p), "num_experts", &v))
		return 0;
	if (!ck_pv_int(p, v, &n) &&
	    (!ck_pv_at(p, v, layer_of(file), &item) || !ck_pv_int(p, item, &n)))
		return 0;
	return n > 0 ? (uint64_t)n : 0;
}

static int list_expert(struct job *j, const struct ck_ds_model *m,
		       const struct ck_ds_file *file, struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	uint64_t of = experts_of(m, file->name);
	struct ck_piter it;
	ck_pv key, v;
	const char *s;
	size_t len;
	bool ok;
	int ret = ck_ds_open(&f, j->ld->dir, j->ld->b, file->name, &ok, err);

	if (ret || !ok)
		return ret;
	ck_piter_init_pairs(&it, f.ts.pickle, ck_pickle_root(f.ts.pickle));
	while (!ret && ck_piter_next2(&it, &key, &v))
		if (ck_pv_str(f.ts.pickle, key, &s, &len) &&
		    ck_torch_is_rebuild(f.ts.pickle, v))
			ret = add_weight(j, &f, file->name, s, len, v, file->dp,
					 of, err);
	return ret;
}

/* By layer, and then by expert, as the model has them. */
static int model_order(const void *pa, const void *pb)
{
	const struct ck_ds_file *a = *(const struct ck_ds_file *const *)pa;
	const struct ck_ds_file *b = *(const struct ck_ds_file *const *)pb;
	unsigned la = layer_of(a->name), lb = layer_of(b->name);

	if (la != lb)
		return la < lb ? -1 : 1;
	return a->dp < b->dp ? -1 : a->dp > b->dp;
}

static int list_weights(struct job *j, const struct ck_ds_model *m,
			struct ck_err *err)
{
	size_t nr;
	const struct ck_ds_file *file =
		ck_ds_files_of(&j->ld->fs, CK_DS_EXPERT, m->mp, &nr);
	ck_auto_free const struct ck_ds_file **by = calloc(nr + 1, sizeof(*by));
	int ret;

	if (!by)
		return ck_fail(err, ENOMEM, "no memory for experts");
	for (size_t i = 0; i < nr; i++)
		by[i] = &file[i];
	qsort(by, nr, sizeof(*by), model_order);
	ret = list_model(j, m, err);
	for (size_t i = 0; i < nr && !ret; i++)
		ret = list_expert(j, m, by[i], err);
	j->left = j->weights.nr * MAX_TRIES + MAX_COMPARED;
	return ret;
}

/* 0, and *s is the file; -ENOENT: it cannot be opened; or -ENOMEM. */
static int use(const struct job *j, const char *name, struct ck_source **s,
	       const char **name_of)
{
	int ret;

	if (*name_of && !strcmp(*name_of, name))
		return 0;
	ck_source_close(*s);
	*s = NULL;
	*name_of = NULL;
	ret = ck_dir_open(j->ld->dir, name, s, NULL);
	if (ret)
		return ret == -ENOMEM ? ret : -ENOENT;
	*name_of = name;
	return 0;
}

/* Whether elements [lo, lo + nr) of a weight are what member @k has at @at. */
static int same(struct job *j, const struct weight *w,
		const struct ck_ds_member *k, uint64_t lo, uint64_t nr,
		uint64_t at)
{
	const struct ck_ds_flat *f = ck_ds_flat_of(k, 0);
	struct ck_torch_place mine = w->w, full;
	int ret;

	if (!f || !ck_range_ok(at, nr, f->run.len) ||
	    f->run.place.t.dtype != CK_DT_F32 || f->run.place.xform)
		return 0;
	full = f->run.place;
	full.off += at * sizeof(float);
	mine.off += lo * ck_dtype_info(mine.t.dtype)->size;
	ret = use(j, w->file, &j->model, &j->model_name);
	if (!ret)
		ret = use(j, k->r->file->name, &j->optim, &j->optim_name);
	if (ret)
		return ret == -ENOMEM ? ret : 0;
	ret = ck_ds_twin_compare(j->model, j->optim, &mine, &full, nr);
	return ret < 0 ? ret : !ret;
}

/* Whether the first @most elements of @w are what the vector has at @pos. */
static int begins(struct job *j, const struct weight *w,
		  const struct ck_ds_vec *v, uint64_t pos, uint64_t most)
{
	uint64_t r = pos / v->size, lo, hi, at;
	int ret = 1;

	for (; ret > 0 && r < v->count &&
	       ck_ds_piece12(pos, CK_MIN(w->numel, most), v->size, r, &lo, &hi,
			     &at);
	     r++)
		ret = same(j, w, &v->of[r], lo, hi - lo, at);
	return ret;
}

/* 1: the vector has it at @pos; 0: not; or -ENOMEM. */
static int fits(struct job *j, const struct weight *w,
		const struct ck_ds_vec *v, uint64_t pos)
{
	uint64_t each = w->of / v->nr_ep;
	int ret;

	if (w->vec || !w->numel || v->moe != (w->expert >= 0) ||
	    !ck_range_ok(pos, w->numel, v->count * v->size) || !j->left)
		return 0;
	if (v->moe &&
	    (!each || w->of % v->nr_ep || (uint64_t)w->expert / each != v->ep))
		return 0;
	if (!ck_ds_twin_is_plain(&w->w, w->numel))
		return 0;
	j->left--;
	ret = begins(j, w, v, pos, FIRST_COMPARED);
	return ret > 0 ? begins(j, w, v, pos, MAX_COMPARED) : ret;
}

/*
 * The weight at @pos, from number *at on; or NULL.  Where they are not in the
 * order of the model, and there are two that look alike, nobody knows: *twins.
 */
static int find_next(struct job *j, const struct ck_ds_vec *v, uint64_t pos,
		     size_t *at, struct weight **out, bool *twins)
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
			*twins = true;
			return 0;
		}
		*out = w;
		*at = (start + i + 1) % nr;
		if (start + i < nr && !v->shuffled)
			return 0;
	}
	return 0;
}

static void forget(struct job *j, const struct ck_ds_vec *v)
{
	for (size_t i = 0; i < j->weights.nr; i++)
		if (j->weights.v[i].vec == v)
			j->weights.v[i].vec = NULL;
}

/* *pos: up to where it is known what is in it. */
static int walk_vec(struct job *j, struct ck_ds_vec *v, uint64_t all,
		    uint64_t *pos, bool *twins)
{
	size_t at = 0, was;
	int ret = 0;

	*pos = 0;
	while (*pos < all && !ret && !*twins) {
		struct weight *w;

		was = at;
		ret = find_next(j, v, *pos, &at, &w, twins);
		if (ret || !w || *twins)
			return ret;
		v->shuffled |= at && at <= was;
		w->vec = v;
		w->pos = *pos;
		*pos += w->numel;
	}
	return ret;
}

static int place_vec(struct job *j, struct ck_ds_vec *v, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR };
	uint64_t pos, all;
	bool twins = false;
	int ret;

	if (!v->size || !ck_mul_ok(v->size, v->count, &all))
		return 0;
	ret = walk_vec(j, v, all, &pos, &twins);
	if (!ret && v->shuffled && !twins) {
		forget(j, v);
		ret = walk_vec(j, v, all, &pos, &twins);
	}
	if (ret)
		return ck_fail(err, ENOMEM, "no memory to compare");
	if (!twins && all - pos <= MAX_SLACK * v->count)
		return 0;
	forget(j, v);
	if (twins)
		return ck_builder_problem(
			j->ld->b, &p, err,
			"optimizer group %s, experts %" PRIu64 " of %" PRIu64
			": at element %" PRIu64
			" there is the master copy of several weights that are alike, which are in no known order: it is not read",
			v->name, v->ep, v->nr_ep, pos);
	return ck_builder_problem(
		j->ld->b, &p, err,
		"optimizer group %s, experts %" PRIu64 " of %" PRIu64
		": at element %" PRIu64 " of %" PRIu64
		" there is the master copy of no weight that a file has: it is not read",
		v->name, v->ep, v->nr_ep, pos, all);
}

static int say_state(struct job *j, const struct weight *w, uint32_t state,
		     const struct ck_cut *cut, struct ck_err *err)
{
	const struct ck_ds_vec *v = w->vec;
	const char *kind = j->z->states[state];
	struct ck_cut_run none = { 0 };
	ck_auto_str struct ck_str full = { 0 };
	size_t len = strlen(w->name);
	uint64_t lo, hi, at;
	int ret = 0;

	for (uint64_t k = 0; k < v->count && !none.place.t.dtype; k++)
		if (ck_ds_flat_of(&v->of[k], state))
			none.place.t.dtype = ck_ds_flat_of(&v->of[k], state)
						     ->run.place.t.dtype;
	if (!none.place.t.dtype)
		return 0;
	ck_str_fmt(&full, "%s.%s", kind, w->name);
	if (full.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	ret = ck_cut_add_run(cut, j->ld->b, full.v, full.len, 0, 0, 0, &none,
			     err);
	for (uint64_t k = w->pos / v->size; k < v->count && !ret; k++) {
		const struct ck_ds_flat *f = ck_ds_flat_of(&v->of[k], state);

		if (!ck_ds_piece12(w->pos, w->numel, v->size, k, &lo, &hi, &at))
			break;
		if (f)
			ret = ck_cut_add_run(cut, j->ld->b, full.v, full.len,
					     lo, hi, at, &f->run, err);
	}
	return ret ? ret : ck_ds_path(j->ld->b, kind, w->name, len, &full, err);
}

static int say_weight(struct job *j, const struct weight *w, struct ck_err *err)
{
	ck_auto_cut struct ck_cut cut = { 0 };
	int ret;

	if (!w->vec && !w->numel)
		return 0;
	if (!w->vec)
		return ck_ds_refuse(
			j->ld, "fp32", w->name, strlen(w->name),
			"no optimizer file that is there, with all others of its group, has what it is, rounded",
			err);
	ret = ck_cut_whole(&cut, w->w.t.shape, w->w.t.rank, err);
	for (uint32_t s = 0; s < j->z->nr_states && !ret; s++)
		ret = say_state(j, w, s, &cut, err);
	return ret;
}

/*
 * Buffers and frozen parameters: what no rank trains, once all are there; where
 * param_shapes names what is trained, they are said with the weights.
 */
static int say_untrained(struct job *j, struct ck_ds_model *m,
			 struct ck_err *err)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	struct ck_piter it;
	ck_pv key, v;
	const char *s;
	size_t len;
	int ret = 0;

	ck_piter_init_pairs(&it, p, m->module);
	while (j->z->complete && !m->names && !ret &&
	       ck_piter_next2(&it, &key, &v))
		if (ck_pv_str(p, key, &s, &len) && ck_torch_is_rebuild(p, v) &&
		    ck_strmap_get(&j->z->trained, s, len) == CK_STRMAP_NONE)
			ret = ck_ds_tensor(j->ld, m, &m->f, "fp32", s, len, v,
					   err);
	return ret;
}

/* ---- the order of all, for order.c ---- */

/* What group @v, or the one of other experts that is like it, is in @first. */
static bool vector_of(const struct ck_ds_vecs *vs, const struct ck_ds_vec *v,
		      const struct ck_ds_rank *first, uint32_t *out)
{
	for (size_t i = 0; i < vs->v.nr; i++) {
		const struct ck_ds_vec *like = &vs->v.v[i];

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
static const char *no_order(const struct job *j, const struct ck_ds_vecs *vs)
{
	const char *experts = NULL;

	if (!j->z->complete)
		return "an optimizer file of it is missing";
	for (size_t i = 0; i < vs->v.nr; i++) {
		const struct ck_ds_vec *v = &vs->v.v[i];

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

static int keep_order(struct job *j, const struct ck_ds_vecs *vs,
		      struct ck_ds_zero *z, struct ck_err *err)
{
	const struct ck_ds_rank *first = ck_ds_first(z);

	z->unplaced = no_order(j, vs);
	for (size_t i = 0; i < j->weights.nr && !z->unplaced; i++) {
		const struct weight *w = &j->weights.v[i];
		struct ck_ds_placed *to = ck_vec_push(&z->placed);

		if (!to)
			return ck_fail(err, ENOMEM, "no memory for names");
		*to = (struct ck_ds_placed){ .name = strdup(w->name) };
		if (!to->name)
			return ck_fail(err, ENOMEM, "no memory for names");
		if (!vector_of(vs, w->vec, first, &to->vector))
			z->unplaced = "a group of it is not in the first file";
	}
	return 0;
}

static int say_all(struct job *j, struct ck_ds_zero *z, struct ck_ds_model *m,
		   struct ck_ds_vecs *vs, struct ck_err *err)
{
	int ret = ck_ds_vecs_find(vs, j->z, err);

	if (!ret)
		ret = list_weights(j, m, err);
	for (size_t i = 0; i < vs->v.nr && !ret; i++) {
		j->ld->nr_ep = CK_MAX(j->ld->nr_ep, (unsigned)vs->v.v[i].nr_ep);
		ret = place_vec(j, &vs->v.v[i], err);
	}
	for (size_t i = 0; i < j->weights.nr && !ret; i++)
		ret = say_weight(j, &j->weights.v[i], err);
	if (!ret)
		ret = keep_order(j, vs, z, err);
	return ret ? ret : say_untrained(j, m, err);
}

int ck_ds_moe_say(struct ck_ds_load *ld, struct ck_ds_zero *z,
		  struct ck_ds_model *m, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR };
	struct job j = { .ld = ld, .z = z };
	struct ck_ds_vecs vs = { 0 };
	struct ck_err why = { 0 };
	int ret;

	if (!z->ranks.nr)
		return 0;
	if (ld->nr_mp > 1)
		return ck_builder_problem(
			ld->b, &p, err,
			"%u model-parallel ranks share the experts: their optimizer states are not read",
			ld->nr_mp);
	ret = say_all(&j, z, m, &vs, &why);
	free_job(&j);
	ck_ds_vecs_free(&vs);
	if (ret == -EINVAL)
		return ck_builder_problem(ld->b, &p, err, "%s", why.msg);
	return ret ? ck_fail(err, -ret, "%s", why.msg) : 0;
}
