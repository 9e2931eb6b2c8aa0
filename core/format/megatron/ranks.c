/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.c - which folders of ranks there are, and what each says of the run
 *
 * mp_rank_00_001 may be stage 1 or expert rank 1: only args in the files, an
 * argparse.Namespace, say.
 *
 * args.rank must fit the names of the folders.  Process ranks count tensor
 * ranks fastest, then expert ranks, then stages; with --use-tp-pp-dp-mapping
 * stages come before expert ranks.  In both, of two folders that differ in one
 * number the higher one is of the higher rank.  The converters under
 * Megatron-LM's tools/ run as one process, which gives all folders the same
 * rank: then only their contents tell copies.
 */
#include "core/assemble/file_same.h"
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/container/container.h"
#include "core/format/megatron/megatron.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names and args ---- */

static bool digits(const char **s, unsigned least, unsigned *out)
{
	const char *from = *s;

	*out = 0;
	for (; isdigit((unsigned char)**s); ++*s)
		if (*out >= MEGATRON_MAX_RANKS)
			return false;
		else
			*out = 10 * *out + (unsigned)(**s - '0');
	return (size_t)(*s - from) >= least;
}

bool ck_megatron_is_rank(const char *name, unsigned at[3], unsigned *nr)
{
	static const char begin[] = "mp_rank_";

	if (strncmp(name, begin, sizeof(begin) - 1) != 0)
		return false;
	name += sizeof(begin) - 1;
	if (!digits(&name, 2, &at[0]))
		return false;
	for (*nr = 1; *name == '_' && *nr < 3; ++*nr) {
		name++;
		if (!digits(&name, 3, &at[*nr]))
			return false;
	}
	return !*name;
}

bool ck_megatron_arg(const struct ck_pickle *p, ck_pv args,
		     struct ck_tp_word name, int64_t *out)
{
	char text[256];
	ck_pv v;

	if (name.len >= sizeof(text))
		return false;
	memcpy(text, name.s, name.len);
	text[name.len] = '\0';
	return ck_pv_attr(p, args, text, &v) && ck_pv_int(p, v, out);
}

static int64_t count(const struct ck_pickle *p, ck_pv args, const char *name)
{
	int64_t n;

	return ck_megatron_arg(p, args,
			       (struct ck_tp_word){ name, strlen(name) }, &n) &&
			       n >= 0 && n <= INT32_MAX ?
		       n :
		       -1;
}

static bool is_set(const struct ck_pickle *p, ck_pv args, const char *name)
{
	return count(p, args, name) > 0;
}

void ck_megatron_args_read(struct megatron_args *a, const struct ck_pickle *p,
			   ck_pv root)
{
	int64_t n;
	double version;
	ck_pv v, args;

	*a = (struct megatron_args){ .iteration = -1, .version = -1 };
	a->there = ck_pv_key(p, root, "args", &args) &&
		   ck_pv_kind(args) == CK_P_CALL;
	if (!a->there)
		args = 0;
	if (ck_pv_key(p, root, "iteration", &v) && ck_pv_int(p, v, &n))
		a->iteration = n;
	if (ck_pv_key(p, root, "checkpoint_version", &v)) {
		if (ck_pv_int(p, v, &n))
			a->version = n;
		else if (ck_pv_float(p, v, &version) && version >= 0 &&
			 version < 1000)
			a->version = (int64_t)version;
	}
	a->tp = count(p, args, "tensor_model_parallel_size");
	if (a->tp < 0)
		a->tp = count(p, args, "model_parallel_size");
	a->pp = count(p, args, "pipeline_model_parallel_size");
	a->ep = count(p, args, "expert_model_parallel_size");
	a->etp = count(p, args, "expert_tensor_parallel_size");
	a->layers = count(p, args, "num_layers");
	a->experts = count(p, args, "num_experts");
	a->rank = count(p, args, "rank");
	a->dp = count(p, args, "data_parallel_size");
	a->heads = count(p, args, "num_attention_heads");
	a->groups = count(p, args, "num_query_groups");
	a->kv_channels = count(p, args, "kv_channels");
	a->first = count(p, args, "decoder_first_pipeline_num_layers");
	a->last = count(p, args, "decoder_last_pipeline_num_layers");
	a->grouped = is_set(p, args, "group_query_attention");
	a->untied = is_set(p, args, "untie_embeddings_and_output_weights");
	a->with_embedding =
		is_set(p, args, "account_for_embedding_in_pipeline_split");
	a->with_loss = is_set(p, args, "account_for_loss_in_pipeline_split");
	a->distributed = is_set(p, args, "use_distributed_optimizer") &&
			 ck_pv_key(p, root, "optimizer", &v) &&
			 ck_pv_kind(v) != CK_P_NONE;
	a->apart = is_set(p, args, "use_distributed_optimizer") &&
		   !is_set(p, args, "no_save_optim");
	a->custom = ck_pv_attr(p, args, "pipeline_model_parallel_layout", &v) &&
		    ck_pv_kind(v) != CK_P_NONE;
}

