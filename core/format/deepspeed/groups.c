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
#include "core/format/deepspeed/deepspeed.h"

#include "core/base/check.h"
#include "core/optim/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

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
}

/* Nothing is read then. */
static int unknown(struct reading *rd, const char *why)
{
	if (!rd->g->why)
		rd->g->why = why;
	return 0;
}

/* ---- values ---- */

/* A key of the group at hand, whose user is the value. */
static int add_value(struct reading *rd, const struct ck_strmap_key *k,
		     struct ck_err *err)
{
	struct deepspeed_groups *g = rd->g;
	const struct deepspeed_group_key key = {
		rd->group, ck_arena_copy(rd->mem, k->s, k->len), k->len
	};

	if (!key.key)
		return ck_no_memory(err);
	if (!ck_optim_is_params(k->s, k->len)) {
		g->sum = XXH3_64bits_withSeed(k->s, k->len, g->sum + rd->group);
		g->odd |= !ck_pq_hash(rd->p, k->user, &g->sum);
	}
	return ck_vec_put(&g->key, err, key);
}

/* ---- numbers beside vectors ---- */

static int add_number(struct reading *rd, uint32_t vector, const char *key,
		      size_t len, ck_pv v, struct ck_err *err)
{
	struct deepspeed_number n = { .vector = vector, .len = len };
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
	if (ret < 0 || !n.key)
		return ck_no_memory(err);
	return ck_vec_put(&rd->g->number, err, n);
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
		    !strcmp(g->number.v[i].key, "step"))
			return true;
	return false;
}

/* ---- groups ---- */

/* Vectors are numbered through all groups. */
static int add_group(struct reading *rd, ck_pv group, struct ck_err *err)
{
	ck_auto_strmap struct ck_strmap keys = { 0 };
	int64_t n;
	int ret = 0;

	for (struct ck_pq_each e =
		     ck_pq_begin(rd->p, group, CK_OPTIM_PARAMS "/[]");
	     !ret && ck_pq_next(&e);) {
		if (!ck_pv_int(rd->p, e.v, &n) ||
		    n != (int64_t)rd->g->vectors.nr)
			return unknown(rd, "its param_groups do not number "
					   "the vectors one after another");
		ret = ck_vec_put(&rd->g->vectors, err, rd->group);
	}
	if (!ret)
		ret = ck_pq_index(&keys, rd->p, group, "{}", err);
	for (size_t i = 0; i < keys.nr && !ret; i++)
		ret = add_value(rd, &keys.v[i], err);
	return ret;
}

/* Fused optimizers count in the group, where torch.optim does in each state. */
static int add_steps(struct reading *rd, ck_pv groups, struct ck_err *err)
{
	const struct deepspeed_groups *g = rd->g;
	int ret = 0;

	for (struct ck_pq_each e = ck_pq_begin(rd->p, groups, "[]/step");
	     !ret && !g->why && ck_pq_next(&e);)
		for (uint32_t i = 0; i < g->vectors.nr && !ret; i++)
			if (g->vectors.v[i] == e.at[0] && !has_step(g, i))
				ret = add_number(rd, i, "step", 4, e.v, err);
	return ret;
}

/* @base has the groups, and @beside states. */
static int read_all(struct reading *rd, ck_pv base, ck_pv beside, bool steps,
		    struct ck_err *err)
{
	struct deepspeed_groups *g = rd->g;
	ck_pv groups;
	int ret = 0;

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
	for (struct ck_pq_each e = ck_pq_begin(rd->p, groups, "[]");
	     !ret && !g->why && ck_pq_next(&e); g->nr++) {
		rd->group = e.at[0];
		ret = add_group(rd, e.v, err);
	}
	if (!ret && !g->why && steps)
		ret = ck_deepspeed_states_each(rd->p, beside, add_state, rd,
					       err);
	if (!ret && !g->why && steps)
		ret = add_steps(rd, groups, err);
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
	struct reading rd = { .g = &ld->order.universal,
			      .mem = &ld->mem,
			      .f = f,
			      .p = f->ts.pickle };
	ck_pv root = ck_pickle_root(rd.p), beside;

	rd.g->zero_stage = true;
	if (!ck_pv_key(rd.p, root, "optimizer_state_dict", &beside))
		beside = root; /* made of stages 1 and 2 */
	/* steps where parameters have none of their own */
	return read_all(&rd, root, beside,
			!ck_strmap_has(&ld->states, "step", 4), err);
}
