/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.c - what an optimizer file says of the parameters' groups
 *
 *   param_groups  [{'lr': 0.1, ..., 'params': [0]}]    numbers of vectors
 *   state         {0: {'step': 3., 'exp_avg': vector}} of each vector
 *
 * Vector N is entry N of param_shapes; of stage 3 a group may have several.
 * What a state has beside vectors is of each of their parameters.
 */
#include "core/format/deepspeed/order.h"

#include "core/base/check.h"
#include "core/optim/groups.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct reading {
	struct deepspeed_groups *g;
	struct ck_arena *mem;
	struct ck_torch_open *f;
	const struct ck_pickle *p;
	const struct deepspeed_rank *r; /* NULL: of the universal form */
	uint32_t group; /* at hand */
};

void ck_deepspeed_groups_free(struct deepspeed_groups *g)
{
	free(g->key.v);
	free(g->number.v);
	free(g->vectors.v);
	ck_str_free(&g->values);
}

/* Nothing is read then. */
static int unknown(struct reading *rd, const char *why)
{
	if (!rd->g->why)
		rd->g->why = why;
	return 0;
}

/* ---- values ---- */

static bool is_key(const char *key, size_t len, const char *word)
{
	return len == strlen(word) && !memcmp(key, word, len);
}

/* As text that differs where values do; false: it is no plain one. */
static bool put_scalar(struct reading *rd, ck_pv v)
{
	struct ck_str *s = &rd->g->values;
	const char *text;
	double d;
	int64_t n;
	size_t len;

	ck_str_fmt(s, "%d:", (int)ck_pv_kind(v));
	if (ck_pv_kind(v) == CK_P_NONE)
		return true;
	if (ck_pv_int(rd->p, v, &n))
		ck_str_fmt(s, "%" PRIi64, n);
	else if (ck_pv_float(rd->p, v, &d))
		ck_str_fmt(s, "%.17g", d);
	else if (ck_pv_str(rd->p, v, &text, &len))
		ck_str_add(s, text, len);
	else
		return false;
	return true;
}

static bool put_value(struct reading *rd, ck_pv v)
{
	struct ck_piter it;
	bool plain = true;
	ck_pv item;

	if (ck_pv_kind(v) != CK_P_TUPLE && ck_pv_kind(v) != CK_P_LIST)
		return put_scalar(rd, v);
	ck_piter_init(&it, rd->p, v);
	for (; plain && ck_piter_next(&it, &item);
	     ck_str_puts(&rd->g->values, ","))
		plain = put_scalar(rd, item);
	return plain;
}

static int add_value(void *ctx, const char *key, size_t len, ck_pv v,
		     struct ck_err *err)
{
	struct reading *rd = ctx;
	struct deepspeed_group_key *to = ck_vec_push(&rd->g->key);
	const char *copy = ck_arena_copy(rd->mem, key, len);

	if (!to || !copy)
		return ck_no_memory(err);
	*to = (struct deepspeed_group_key){ rd->group, copy, len };
	if (is_key(key, len, CK_OPTIM_PARAMS))
		return 0;
	ck_str_fmt(&rd->g->values, "%" PRIu32 ".", rd->group);
	ck_str_add(&rd->g->values, key, len);
	ck_str_puts(&rd->g->values, "=");
	rd->g->odd |= !put_value(rd, v);
	ck_str_puts(&rd->g->values, ";");
	return rd->g->values.failed ? ck_no_memory(err) : 0;
}

/* ---- numbers beside vectors ---- */

static int add_number(struct reading *rd, uint32_t vector, const char *key,
		      size_t len, ck_pv v, struct ck_err *err)
{
	struct deepspeed_number n = { .vector = vector, .len = len }, *to;
	int ret = 1;

	if (ck_pv_int(rd->p, v, &n.whole)) {
		n.kind = DEEPSPEED_WHOLE;
	} else if (ck_pv_kind(v) != CK_P_NONE) {
		n.kind = DEEPSPEED_REAL;
		ret = ck_torch_number(rd->f, v, &n.real);
	}
	if (!ret)
		return unknown(rd, "it has states that are neither vectors "
				   "of the parameters nor numbers");
	n.key = ck_arena_copy(rd->mem, key, len);
	to = ck_vec_push(&rd->g->number);
	if (ret < 0 || !n.key || !to)
		return ck_no_memory(err);
	*to = n;
	return 0;
}

static int add_state(void *ctx, uint32_t vector, ck_pv key, ck_pv v,
		     struct ck_err *err)
{
	struct reading *rd = ctx;
	const struct deepspeed_flat *w = ck_deepspeed_flat(rd->r, 0, vector);
	struct ck_torch_tensor t = { 0 };
	const char *text;
	size_t len;

	if (vector >= rd->g->vectors.nr || rd->g->why)
		return 0;
	if (!ck_pv_str(rd->p, key, &text, &len) || !len || memchr(text, 0, len))
		return unknown(rd, "a state of it has no name");
	if (ck_torch_is_rebuild(rd->p, v) &&
	    ck_torch_tensor_read(rd->p, v, &t, NULL))
		return unknown(rd, "a state of it cannot be read");
	if (!t.rank)
		return add_number(rd, vector, text, len, v, err);
	return w && t.shape[0] < w->run.len ?
		       unknown(rd, "it has states of another size than the "
				   "parameters") :
		       0;
}

static bool has_step(const struct deepspeed_groups *g, uint32_t vector)
{
	for (size_t i = 0; i < g->number.nr; i++)
		if (g->number.v[i].vector == vector &&
		    is_key(g->number.v[i].key, g->number.v[i].len, "step"))
			return true;
	return false;
}