/* ---- one folder ---- */

const char *ck_megatron_file_of(struct ck_arena *mem, const struct ck_dir *in,
				const char *dir)
{
	const char *file = ck_arena_fmt(mem, "%s/" MEGATRON_FILE, dir);
	const char *old = ck_arena_fmt(mem, "%s/" MEGATRON_FILE_OLD, dir);

	if (!file || !old)
		return NULL;
	return !ck_dir_has(in, file) && ck_dir_has(in, old) ? old : file;
}

const char *ck_megatron_dir_of(struct megatron_load *ld, unsigned tp,
			       unsigned pp, int64_t third)
{
	char stage[16] = "", last[16] = "";

	if (ld->pp > 1)
		snprintf(stage, sizeof(stage), "_%03u", pp);
	if (third >= 0)
		snprintf(last, sizeof(last), "_%03u", (unsigned)third);
	return ck_arena_fmt(&ld->mem, "mp_rank_%02u%s%s", tp, stage, last);
}

/*
 * A folder that has MEGATRON_OPTIM_OLD alone is a replica's.  mp_rank_00_001
 * may be stage 1 or replica 1; the files in it tell.
 */
static int add_folder(struct megatron_load *ld, const char *name,
		      struct ck_err *err)
{
	struct ck_arena *mem = &ld->mem;
	struct megatron_rank r = { 0 }, *to;
	const char *old;

	if (!ck_megatron_is_rank(name, r.at, &r.nr_at))
		return 0;
	r.dir = ck_arena_fmt(mem, "%s", name);
	r.file = ck_megatron_file_of(mem, ld->dir, name);
	r.optim = ck_arena_fmt(mem, "%s/" MEGATRON_OPTIM, name);
	old = ck_arena_fmt(mem, "%s/" MEGATRON_OPTIM_OLD, name);
	if (mem->failed)
		return ck_no_memory(err);
	r.there = ck_dir_has(ld->dir, r.file);
	if (!r.there && r.nr_at > 1 && ck_dir_has(ld->dir, old)) {
		r.file = r.optim = old;
		to = ck_vec_push(&ld->optims);
	} else {
		if (!ck_dir_has(ld->dir, r.optim))
			r.optim = NULL;
		to = ck_vec_push(&ld->ranks);
	}
	if (!to)
		return ck_no_memory(err);
	*to = r;
	return 0;
}

static int list_folders(struct megatron_load *ld, struct ck_err *err)
{
	ck_auto_dir_list struct ck_dir_list l = { 0 };
	int ret = ck_dir_list(ld->dir, "", &l, err);

	for (size_t i = 0; i < l.nr && !ret; i++)
		if (l.v[i].is_dir)
			ret = add_folder(ld, l.v[i].name, err);
	return ret;
}

