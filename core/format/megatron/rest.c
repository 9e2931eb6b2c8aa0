/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rest.c - what is in the rank files beside the weights
 *
 * Optimizer states are known by number only, or lie in flat vectors, and
 * Megatron-LM itself never joins them: they are shown as each rank stores
 * them, as KEY.RANK.REST.
 */
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/suffix.h"
#include "core/assemble/file_same.h"
#include "core/format/megatron/priv.h"
#include "core/container/torch_lost.h"
#include "core/container/torch_walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_PAIRED 32 /* ranks of which all pairs are compared */
#define OPTIM "distrib_optim.pt"

struct rest {
	struct ck_mg_file *f;
	struct ck_torch_open *of;
	const char *top; /* put before the path; NULL: nothing */
	bool apart; /* the file is no rank's with weights */
	struct ck_str name;
	struct ck_path_part path[CK_TORCH_MAX_DEPTH + 3];
	unsigned nr;
};

static void add_part(struct rest *r, const char *key, size_t len, int64_t index)
{
	if (r->nr)
		ck_str_puts(&r->name, ".");
	if (index >= 0)
		ck_str_fmt(&r->name, "%" PRId64, index);
	else
		ck_str_add(&r->name, key, len);
	r->path[r->nr++] = (struct ck_path_part){ key, len, index };
}

/* KEY.RANK.REST, so that what belongs to the trainer has its own first key. */
static void make_name(struct rest *r, const struct ck_torch_leaf *leaf)
{
	const char *dir = r->f->rank->dir;
	unsigned i = 0;

	r->name.len = 0;
	r->nr = 0;
	if (r->top)
		add_part(r, r->top, strlen(r->top), -1);
	else if (leaf->depth)
		add_part(r, leaf->path[0].key, leaf->path[0].key_len,
			 leaf->path[i++].index);
	if (r->f->ld->ranks.nr > 1 || r->apart)
		add_part(r, dir, strlen(dir), -1);
	if (r->top)
		add_part(r, OPTIM, sizeof(OPTIM) - 4, -1);
	for (; i < leaf->depth; i++)
		add_part(r, leaf->path[i].key, leaf->path[i].key_len,
			 leaf->path[i].index);
}

static int say_tensor(struct rest *r, ck_pv v, struct ck_err *err)
{
	ck_auto_cut struct ck_cut cut = { 0 };
	struct ck_torch_place at;
	struct ck_err why = { 0 };
	int ret = ck_torch_place(r->of, v, &at, &why);

	if (!ret)
		ret = ck_cut_whole(&cut, at.t.shape, at.t.rank, &why);
	if (ret == -EINVAL)
		return ck_builder_refuse(r->f->ld->b, 0, r->name.v, r->name.len,
					 err, "%s", why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	ret = ck_cut_add_tensor(&cut, r->f->ld->b, r->name.v, r->name.len, &at,
				err);
	return ret ? ret :
		     ck_builder_path(r->f->ld->b, 0, r->name.v, r->name.len,
				     r->path, r->nr, err);
}

static bool is_weights(const struct ck_torch_leaf *leaf)
{
	static const char model[] = "model";
	const struct ck_path_part *first = &leaf->path[0];
	size_t at = sizeof(model) - 1;

	if (!leaf->depth || first->index >= 0 || first->key_len < at ||
	    memcmp(first->key, model, at) != 0)
		return false;
	while (at < first->key_len && first->key[at] >= '0' &&
	       first->key[at] <= '9')
		at++;
	return at == first->key_len;
}

static int note_optim(struct rest *r, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_NOTE,
					 .file = r->of->s->name };
	struct ck_mg_load *ld = r->f->ld;

	if (ld->raw_optim)
		return 0;
	ld->raw_optim = true;
	return ck_builder_problem(
		ld->b, &p, err,
		"optimizer states do not say which weights they are of: they are shown as each rank stores them, under optimizer");
}

static int say_leaf(void *ctx, const struct ck_torch_leaf *leaf,
		    struct ck_err *err)
{
	struct rest *r = ctx;
	struct ck_object_in o = { .src = r->of->src,
				  .enc = CK_ENC_PICKLE,
				  .off = r->of->ts.pickle_off,
				  .len = r->of->ts.pickle_len };
	bool tensor = ck_torch_is_rebuild(r->of->ts.pickle, leaf->value);