/* Fused optimizers count in the group, where torch.optim does in each state. */
static int add_step(struct reading *rd, ck_pv group, struct ck_err *err)
{
	int ret = 0;
	ck_pv step;

	if (!ck_pv_key(rd->p, group, "step", &step))
		return 0;
	for (uint32_t i = 0; i < rd->g->vectors.nr && !ret; i++)
		if (rd->g->vectors.v[i] == rd->group && !has_step(rd->g, i))
			ret = add_number(rd, i, "step", 4, step, err);
	return ret;
}

/* ---- groups ---- */

/* Vectors are numbered through all groups. */
static int add_group(struct reading *rd, ck_pv group, struct ck_err *err)
{
	struct ck_piter it;
	ck_pv params, item;
	uint32_t *to;
	int64_t n;

	if (!ck_pv_key(rd->p, group, CK_OPTIM_PARAMS, &params))
		return 0; /* ck_optim_groups_ok() has seen them */
	ck_piter_init(&it, rd->p, params);
	while (ck_piter_next(&it, &item)) {
		if (!ck_pv_int(rd->p, item, &n) ||
		    n != (int64_t)rd->g->vectors.nr)
			return unknown(rd, "its param_groups do not number "
					   "the vectors one after another");
		to = ck_vec_push(&rd->g->vectors);
		if (!to)
			return ck_no_memory(err);
		*to = rd->group;
	}
	return ck_optim_group_each(rd->p, group, add_value, rd, err);
}

static int each_group(struct reading *rd, ck_pv groups,
		      int (*fn)(struct reading *rd, ck_pv group,
				struct ck_err *err),
		      struct ck_err *err)
{
	struct ck_piter it;
	ck_pv group;
	int ret = 0;

	ck_piter_init(&it, rd->p, groups);
	for (rd->group = 0; !ret && !rd->g->why && ck_piter_next(&it, &group);
	     rd->group++)
		ret = fn(rd, group, err);
	rd->g->nr = rd->group;
	return ret;
}

/* @base has the groups, and @beside states. */
static int read_all(struct reading *rd, ck_pv base, ck_pv beside, bool steps,
		    struct ck_err *err)
{
	struct deepspeed_groups *g = rd->g;
	ck_pv groups;
	int ret;

	g->in = (struct ck_object_in){ .src = rd->f->src,
				       .enc = CK_ENC_PICKLE,
				       .off = rd->f->ts.pickle_off,
				       .len = rd->f->ts.pickle_len };
	if (!ck_pv_key(rd->p, base, CK_OPTIM_GROUPS, &groups))
		return unknown(rd, "no param_groups were saved "
				   "(elastic_checkpoint)");
	if (!ck_optim_groups_ok(rd->p, groups))
		return unknown(rd, "its param_groups have something else than "
				   "plain values");
	ret = each_group(rd, groups, add_group, err);
	if (!ret && !g->why && steps)
		ret = ck_deepspeed_states_each(rd->p, beside, add_state, rd,
					       err);
	if (!ret && !g->why && steps)
		ret = each_group(rd, groups, add_step, err);
	g->read = !ret && !g->why;
	return ret;
}

int ck_deepspeed_groups_read(struct deepspeed_groups *g,
			     const struct deepspeed_zero *z, struct ck_err *err)
{
	const char *dict =
		z->stage3 ? "optimizer_state_dict" : "base_optimizer_state";
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	struct reading rd = {
		.g = g, .mem = &z->ld->mem, .f = &f, .r = ck_deepspeed_first(z)
	};
	ck_pv inner, base, v;
	bool ok;
	int ret;

	if (!rd.r)
		return unknown(&rd, "no optimizer file of a stage can be read");
	ret = ck_torch_open(&f, z->ld->dir, z->ld->b, rd.r->name, &ok, err);
	if (ret || !ok)
		return ret ? ret : unknown(&rd, "a file of it cannot be read");
	rd.p = f.ts.pickle;
	g->prefix = z->stage3 ? "optimizer_state_dict.optimizer_state_dict." :
				"optimizer_state_dict.base_optimizer_state.";
	if (!ck_pq(rd.p, ck_pickle_root(rd.p), "optimizer_state_dict",
		   &inner) ||
	    !ck_pq(rd.p, inner, dict, &base))
		return unknown(&rd, "it is not in its files");
	g->zero_stage = ck_pv_key(rd.p, inner, "zero_stage", &v);
	return read_all(&rd, base, base, z->states.nr > 1, err);
}

int ck_deepspeed_order_universal(struct deepspeed_load *ld,
				 struct ck_torch_open *f, struct ck_err *err)
{
	struct reading rd = { .g = &ld->order->universal,
			      .mem = &ld->mem,
			      .f = f,
			      .p = f->ts.pickle };
	ck_pv root = ck_pickle_root(rd.p), beside;

	rd.g->zero_stage = true;
	if (!ck_pv_key(rd.p, root, "optimizer_state_dict", &beside))
		beside = root; /* made of stages 1 and 2 */
	/* steps where parameters have none of their own */
	return read_all(&rd, root, beside,
			ck_strmap_get(&ld->states, "step", 4) == CK_STRMAP_NONE,
			err);
}

bool ck_deepspeed_groups_same(const struct deepspeed_groups *a,
			      const struct deepspeed_groups *b)
{
	return !a->odd && !b->odd && a->nr == b->nr &&
	       a->values.len == b->values.len &&
	       (!a->values.len ||
		!memcmp(a->values.v, b->values.v, a->values.len));
}