bool ck_megatron_chunk(const struct ck_pickle *p, unsigned i, ck_pv *out)
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
	int stack =
		ck_megatron_layer(leaf->name, leaf->name_len, &n, &from, &to);

	(void)err;
	if (stack >= 0)
		layers[stack] = CK_MAX(layers[stack], n + 1);
	return 0;
}

static int count_layers(struct megatron_load *ld, struct megatron_rank *r,
			const struct ck_pickle *p, struct ck_err *err)
{
	ck_pv chunk;
	int ret = 0;

	while (r->nr_chunks < MEGATRON_MAX_CHUNKS &&
	       ck_megatron_chunk(p, r->nr_chunks, &chunk))
		r->nr_chunks++;
	r->layers = ck_arena_alloc(&ld->mem, (size_t)r->nr_chunks *
						     MEGATRON_STACKS *
						     sizeof(*r->layers));
	if (!r->layers)
		return ck_no_memory(err);
	for (unsigned i = 0; i < r->nr_chunks && !ret; i++) {
		ck_megatron_chunk(p, i, &chunk);
		ret = ck_torch_walk(p, chunk, count_layer,
				    r->layers + (size_t)i * MEGATRON_STACKS,
				    err);
	}
	return ret;
}

static int read_rank(struct megatron_load *ld, struct megatron_rank *r,
		     struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR,
					 .file = r->file };
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	int ret = ck_torch_open(&f, ld->dir, ld->b, r->file, &r->usable, err);

	if (ret || !r->usable)
		return ret;
	ck_megatron_args_read(&r->args, f.ts.pickle,
			      ck_pickle_root(f.ts.pickle));
	ret = count_layers(ld, r, f.ts.pickle, err);
	if (ret || r->nr_chunks)
		return ret;
	r->usable = false;
	return ck_builder_problem(ld->b, &p, err, "it has no model");
}

/* What must be one number in all files that belong together. */
static int same_run(const struct megatron_load *ld,
		    const struct megatron_rank *a,
		    const struct megatron_rank *b, struct ck_err *err)
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

static unsigned highest(const struct megatron_load *ld, unsigned field)
{
	unsigned most = 0;

	for (size_t i = 0; i < ld->ranks.nr; i++)
		if (field < ld->ranks.v[i].nr_at)
			most = CK_MAX(most, ld->ranks.v[i].at[field]);
	return most;
}