	if (!r->top && !r->apart && is_weights(leaf))
		return 0;
	make_name(r, leaf);
	if (r->name.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	if (tensor) {
		int ret = r->name.len > 10 &&
					  !memcmp(r->name.v, "optimizer.", 10) ?
				  note_optim(r, err) :
				  0;

		return ret ? ret : say_tensor(r, leaf->value, err);
	}
	o.name = r->name.v;
	o.name_len = r->name.len;
	return ck_builder_object(r->f->ld->b, &o, err);
}

/* What leads to a leaf in the file of the distributed optimizer. */
struct below {
	struct rest *r;
	struct ck_path_part at[2];
	unsigned nr;
};

static int say_below(void *ctx, const struct ck_torch_leaf *leaf,
		     struct ck_err *err)
{
	struct below *w = ctx;
	struct ck_torch_leaf full = *leaf;

	if (!ck_torch_is_rebuild(w->r->of->ts.pickle, leaf->value))
		return 0;
	if (leaf->depth + w->nr > CK_TORCH_MAX_DEPTH)
		return ck_fail(err, E2BIG, "%s: nested more than %d deep",
			       w->r->of->s->name, CK_TORCH_MAX_DEPTH);
	memcpy(full.path, w->at, w->nr * sizeof(*w->at));
	memcpy(full.path + w->nr, leaf->path,
	       leaf->depth * sizeof(*leaf->path));
	full.depth += w->nr;
	return say_leaf(w->r, &full, err);
}

static int walk_below(struct below *w, ck_pv v, struct ck_err *err)
{
	const struct ck_torch_lost_in lost = { .p = w->r->of->ts.pickle,
					       .from = v,
					       .b = w->r->f->ld->b,
					       .file = w->r->of->s->name,
					       .any = true };
	int ret = ck_torch_walk(lost.p, v, say_below, w, err);

	return ret ? ret : ck_torch_lost_report(&lost, err);
}

/* {0: {(dtype, dtype): {param: vector, ...}}}: pairs of dtypes are numbered. */
static int say_buffers(struct rest *r, ck_pv buffer, int64_t nr,
		       struct ck_err *err)
{
	struct below w = { .r = r, .at = { { .index = nr } }, .nr = 2 };
	struct ck_piter kinds;
	ck_pv key, state;
	int ret = 0;

