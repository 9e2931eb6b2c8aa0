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
#include "core/assemble/pattern.h"
#include "core/audit/audit.h"
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/container/container.h"
#include "core/format/megatron/megatron.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names and args ---- */

bool ck_megatron_is_rank(const char *name, unsigned at[3], unsigned *nr)
{
	static const struct ck_pattern names[] = { { "mp_rank_#", 0 },
						   { "mp_rank_#_#", 0 },
						   { "mp_rank_#_#_#", 0 } };
	struct ck_pattern_found f;
	bool ok = ck_pattern_find(names, CK_ARRAY_LEN(names), name, &f);

	for (*nr = 0; ok && *nr < f.nr; ++*nr) {
		ok = f.to[*nr] - f.from[*nr] >= (*nr ? 3 : 2) &&
		     f.n[*nr] < MEGATRON_MAX_RANKS;
		at[*nr] = (unsigned)f.n[*nr];
	}
	return ok;
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

	if (ld->nr[PP] > 1)
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
	return ck_builder_report_file(ld->b, CK_ERROR, r->file, err,
				      "it has no model");
}

/* What must be one number in all files that belong together. */
static int check_run(const struct megatron_load *ld,
		     const struct megatron_rank **one, struct ck_err *err)
{
	static const struct ck_audit_words words = {
		.fact = { "iteration", "args.tensor_model_parallel_size",
			  "args.pipeline_model_parallel_size",
			  "args.expert_model_parallel_size", "args.num_layers",
			  "args.num_experts" },
	};
	ck_auto_free struct ck_audit_file *v =
		calloc(ld->ranks.nr + 1, sizeof(*v));
	const struct ck_audit a = {
		.v = v, .nr = ld->ranks.nr, .facts = 6, .world = -1
	};
	ck_auto_str struct ck_str text = { 0 };
	struct ck_audit_vote vote;

	for (size_t i = 0; v && i < a.nr; i++) {
		const struct megatron_rank *r = &ld->ranks.v[i];

		v[i] = (struct ck_audit_file){
			.name = r->file,
			.counts = r->usable,
			.fact = { r->args.iteration, r->args.tp, r->args.pp,
				  r->args.ep, r->args.layers, r->args.experts },
		};
	}
	if (!v)
		return ck_no_memory(err);
	ck_audit_vote(&a, &vote);
	if (vote.first == CK_AUDIT_NONE)
		return ck_fail(err, EINVAL,
			       "%s: no mp_rank_*/" MEGATRON_FILE " can be read",
			       ld->dir->path);
	*one = &ld->ranks.v[vote.first];
	if (vote.other == CK_AUDIT_NONE)
		return 0;
	ck_audit_text(&text, "{difference} is {meant} in {file} and {mine} in ",
		      &a, vote.other, vote.first, &words);
	return text.failed ? ck_no_memory(err) :
			     ck_fail(err, EINVAL,
				     "%s: %s%s: they are of different saves",
				     ld->dir->path, text.v, v[vote.other].name);
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

	ld->nr[TP] = a->tp > 0 ? (unsigned)a->tp : highest(ld, 0) + 1;
	ld->nr[PP] = a->pp > 0 ? (unsigned)a->pp : 1;
	ld->nr[EP] = a->ep > 0 ? (unsigned)a->ep : 1;
	if (!a->there && one->nr_at == 2)
		return ck_fail(
			err, EINVAL,
			"%s: it has no args, which say whether %s is a stage of the pipeline or an expert rank",
			one->file, one->dir);
	if (!a->there && one->nr_at == 3) {
		ld->nr[PP] = highest(ld, 1) + 1;
		ld->nr[EP] = highest(ld, 2) + 1;
	}
	ld->etp = a->etp <= 0 || (unsigned)a->etp == ld->nr[TP] ? ld->nr[TP] :
		  a->etp == 1					? 1 :
								  0;
	if (!ck_mul_ok(ld->nr[TP], ld->nr[PP], &all) ||
	    !ck_mul_ok(all, ld->nr[EP], &all) || all > 64 * ld->ranks.nr + 64)
		return ck_fail(err, EINVAL,
			       "%s: %zu folders of ranks, where args say %u x "
			       "%u x %u ranks",
			       ld->dir->path, ld->ranks.nr, ld->nr[TP],
			       ld->nr[PP], ld->nr[EP]);
	return 0;
}