static int find_degrees(struct megatron_load *ld,
			const struct megatron_rank *one, struct ck_err *err)
{
	const struct megatron_args *a = &ld->args;
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

static int place_rank(const struct megatron_load *ld, struct megatron_rank *r,
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
static void drop_replicas(struct megatron_load *ld)
{
	size_t nr = 0;

	for (size_t i = 0; i < ld->ranks.nr; i++) {
		const struct megatron_rank *r = &ld->ranks.v[i];

		if (r->there || !ld->optims.nr || r->nr_at != 2 + (ld->pp > 1))
			ld->ranks.v[nr++] = *r;
	}
	ld->ranks.nr = nr;
}

int ck_megatron_by_place(const void *pa, const void *pb)
{
	const struct megatron_rank *a = pa, *b = pb;

	if (a->pp != b->pp)
		return a->pp < b->pp ? -1 : 1;
	if (a->tp != b->tp)
		return a->tp < b->tp ? -1 : 1;
	return a->ep < b->ep ? -1 : a->ep > b->ep;
}

/* ---- args.rank ---- */

enum field { TP, PP, EP, NR_FIELDS };

static unsigned number(const struct megatron_rank *r, unsigned field)
{
	return field == TP ? r->tp : field == PP ? r->pp : r->ep;
}

/* Those that differ in @last alone become neighbours. */
static int by_last(const void *pa, const void *pb, void *last)
{
	const struct megatron_rank *a = *(struct megatron_rank *const *)pa;
	const struct megatron_rank *b = *(struct megatron_rank *const *)pb;
	unsigned field = *(const unsigned *)last;

	for (unsigned i = 0; i < NR_FIELDS; i++) {
		unsigned f = (field + 1 + i) % NR_FIELDS;

		if (number(a, f) != number(b, f))
			return number(a, f) < number(b, f) ? -1 : 1;
	}
	return 0;
}

static int by_process(const void *pa, const void *pb)
{
	const struct megatron_rank *a = *(struct megatron_rank *const *)pa;
	const struct megatron_rank *b = *(struct megatron_rank *const *)pb;

	if (a->args.rank != b->args.rank)
		return a->args.rank < b->args.rank ? -1 : 1;
	return strcmp(a->dir, b->dir);
}

static bool differ_in_one(const struct megatron_rank *a,
			  const struct megatron_rank *b, unsigned field)
{
	for (unsigned f = 0; f < NR_FIELDS; f++)
		if ((number(a, f) != number(b, f)) != (f == field))
			return false;
	return true;
}

static int check_twice(const struct megatron_load *ld, struct megatron_rank **v,
		       size_t nr, struct ck_err *err)
{
	bool one_process;

	qsort(v, nr, sizeof(*v), by_process);
	one_process = nr && v[0]->args.rank == v[nr - 1]->args.rank;
	for (size_t i = 1; i < nr; i++) {
		int same = v[i - 1]->args.rank == v[i]->args.rank;

		if (same && one_process)
			same = ck_dir_same(ld->dir, v[i - 1]->file, v[i]->file,
					   err);
		if (same < 0)
			return same;
		if (same)
			return ck_fail(
				err, EINVAL,
				"%s: %s and %s are both of rank %" PRId64
				" by their args: one is a copy in the wrong folder",
				ld->dir->path, v[i - 1]->file, v[i]->file,
				v[i]->args.rank);
	}
	return one_process ? 1 : 0;
}

static int check_order(const struct megatron_load *ld, struct ck_err *err)
{
	ck_auto_free struct megatron_rank **v =
		calloc(ld->ranks.nr + 1, sizeof(struct megatron_rank *));
	size_t nr = 0;
	int ret;

	if (!v)
		return ck_no_memory(err);
	for (size_t i = 0; i < ld->ranks.nr; i++)
		if (ld->ranks.v[i].usable && ld->ranks.v[i].args.rank >= 0)
			v[nr++] = &ld->ranks.v[i];
	ret = check_twice(ld, v, nr, err);
	/* expert ranks split in a way unknown may be in any order */
	if (ret || !ld->etp)
		return ret < 0 ? ret : 0;
	for (unsigned field = 0; field < NR_FIELDS; field++) {
		qsort_r(v, nr, sizeof(struct megatron_rank *), by_last, &field);
		for (size_t i = 1; i < nr; i++)
			if (differ_in_one(v[i - 1], v[i], field) &&
			    v[i - 1]->args.rank > v[i]->args.rank)
				return ck_fail(
					err, EINVAL,
					"%s: args.rank is %" PRId64
					" in %s, expected more than the %" PRId64
					" in %s: their folders are swapped, or not of one run",
					ld->dir->path, v[i]->args.rank,
					v[i]->file, v[i - 1]->args.rank,
					v[i - 1]->file);
	}
	return 0;
}

/* ---- all of them ---- */

int ck_megatron_ranks_read(struct megatron_load *ld, struct ck_err *err)
{
	const struct megatron_rank *one = NULL;
	int ret = list_folders(ld, err);

	for (size_t i = 0; i < ld->ranks.nr && !ret; i++) {
		struct megatron_rank *r = &ld->ranks.v[i];

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
			       "%s: no mp_rank_*/" MEGATRON_FILE " can be read",
			       ld->dir->path);
	ld->args = one->args;
	ret = find_degrees(ld, one, err);
	drop_replicas(ld);
	for (size_t i = 0; i < ld->ranks.nr && !ret; i++)
		ret = place_rank(ld, &ld->ranks.v[i], err);
	if (ret)
		return ret;
	qsort(ld->ranks.v, ld->ranks.nr, sizeof(*ld->ranks.v),
	      ck_megatron_by_place);
	return check_order(ld, err);
}
