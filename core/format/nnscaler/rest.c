/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rest.c - what a file holds beside the model and the states of the optimizer
 *
 * train_args, train_status and lr_scheduler are the same in all files; the
 * state of random numbers and of the data loader is each rank's own.  Tensors
 * are shown by themselves, all else below a key as one object.
 *
 * The optimizer's param_groups come with its numbering.  A merged file has
 * torch.optim's own form: states by number, and groups that list the numbers.
 * Each rank numbers what it holds, its buckets or slices; of these it is made
 * as nnScaler's merge does, which counts through origin_param_names and keeps
 * the first rank's only group.  So a state's path is
 * optimizer/state/NUMBER/STATE, whatever its name says.
 */
#include "core/format/nnscaler/nnscaler.h"

#include "core/container/torch_lost.h"
#include "core/optim/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OPTIMIZER "optimizer"

struct rest {
	struct nnscaler *n;
	struct nnscaler_file *f;
	struct ck_object_in in; /* the file's pickle; len 0: it is nowhere */
	bool looked; /* for that */
	struct ck_str name; /* begins with the key: key_len bytes */
	size_t key_len;
	bool others; /* something that is no tensor was met below the key */
};

/* Object trees too large for a tree in the catalog are not copied into it. */
#define MAX_MEM (UINT64_C(1) << 20)

static bool is_one_of(const char *key, size_t len, const char *const *list)
{
	for (; *list; list++)
		if (strlen(*list) == len && !memcmp(*list, key, len))
			return true;
	return false;
}

static int add_tensor(void *ctx, const struct ck_torch_leaf *leaf,
		      struct ck_err *err)
{
	struct rest *r = ctx;
	struct ck_part part = { .name_len = 0 };
	struct ck_err why = { 0 };
	struct ck_extent x;
	int ret;

