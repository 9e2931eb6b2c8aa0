/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.c - which folders of ranks there are, and what each says of the run
 *
 * mp_rank_00_001 may be stage 1 or expert rank 1: only args in the files say.
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/format/megatron/priv.h"
#include "core/container/torch_walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *ck_mg_file_of(const struct ck_dir *in, const char *dir)
{
	ck_auto_free char *file = NULL, *old = NULL;

	if (asprintf(&file, "%s/" CK_MG_FILE, dir) < 0)
		file = NULL;
	if (asprintf(&old, "%s/" CK_MG_FILE_OLD, dir) < 0)
		old = NULL;
	if (!file || !old)
		return NULL;
	return !ck_dir_has(in, file) && ck_dir_has(in, old) ? ck_steal(old) :
							      ck_steal(file);
}

static int add_rank(struct ck_mg_load *ld, const char *dir, struct ck_err *err)
{
	struct ck_mg_rank r = { 0 }, *to;

	if (!ck_mg_is_rank(dir, r.at, &r.nr_at))
		return 0;
	to = ck_vec_push(&ld->ranks);
	if (!to)
		return ck_fail(err, ENOMEM, "no memory for ranks");
	*to = r;
	to->dir = strdup(dir);
	to->file = ck_mg_file_of(ld->dir, dir);
	if (!to->dir || !to->file)
		return ck_fail(err, ENOMEM, "no memory for ranks");
	to->there = ck_dir_has(ld->dir, to->file);
	return 0;
}

static int list_ranks(struct ck_mg_load *ld, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(ld->dir, "", &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++) {
		int taken = l.v[i].is_dir ?
				    ck_mg_optim_add(ld, l.v[i].name, err) :
				    1;

		ret = taken ? CK_MIN(taken, 0) : add_rank(ld, l.v[i].name, err);
	}
	return ret;
}

bool ck_mg_chunk(const struct ck_pickle *p, unsigned i, ck_pv *out)
{
	char key[24];

	if (!i && ck_pv_key(p, ck_pickle_root(p), "model", out))
		return true;
	snprintf(key, sizeof(key), "model%u", i);
	return ck_pv_key(p, ck_pickle_root(p), key, out);
}

static int count_layer(void *ctx, const struct ck_torch_leaf *leaf,
		       struct ck_err *err)
{
	uint64_t *layers = ctx, n;
	size_t from, to;
	int stack = ck_mg_layer(leaf->name, leaf->name_len, &n, &from, &to);

	(void)err;
	if (stack >= 0)
		layers[stack] = CK_MAX(layers[stack], n + 1);
	return 0;
}

static int count_layers(struct ck_mg_rank *r, const struct ck_pickle *p,
			struct ck_err *err)
{
	ck_pv chunk;
	int ret = 0;

	while (r->nr_chunks < CK_MG_MAX_CHUNKS &&
	       ck_mg_chunk(p, r->nr_chunks, &chunk))
		r->nr_chunks++;
	r->layers = calloc((size_t)r->nr_chunks * CK_MG_STACKS + 1,
			   sizeof(*r->layers));
	if (!r->layers)
		return ck_fail(err, ENOMEM, "no memory for layers");
	for (unsigned i = 0; i < r->nr_chunks && !ret; i++) {
		ck_mg_chunk(p, i, &chunk);
		ret = ck_torch_walk(p, chunk, count_layer,
				    r->layers + (size_t)i * CK_MG_STACKS, err);
	}
	return ret;
}

static int read_rank(struct ck_mg_load *ld, struct ck_mg_rank *r,
		     struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR,
					 .file = r->file };
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	int ret = ck_torch_open(&f, ld->dir, ld->b, r->file, &r->usable, err);

	if (ret || !r->usable)
		return ret;
	ck_mg_args_read(&r->args, f.ts.pickle, ck_pickle_root(f.ts.pickle));
	ret = count_layers(r, f.ts.pickle, err);
	if (ret || r->nr_chunks)
		return ret;
	r->usable = false;
	return ck_builder_problem(ld->b, &p, err, "it has no model");
}

/* What must be one number in all files that belong together. */
static int same_run(const struct ck_mg_load *ld, const struct ck_mg_rank *a,
		    const struct ck_mg_rank *b, struct ck_err *err)
{
	const struct {
		const char *name;
		int64_t a, b;
	} t[] = {
		{ "iteration", a->args.iteration, b->args.iteration },
		{ "args.tensor_model_parallel_size", a->args.tp, b->args.tp },
		{ "args.pipeline_model_parallel_size", a->args.pp, b->args.pp },
		{ "args.expert_model_parallel_size", a->args.ep, b->args.ep },
		{ "args.num_layers", a->args.layers, b->args.layers },
		{ "args.num_experts", a->args.experts, b->args.experts },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(t); i++)
		if (t[i].a != t[i].b)
			return ck_fail(err, EINVAL,
				       "%s: %s is %" PRId64
				       " in %s and %" PRId64
				       " in %s: they are of different saves",
				       ld->dir->path, t[i].name, t[i].a,
				       a->file, t[i].b, b->file);
	return 0;
}