bool ck_megatron_place(const struct megatron_load *ld, struct megatron_rank *r,
		       bool third)
{
	unsigned n = 0;

	r->n[TP] = r->at[n++];
	r->n[PP] = ld->nr[PP] > 1 ? r->at[n++] : 0;
	r->n[EP] = third ? r->at[n++] : 0;
	return r->nr_at == n && r->n[TP] < ld->nr[TP] && r->n[PP] < ld->nr[PP];
}

static int place_all(struct megatron_load *ld, struct ck_err *err)
{
	for (size_t i = 0; i < ld->ranks.nr; i++) {
		struct megatron_rank *r = &ld->ranks.v[i];

		if (!ck_megatron_place(ld, r, ld->nr[EP] > 1) ||
		    r->n[EP] >= ld->nr[EP])
			return ck_fail(
				err, EINVAL,
				"%s: %s is none of %u tensor-parallel ranks, %u stages and %u expert ranks, which args say there are",
				ld->dir->path, r->dir, ld->nr[TP], ld->nr[PP],
				ld->nr[EP]);
	}
	qsort(ld->ranks.v, ld->ranks.nr, sizeof(*ld->ranks.v),
	      ck_megatron_by_place);
	return 0;
}

/* Folders of a replica that have lost their optimizer's file. */
static void drop_replicas(struct megatron_load *ld)
{
	size_t nr = 0;

	for (size_t i = 0; i < ld->ranks.nr; i++) {
		const struct megatron_rank *r = &ld->ranks.v[i];

		if (r->there || !ld->optims.nr ||
		    r->nr_at != 2 + (ld->nr[PP] > 1))
			ld->ranks.v[nr++] = *r;
	}
	ld->ranks.nr = nr;
}

/* The last number in @order varies fastest. */
static int compare(const struct megatron_rank *a, const struct megatron_rank *b,
		   const unsigned char *order)
{
	for (unsigned i = 0; i < AXES; i++)
		if (a->n[order[i]] != b->n[order[i]])
			return a->n[order[i]] < b->n[order[i]] ? -1 : 1;
	return 0;
}

int ck_megatron_by_place(const void *pa, const void *pb)
{
	static const unsigned char order[AXES] = { PP, TP, EP };

	return compare(pa, pb, order);
}

/* ---- args.rank ---- */

static int by_order(const void *pa, const void *pb, void *order)
{
	return compare(*(struct megatron_rank *const *)pa,
		       *(struct megatron_rank *const *)pb, order);
}

static int by_process(const void *pa, const void *pb)
{
	const struct megatron_rank *a = *(struct megatron_rank *const *)pa;
	const struct megatron_rank *b = *(struct megatron_rank *const *)pb;

	if (a->args.rank != b->args.rank)
		return a->args.rank < b->args.rank ? -1 : 1;
	return strcmp(a->dir, b->dir);
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

/* Those that differ in the last number alone are neighbours, and ascend. */
static int check_ascending(const struct megatron_load *ld,
			   struct megatron_rank **v, size_t nr,
			   unsigned char *order, struct ck_err *err)
{
	qsort_r(v, nr, sizeof(*v), by_order, order);
	for (size_t i = 1; i < nr; i++) {
		const struct megatron_rank *a = v[i - 1], *b = v[i];

		if (a->n[order[0]] == b->n[order[0]] &&
		    a->n[order[1]] == b->n[order[1]] &&
		    a->n[order[2]] != b->n[order[2]] &&
		    a->args.rank > b->args.rank)
			return ck_fail(
				err, EINVAL,
				"%s: args.rank is %" PRId64
				" in %s, expected more than the %" PRId64
				" in %s: their folders are swapped, or not of one run",
				ld->dir->path, b->args.rank, b->file,
				a->args.rank, a->file);
	}
	return 0;
}

static int check_order(const struct megatron_load *ld, struct ck_err *err)
{
	unsigned char orders[][AXES] = { { PP, EP, TP },
					 { EP, TP, PP },
					 { TP, PP, EP } };
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
	for (unsigned i = 0; i < AXES && !ret; i++)
		ret = check_ascending(ld, v, nr, orders[i], err);
	return ret;
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
		ld->nr_chunks = CK_MAX(ld->nr_chunks, r->nr_chunks);
	}
	if (!ret)
		ret = check_run(ld, &one, err);
	if (ret)
		return ret;
	ld->args = one->args;
	ret = find_degrees(ld, one, err);
	drop_replicas(ld);
	if (!ret)
		ret = place_all(ld, err);
	return ret ? ret : check_order(ld, err);
}
