/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rest.c - what a file holds beside model and optimizer
 *
 * train_args, train_status and lr_scheduler are the same in all files; the
 * state of random numbers and of the data loader is each rank's own.  Tensors
 * are shown by themselves, all else below a key as one object.
 */
#include "core/format/nnscaler/priv.h"

#include "core/base/check.h"
#include "core/container/torch_lost.h"
#include "core/container/torch_walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct rest {
	struct ck_nn_set *s;
	struct ck_nn_file *f;
	struct ck_builder *b;
	uint32_t rank;
	bool first; /* says what all files say */
	bool alone; /* merged: there are no ranks */
	uint32_t mem; /* st: the pickle's bytes in the catalog */
	bool has_mem;
	struct ck_str name; /* begins with the key: key_len bytes */
	size_t key_len;
	bool others; /* something that is no tensor was met below the key */
	ck_nn_dims dims;
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

static int tensor(struct rest *r, const struct ck_torch_leaf *leaf,
		  struct ck_err *err)
{
	struct ck_nn_tensor t;
	struct ck_err why = { 0 };
	int ret;

	r->dims.nr = 0;
	ret = ck_nn_place(r->f, leaf->value, &r->dims, &t, &why);
	if (ret == -EINVAL)
		return ck_builder_refuse(r->b, 0, r->name.v, r->name.len, err,
					 "%s", why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	return ck_builder_add(
		r->b,
		&(struct ck_part){
			.name = r->name.v,
			.name_len = r->name.len,
			.src = t.src,
			.dtype = t.dtype,
			.xform = t.xform,
			.rank = t.rank,
			.shape = r->dims.v + t.dims,
			.stride = t.dense ? NULL :
					    (const int64_t *)(r->dims.v +
							      t.dims + t.rank),
			.off = t.off,
		},
		err);
}

/* Where the file's pickle is; 1: nowhere, for it is too large. */
static int pickle_of(struct rest *r, struct ck_object_in *o, struct ck_err *err)
{
	int ret = 0;

	*o = (struct ck_object_in){ .src = r->f->t.src,
				    .enc = CK_ENC_PICKLE,
				    .off = r->f->t.ts.pickle_off,
				    .len = r->f->t.ts.pickle_len };

	if (!r->f->st)
		return 0;
	if (r->f->len > MAX_MEM)
		return 1;
	if (!r->has_mem)
		ret = ck_builder_mem(r->b, r->f->bytes, r->f->len, &r->mem,
				     err);
	r->has_mem = true;
	o->src = r->mem;
	o->off = 0;
	o->len = r->f->len;
	return ret;
}

static int object(struct rest *r, struct ck_err *err)
{
	struct ck_object_in o;
	int ret = pickle_of(r, &o, err);

	o.name = r->name.v;
	o.name_len = r->name.len;
	return ret ? CK_MIN(ret, 0) : ck_builder_object(r->b, &o, err);
}

static int leaf_say(void *ctx, const struct ck_torch_leaf *leaf,
		    struct ck_err *err)
{
	struct rest *r = ctx;

	r->others |= !ck_nn_is_tensor(r->f, leaf->value);
	if (!ck_nn_is_tensor(r->f, leaf->value))
		return 0;
	r->name.len = r->key_len;
	if (leaf->name_len) {
		ck_str_puts(&r->name, ".");
		ck_str_add(&r->name, leaf->name, leaf->name_len);
	}
	if (r->name.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	return tensor(r, leaf, err);
}

static int key_say(struct rest *r, const char *key, size_t len, ck_pv v,
		   struct ck_err *err)
{
	static const char *const taken[] = {
		"model",	  "state_dict",
		"optimizer",	  "optim_state_dict",
		"dist_param_map", "param_area_map",
		"rank",		  NULL
	};
	static const char *const own[] = { "rng_states", "dataloader", NULL };
	bool shared = r->alone || !is_one_of(key, len, own);
	int ret;

	if (is_one_of(key, len, taken) || (shared && !r->first))
		return 0;
	r->name.len = 0;
	if (!shared)
		ck_str_fmt(&r->name, "rank_%u.", r->rank);
	ck_str_add(&r->name, key, len);
	if (r->name.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	r->key_len = r->name.len;
	r->others = false;
	ret = ck_torch_walk(r->f->p, v, leaf_say, r, err);
	r->name.len = r->key_len;
	return ret || !r->others ? ret : object(r, err);
}

/* All but the states of the optimizer: its groups. */
static int groups_say(struct rest *r, struct ck_err *err)
{
	struct ck_object_in o;
	ck_pv model, optimizer, groups;
	int ret;

	if (!r->first || !ck_nn_parts(r->f, &model, &optimizer) ||
	    !ck_pv_key(r->f->p, optimizer, "param_groups", &groups))
		return 0;
	ret = pickle_of(r, &o, err);
	if (!ret)
		ret = ck_nn_groups_say(r->s, r->f, &o, err);
	if (ret || r->s->numbered)
		return CK_MIN(ret, 0);
	r->name.len = 0;
	ck_str_puts(&r->name, "optimizer.param_groups");
	if (r->name.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	return object(r, err);
}

static bool is_tensor(const void *ctx, const struct ck_pickle *p, ck_pv v)
{
	(void)p;
	return ck_nn_is_tensor(ctx, v);
}

/* Integers are names of none in the model, and of states elsewhere. */
static int lost_say(const struct rest *r, struct ck_err *err)
{
	struct ck_torch_lost_in lost = { .p = r->f->p,
					 .from = r->f->root,
					 .b = r->b,
					 .file = r->f->name,
					 .any = true,
					 .is_tensor = is_tensor,
					 .ctx = r->f };
	ck_pv model, optimizer;
	int ret = ck_torch_lost_report(&lost, err);

	if (ret || !ck_nn_parts(r->f, &model, &optimizer))
		return ret;
	lost.from = model;
	lost.integers = true;
	return ck_torch_lost_report(&lost, err);
}

int ck_nn_rest_say(struct ck_nn_set *s, struct ck_nn_file *f, uint32_t rank,
		   struct ck_err *err)
{
	struct rest r = { .s = s,
			  .f = f,
			  .b = s->b,
			  .rank = rank,
			  .first = rank == s->first,
			  .alone = s->merged };
	struct ck_piter it;
	const char *text;
	size_t len;
	ck_pv key, v;
	int ret = 0;

	ck_piter_init_pairs(&it, f->p, f->root);
	while (!ret && ck_piter_next2(&it, &key, &v))
		if (ck_pv_str(f->p, key, &text, &len))
			ret = key_say(&r, text, len, v, err);
	if (!ret)
		ret = groups_say(&r, err);
	if (!ret)
		ret = lost_say(&r, err);
	ck_str_free(&r.name);
	free(r.dims.v);
	return ret;
}