static unsigned highest(const struct ck_mg_load *ld, unsigned field)
{
	unsigned most = 0;

	for (size_t i = 0; i < ld->ranks.nr; i++)
		if (field < ld->ranks.v[i].nr_at)
			most = CK_MAX(most, ld->ranks.v[i].at[field]);
	return most;
}

static int find_degrees(struct ck_mg_load *ld, const struct ck_mg_rank *one,
			struct ck_err *err)
{
	const struct ck_mg_args *a = &ld->args;
	uint64_t all;

	ld->tp = a->tp > 0 ? (unsigned)a->tp : highest(ld, 0) + 1;
	ld->pp = a->pp > 0 ? (unsigned)a->pp : 1;
	ld->ep = a->ep > 0 ? (unsigned)a->ep : 1;
	if (!a->there && one->nr_at == 2)
		return ck_fail(
			err, EINVAL,
			"%s: it has no args, which say whether %s is a stage of the pipeline or an expert rank",
			one->file, one->dir);
	if (!a->there && one->nr_at == 3) {
		ld->pp = highest(ld, 1) + 1;
		ld->ep = highest(ld, 2) + 1;
	}
	ld->etp = a->etp <= 0 || (unsigned)a->etp == ld->tp ? ld->tp :
		  a->etp == 1				    ? 1 :
							      0;
	if (!ck_mul_ok(ld->tp, ld->pp, &all) || !ck_mul_ok(all, ld->ep, &all) ||
	    all > 64 * ld->ranks.nr + 64)
		return ck_fail(err, EINVAL,
			       "%s: %zu folders of ranks, where args say %u x "
			       "%u x %u ranks",
			       ld->dir->path, ld->ranks.nr, ld->tp, ld->pp,
			       ld->ep);
	return 0;
}

static int place_rank(const struct ck_mg_load *ld, struct ck_mg_rank *r,
		      struct ck_err *err)
{
	unsigned n = 1;

	r->tp = r->at[0];
	if (ld->pp > 1)
		r->pp = r->at[n++];
	if (ld->ep > 1)
		r->ep = r->at[CK_MIN(n, 2u)], n++;
	if (r->nr_at != n || r->tp >= ld->tp || r->pp >= ld->pp ||
	    r->ep >= ld->ep)
		return ck_fail(
			err, EINVAL,
			"%s: %s is none of %u tensor-parallel ranks, %u stages and %u expert ranks, which args say there are",
			ld->dir->path, r->dir, ld->tp, ld->pp, ld->ep);
	return 0;
}

/* Folders of a replica that have lost their optimizer's file. */
static void drop_replicas(struct ck_mg_load *ld)
{
	size_t nr = 0;

	for (size_t i = 0; i < ld->ranks.nr; i++) {
		struct ck_mg_rank *r = &ld->ranks.v[i];

		if (!r->there && ld->optims.nr && r->nr_at == 2 + (ld->pp > 1))
			ck_mg_rank_free(r);
		else
			ld->ranks.v[nr++] = *r;
	}
	ld->ranks.nr = nr;
}

int ck_mg_by_place(const void *pa, const void *pb)
{
	const struct ck_mg_rank *a = pa, *b = pb;

	if (a->pp != b->pp)
		return a->pp < b->pp ? -1 : 1;
	if (a->tp != b->tp)
		return a->tp < b->tp ? -1 : 1;
	return a->ep < b->ep ? -1 : a->ep > b->ep;
}

int ck_mg_ranks_read(struct ck_mg_load *ld, struct ck_err *err)
{
	const struct ck_mg_rank *one = NULL;
	int ret = list_ranks(ld, err);

	for (size_t i = 0; i < ld->ranks.nr && !ret; i++) {
		struct ck_mg_rank *r = &ld->ranks.v[i];

		if (r->there)
			ret = read_rank(ld, r, err);
		if (!ret && r->usable && one)
			ret = same_run(ld, one, r, err);
		if (r->usable && !one)
			one = r;
		ld->nr_chunks = CK_MAX(ld->nr_chunks, r->nr_chunks);
	}
	if (ret)
		return ret;
	if (!one)
		return ck_fail(err, EINVAL,
			       "%s: no mp_rank_*/" CK_MG_FILE " can be read",
			       ld->dir->path);
	ld->args = one->args;
	ret = find_degrees(ld, one, err);
	drop_replicas(ld);
	for (size_t i = 0; i < ld->ranks.nr && !ret; i++)
		ret = place_rank(ld, &ld->ranks.v[i], err);
	if (ret)
		return ret;
	qsort(ld->ranks.v, ld->ranks.nr, sizeof(*ld->ranks.v), ck_mg_by_place);
	return ck_mg_order_check(ld, err);
}

void ck_mg_rank_free(struct ck_mg_rank *r)
{
	free(r->dir);
	free(r->file);
	free(r->layers);
}

void ck_mg_ranks_free(struct ck_mg_load *ld)
{
	for (size_t i = 0; i < ld->ranks.nr; i++)
		ck_mg_rank_free(&ld->ranks.v[i]);
	for (size_t i = 0; i < ld->optims.nr; i++)
		ck_mg_rank_free(&ld->optims.v[i]);
	free(ld->ranks.v);
	free(ld->optims.v);
	free(ld->offset);
}