	ck_piter_init_pairs(&kinds, r->of->ts.pickle, buffer);
	for (; !ret && ck_piter_next2(&kinds, &key, &state); w.at[1].index++)
		ret = walk_below(&w, state, err);
	return ret;
}

/* Sizes of buffers and the like, under texts; no tensors that are known of. */
static int say_other(struct rest *r, ck_pv key, ck_pv v, struct ck_err *err)
{
	struct below w = { .r = r, .at = { { .index = -1 } }, .nr = 1 };

	if (ck_pv_str(r->of->ts.pickle, key, &w.at->key, &w.at->key_len))
		return walk_below(&w, v, err);
	return 0;
}

static bool has_buffers(const struct ck_pickle *p, ck_pv root)
{
	struct ck_piter it;
	ck_pv key, v;
	int64_t n;

	ck_piter_init_pairs(&it, p, root);
	while (ck_piter_next2(&it, &key, &v))
		if (ck_pv_int(p, key, &n) && n >= 0)
			return true;
	return false;
}

/* The distributed optimizer's file, which lies beside the first. */
static int say_optim(struct ck_mg_file *f, struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open of = { 0 };
	ck_auto_str struct ck_str file = { 0 };
	struct rest r = { .f = f, .of = &of, .top = "optimizer" };
	struct ck_piter it;
	struct ck_problem_in p = { .severity = CK_ERROR };
	ck_pv root, key, v;
	int64_t n;
	bool ok;
	int ret;

	ck_str_fmt(&file, "%s/" OPTIM, f->rank->dir);
	if (file.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	if (!ck_dir_has(f->ld->dir, file.v))
		return 0;
	f->ld->any_optim = true;
	ret = ck_torch_open(&of, f->ld->dir, f->ld->b, file.v, &ok, err);
	if (ret || !ok)
		return ret;
	root = ck_pickle_root(of.ts.pickle);
	p.file = file.v;
	if (!has_buffers(of.ts.pickle, root))
		return ck_builder_problem(f->ld->b, &p, err,
					  "it has no buffers of a distributed "
					  "optimizer: it is not read");
	ck_piter_init_pairs(&it, of.ts.pickle, root);
	while (!ret && ck_piter_next2(&it, &key, &v))
		ret = ck_pv_int(of.ts.pickle, key, &n) && n >= 0 ?
			      say_buffers(&r, v, n, err) :
			      say_other(&r, key, v, err);
	ck_str_free(&r.name);
	return ret;
}

static int say_file(struct ck_mg_file *f, bool apart, struct ck_err *err)
{
	struct rest r = { .f = f, .of = &f->f, .apart = apart };
	int ret = ck_torch_walk(f->f.ts.pickle, ck_pickle_root(f->f.ts.pickle),
				say_leaf, &r, err);

	ck_str_free(&r.name);
	if (!ret)
		ret = ck_torch_lost_report(
			&(struct ck_torch_lost_in){
				.p = f->f.ts.pickle,
				.from = ck_pickle_root(f->f.ts.pickle),
				.b = f->ld->b,
				.file = f->rank->file,
				.any = true },
			err);
	return ret;
}

int ck_mg_rest_say(struct ck_mg_file *f, struct ck_err *err)
{
	int ret = say_file(f, false, err);

	return ret ? ret : say_optim(f, err);
}

int ck_mg_apart_say(struct ck_mg_file *f, struct ck_err *err)
{
	return say_file(f, true, err);
}

/* Two ranks' vectors are of other weights; 1 where their files are alike. */
static int same_optim(const struct ck_mg_load *ld, size_t a, size_t b,
		      struct ck_err *err)
{
	ck_auto_str struct ck_str one = { 0 }, two = { 0 };

	ck_str_fmt(&one, "%s/" OPTIM, ld->ranks.v[a].dir);
	ck_str_fmt(&two, "%s/" OPTIM, ld->ranks.v[b].dir);
	if (one.failed || two.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	if (!ck_dir_has(ld->dir, one.v) || !ck_dir_has(ld->dir, two.v))
		return 0;
	return ck_dir_same(ld->dir, one.v, two.v, err);
}

static int say_same_optim(struct ck_mg_load *ld, size_t a, size_t b,
			  struct ck_err *err)
{
	ck_auto_str struct ck_str file = { 0 };
	struct ck_problem_in p = { .severity = CK_WARNING };
	int ret = same_optim(ld, a, b, err);

	if (ret <= 0)
		return ret == -ENOMEM ? ret : 0;
	ck_str_fmt(&file, "%s/" OPTIM, ld->ranks.v[b].dir);
	if (file.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	p.file = file.v;
	return ck_builder_problem(ld->b, &p, err,
				  "it is the same as that of %s: one of them "
				  "is a copy in the wrong folder",
				  ld->ranks.v[a].dir);
}

/* Of many ranks neighbours are compared. */
static int find_copies(struct ck_mg_load *ld, struct ck_err *err)
{
	size_t nr = ld->ranks.nr;
	int ret = 0;

	for (size_t a = 0; a < nr && !ret; a++)
		for (size_t b = a + 1;
		     b < nr && (nr <= MAX_PAIRED || b == a + 1) && !ret; b++)
			if (ld->ranks.v[a].usable && ld->ranks.v[b].usable)
				ret = say_same_optim(ld, a, b, err);
	return ret;
}

/* Whether the files are of the time when optimizers had folders. */
static bool is_old(const struct ck_mg_load *ld)
{
	for (size_t i = 0; i < ld->ranks.nr; i++)
		if (ck_has_suffix(ld->ranks.v[i].file, "/" CK_MG_FILE_OLD))
			return true;
	return false;
}

/* The groups of a distributed optimizer are there, and none of its files. */
static int say_no_optim(struct ck_mg_load *ld, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING };
	bool old = is_old(ld);

	if (ld->any_optim || !(old ? ld->args.apart : ld->args.distributed))
		return 0;
	return ck_builder_problem(
		ld->b, &p, err,
		"args.use_distributed_optimizer is set, and no rank has %s: the optimizer's states and its copies of the weights in full precision are lost",
		old ? "an " CK_MG_OPTIM_OLD : "a " OPTIM);
}

int ck_mg_optim_gaps(struct ck_mg_load *ld, struct ck_err *err)
{
	int ret = say_no_optim(ld, err);

	for (size_t i = 0; i < ld->ranks.nr && ld->any_optim && !ret; i++) {
		ck_auto_str struct ck_str file = { 0 };
		struct ck_problem_in lost = { .severity = CK_ERROR };

		if (!ld->ranks.v[i].usable)
			continue;
		ck_str_fmt(&file, "%s/" OPTIM, ld->ranks.v[i].dir);
		if (file.failed)
			return ck_fail(err, ENOMEM, "no memory for a name");
		lost.file = file.v;
		if (!ck_dir_has(ld->dir, file.v))
			ret = ck_builder_problem(
				ld->b, &lost, err,
				"missing: other ranks have one, so this rank's optimizer states are lost");
	}
	return ret || !ld->any_optim ? ret : find_copies(ld, err);
}
