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
#include "core/format/megatron/megatron.h"
#include "core/container/torch_lost.h"
#include "core/container/torch_walk.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct rest {
	struct megatron_file *f;
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
		add_part(r, MEGATRON_OPTIM, sizeof(MEGATRON_OPTIM) - 4, -1);
	for (; i < leaf->depth; i++)
		add_part(r, leaf->path[i].key, leaf->path[i].key_len,
			 leaf->path[i].index);
}

static int add_tensor(struct rest *r, ck_pv v, struct ck_err *err)
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
	struct megatron_load *ld = r->f->ld;

	if (ld->raw_optim)
		return 0;
	ld->raw_optim = true;
	return ck_builder_problem(
		ld->b, &p, err,
		"optimizer states do not say which weights they are of: they are shown as each rank stores them, under optimizer");
}

static int add_leaf(void *ctx, const struct ck_torch_leaf *leaf,
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
		return ck_no_memory(err);
	if (tensor) {
		int ret = r->name.len > 10 &&
					  !memcmp(r->name.v, "optimizer.", 10) ?
				  note_optim(r, err) :
				  0;

		return ret ? ret : add_tensor(r, leaf->value, err);
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

static int add_below(void *ctx, const struct ck_torch_leaf *leaf,
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
	return add_leaf(w->r, &full, err);
}

static int walk_below(struct below *w, ck_pv v, struct ck_err *err)
{
	const struct ck_torch_lost_in lost = { .p = w->r->of->ts.pickle,
					       .from = v,
					       .b = w->r->f->ld->b,
					       .file = w->r->of->s->name,
					       .any = true };
	int ret = ck_torch_walk(lost.p, v, add_below, w, err);

	return ret ? ret : ck_torch_lost_report(&lost, err);
}

/* {0: {(dtype, dtype): {param: vector, ...}}}: pairs of dtypes are numbered. */
static int add_buffers(struct rest *r, ck_pv buffer, int64_t nr,
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
static int add_other(struct rest *r, ck_pv key, ck_pv v, struct ck_err *err)
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
static int add_optim(struct megatron_file *f, struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open of = { 0 };
	struct rest r = { .f = f, .of = &of, .top = "optimizer" };
	const struct ck_problem_in p = { .severity = CK_ERROR,
					 .file = f->rank->optim };
	struct ck_piter it;
	ck_pv root, key, v;
	int64_t n;
	bool ok;
	int ret;

	if (!p.file)
		return 0;
	f->ld->any_optim = true;
	ret = ck_torch_open(&of, f->ld->dir, f->ld->b, p.file, &ok, err);
	if (ret || !ok)
		return ret;
	root = ck_pickle_root(of.ts.pickle);
	if (!has_buffers(of.ts.pickle, root))
		return ck_builder_problem(f->ld->b, &p, err,
					  "it has no buffers of a distributed "
					  "optimizer: it is not read");
	ck_piter_init_pairs(&it, of.ts.pickle, root);
	while (!ret && ck_piter_next2(&it, &key, &v))
		ret = ck_pv_int(of.ts.pickle, key, &n) && n >= 0 ?
			      add_buffers(&r, v, n, err) :
			      add_other(&r, key, v, err);
	ck_str_free(&r.name);
	return ret;
}

int ck_megatron_rest(struct megatron_file *f, bool apart, struct ck_err *err)
{
	struct rest r = { .f = f, .of = &f->f, .apart = apart };
	const struct ck_torch_lost_in lost = {
		.p = f->f.ts.pickle,
		.from = ck_pickle_root(f->f.ts.pickle),
		.b = f->ld->b,
		.file = f->rank->file,
		.any = true,
	};
	int ret = ck_torch_walk(lost.p, lost.from, add_leaf, &r, err);

	ck_str_free(&r.name);
	if (!ret)
		ret = ck_torch_lost_report(&lost, err);
	return ret || apart ? ret : add_optim(f, err);
}