	if (!ck_nnscaler_is_tensor(r->f, leaf->value)) {
		r->others = true;
		return 0;
	}
	r->name.len = r->key_len;
	ck_str_puts(&r->name, leaf->name_len ? "." : "");
	ck_str_add(&r->name, leaf->name, leaf->name_len);
	if (r->name.failed)
		return ck_no_memory(err);
	ret = ck_nnscaler_extent(r->n, r->f, leaf->value, &x, &why);
	if (ret == -EINVAL)
		return ck_builder_refuse(r->n->a.b, 0, r->name.v, r->name.len,
					 err, "%s", why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	part = ck_extent_part(&x, r->name.v, r->name.len);
	return ck_builder_add(r->n->a.b, &part, err);
}

/* Into r->in, when it is first needed. */
static int find_pickle(struct rest *r, struct ck_err *err)
{
	const struct nnscaler_file *f = r->f;

	if (r->looked)
		return 0;
	r->looked = true;
	r->in = (struct ck_object_in){ .src = f->c.t.src,
				       .enc = CK_ENC_PICKLE,
				       .off = f->c.t.ts.pickle_off,
				       .len = f->c.t.ts.pickle_len };
	if (!f->c.is_st || f->len > MAX_MEM)
		return 0;
	r->in.len = f->len;
	return ck_builder_mem(r->n->a.b, f->bytes, f->len, &r->in.src, err);
}

/* What is called r->name, where that can be found. */
static int add_object(struct rest *r, struct ck_err *err)
{
	int ret = find_pickle(r, err);

	r->in.name = r->name.v;
	r->in.name_len = r->name.len;
	if (r->name.failed)
		return ck_no_memory(err);
	return ret || !r->in.len ? ret :
				   ck_builder_object(r->n->a.b, &r->in, err);
}

static int add_key(struct rest *r, uint32_t rank, const char *key, size_t len,
		   ck_pv v, struct ck_err *err)
{
	static const char *const read[] = {
		"model",	  "state_dict",
		OPTIMIZER,	  "optim_state_dict",
		"dist_param_map", "param_area_map",
		"rank",		  NULL
	};
	static const char *const own[] = { "rng_states", "dataloader", NULL };
	bool shared = r->n->merged || !is_one_of(key, len, own);
	int ret;

	if (is_one_of(key, len, read) || (shared && rank != r->n->first))
		return 0;
	r->name.len = 0;
	if (!shared)
		ck_str_fmt(&r->name, "rank_%u.", rank);
	ck_str_add(&r->name, key, len);
	r->key_len = r->name.len;
	r->others = false;
	ret = ck_torch_walk(r->f->p, v, add_tensor, r, err);
	r->name.len = r->key_len;
	return ret || !r->others ? ret : add_object(r, err);
}

/* ---- groups, and numbers of parameters ---- */

/* Whether one parallelised module has all that the optimizer numbers. */
static const struct nnscaler_module *only_module(const struct nnscaler_rank *r)
{
	const struct nnscaler_module *m = r->modules;

	return m && !m->next && m->has_states && m->ordered && !m->is_virtual &&
			       r->known_optimizer && !m->offset &&
			       m->count == r->nr_ids ?
		       m :
		       NULL;
}

/* @names: the module's list; false: it is none. */
static bool count_names(struct nnscaler *n, const struct nnscaler_file *f,
			const struct nnscaler_module *m, ck_pv names)
{
	for (struct ck_pq_each e = ck_pq_begin(f->p, names, "[]");
	     ck_pq_next(&e);) {
		struct ck_str *text;
		uint32_t at;

		if (!e.name)
			return false;
		text = ck_nnscaler_below(n, "", m->prefix->s, m->prefix->len,
					 e.name, e.len);
		n->a.mem.failed |= text->failed;
		at = ck_strmap_keep(&n->numbers, &n->a.mem, text->v, text->len);
		n->a.mem.failed |= at == CK_STRMAP_NONE;
		if (at != e.at[0]) /* twice the same */
			return false;
	}
	return n->numbers.nr > 0;
}

static bool read_numbers(struct nnscaler *n, const struct nnscaler_file *f,
			 ck_pv groups)
{
	const struct nnscaler_module *m;
	ck_pv model, extra, names;

	if (!ck_optim_groups_ok(f->p, groups) || n->merged)
		return n->merged && ck_optim_groups_ok(f->p, groups);
	m = only_module(&n->ranks.v[n->first]);
	return m && ck_pv_len(f->p, groups) == 1 &&
	       ck_pv_key(f->p, f->root, "model", &model) &&
	       ck_nnscaler_extra(f->p, model, &extra) &&
	       ck_pq(f->p, extra, "origin_param_names", &names) &&
	       count_names(n, f, m, names);
}

/* All but the states of the optimizer, of the first file. */
static int add_groups(struct rest *r, ck_pv optimizer, struct ck_err *err)
{
	struct nnscaler *n = r->n;
	const struct ck_pickle *p = r->f->p;
	const struct ck_optim_groups g = { .b = n->a.b, .dict = OPTIMIZER };
	uint64_t count;
	ck_pv groups, own;
	int ret;

	if (!ck_pv_key(p, optimizer, CK_OPTIM_GROUPS, &groups))
		return 0;
	ret = find_pickle(r, err);
	if (ret)
		return ret;
	/* in the form of a trainer's file, not of one by CubeModule */
	n->numbered = r->in.len && ck_pv_key(p, r->f->root, OPTIMIZER, &own) &&
		      ck_pv_key(p, own, CK_OPTIM_GROUPS, &groups) &&
		      read_numbers(n, r->f, groups);
	if (n->a.mem.failed)
		return ck_no_memory(err);
	if (!n->numbered) {
		r->name.len = 0;
		ck_str_puts(&r->name, OPTIMIZER "." CK_OPTIM_GROUPS);
		return add_object(r, err);
	}
	/* of ranks the only group, which each of them numbers by itself */
	count = n->numbers.nr;
	return ck_optim_groups_report(&g, p, groups, &r->in,
				      n->merged ? NULL : &count, err);
}

static bool is_tensor(const void *ctx, const struct ck_pickle *p, ck_pv v)
{
	(void)p;
	return ck_nnscaler_is_tensor(ctx, v);
}

/* Integers are names of none in the model, and of states elsewhere. */
static int report_lost(const struct rest *r, bool has_model, ck_pv model,
		       struct ck_err *err)
{
	struct ck_torch_lost_in lost = { .p = r->f->p,
					 .from = r->f->root,
					 .b = r->n->a.b,
					 .file = r->f->c.name,
					 .any = true,
					 .is_tensor = is_tensor,
					 .ctx = r->f };
	int ret = ck_torch_lost_report(&lost, err);

	if (ret || !has_model)
		return ret;
	lost.from = model;
	lost.integers = true;
	return ck_torch_lost_report(&lost, err);
}

int ck_nnscaler_rest(struct nnscaler *n, uint32_t rank, struct nnscaler_file *f,
		     struct ck_err *err)
{
	struct rest r = { .n = n, .f = f };
	ck_pv model, optimizer;
	bool has_model = ck_nnscaler_parts(f, &model, &optimizer);
	int ret = 0;

	for (struct ck_pq_each e = ck_pq_begin(f->p, f->root, "{}");
	     !ret && ck_pq_next(&e);)
		if (e.name)
			ret = add_key(&r, rank, e.name, e.len, e.v, err);
	if (!ret && has_model && rank == n->first)
		ret = add_groups(&r, optimizer, err);
	if (!ret)
		ret = report_lost(&r, has_model, model, err);
	ck_str_free(&r.name);
	return ret;
}
