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
#include "core/format/deepspeed/groups.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/optim/groups.h"
#include "core/container/torch_walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct reading {
	struct ck_ds_groups *g;
	struct ck_torch_open *f;
	const struct ck_pickle *p;
	const struct ck_ds_rank *r; /* NULL: of the universal form */
	uint32_t group; /* at hand */
};

void ck_ds_groups_free(struct ck_ds_groups *g)
{
	for (size_t i = 0; i < g->key.nr; i++)
		free(g->key.v[i].key);
	free(g->key.v);
	for (size_t i = 0; i < g->number.nr; i++)
		free(g->number.v[i].key);
	free(g->number.v);
	free(g->vectors.v);
	ck_str_free(&g->values);
	*g = (struct ck_ds_groups){ 0 };
}

static int no_memory(struct ck_err *err)
{
	return ck_fail(err, ENOMEM, "no memory for the optimizer's groups");
}

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

static int take_value(void *ctx, const char *key, size_t len, ck_pv v,
		      struct ck_err *err)
{
	struct reading *rd = ctx;
	struct ck_ds_group_key *to = ck_vec_push(&rd->g->key);

	if (!to)
		return no_memory(err);
	*to = (struct ck_ds_group_key){ .group = rd->group, .len = len };
	to->key = strndup(key, len);
	if (!to->key)
		return no_memory(err);
	if (is_key(key, len, CK_OPTIM_PARAMS))
		return 0;
	ck_str_fmt(&rd->g->values, "%" PRIu32 ".", rd->group);
	ck_str_add(&rd->g->values, key, len);
	ck_str_puts(&rd->g->values, "=");
	rd->g->odd |= !put_value(rd, v);
	ck_str_puts(&rd->g->values, ";");
	return rd->g->values.failed ? no_memory(err) : 0;
}

/* ---- numbers beside vectors ---- */

static int put_number(struct reading *rd, uint32_t vector, const char *key,
		      size_t len, ck_pv v, struct ck_err *err)
{
	struct ck_ds_number n = { .vector = vector, .len = len }, *to;
	int64_t whole;
	int ret = 1;

	if (ck_pv_kind(v) == CK_P_NONE)
		n.kind = CK_DS_NONE;
	else if (ck_pv_int(rd->p, v, &whole))
		n = (struct ck_ds_number){ .vector = vector,
					   .len = len,
					   .kind = CK_DS_WHOLE,
					   .whole = whole };
	else {
		n.kind = CK_DS_REAL;
		ret = ck_torch_number(rd->f, v, &n.real);
	}
	if (ret < 0)
		return no_memory(err);
	if (!ret)
		return unknown(rd, "it has states that are neither vectors "
				   "of the parameters nor numbers");
	n.key = strndup(key, len);
	to = n.key ? ck_vec_push(&rd->g->number) : NULL;
	if (!to) {
		free(n.key);
		return no_memory(err);
	}
	*to = n;
	return 0;
}

/* The length of the rank's vector of weights. */
static uint64_t len_of(const struct ck_ds_rank *r, uint32_t vector)
{
	for (size_t i = 0; i < r->flats.nr && !r->flats.v[i].state; i++)
		if (r->flats.v[i].group == vector)
			return r->flats.v[i].run.len;
	return 0;
}

/* {exp_avg: vector, step: number} */
static int take_state(struct reading *rd, uint32_t vector, ck_pv state,
		      struct ck_err *err)
{
	struct ck_piter it;
	ck_pv key, v;
	int ret = 0;

	ck_piter_init_pairs(&it, rd->p, state);
	while (!ret && ck_piter_next2(&it, &key, &v)) {
		struct ck_torch_tensor t = { 0 };
		const char *text;
		size_t len;

		if (!ck_pv_str(rd->p, key, &text, &len) || !len ||
		    memchr(text, 0, len))
			return unknown(rd, "a state of it has no name");
		if (ck_torch_is_rebuild(rd->p, v) &&
		    ck_torch_tensor_read(rd->p, v, &t, NULL))
			return unknown(rd, "a state of it cannot be read");
		if (!t.rank)
			ret = put_number(rd, vector, text, len, v, err);
		else if (rd->r && t.shape[0] < len_of(rd->r, vector))
			return unknown(rd, "it has states of another size "
					   "than the parameters");
	}
	return ret;
}

static int take_states(struct reading *rd, ck_pv base, struct ck_err *err)
{
	struct ck_piter it;
	ck_pv states, key, v;
	int64_t n;
	int ret = 0;

	if (!ck_pv_key(rd->p, base, CK_OPTIM_STATE, &states))
		return 0;
	ck_piter_init_pairs(&it, rd->p, states);
	while (!ret && ck_piter_next2(&it, &key, &v))
		if (ck_pv_int(rd->p, key, &n) && n >= 0 &&
		    (uint64_t)n < rd->g->vectors.nr)
			ret = take_state(rd, (uint32_t)n, v, err);
	return ret;
}

static bool has_step(const struct ck_ds_groups *g, uint32_t vector)
{
	for (size_t i = 0; i < g->number.nr; i++)
		if (g->number.v[i].vector == vector &&
		    is_key(g->number.v[i].key, g->number.v[i].len, "step"))
			return true;
	return false;
}

/* Fused optimizers count in the group, where torch.optim does in each state. */
static int take_step(struct reading *rd, ck_pv group, struct ck_err *err)
{
	int ret = 0;
	ck_pv step;

	if (!ck_pv_key(rd->p, group, "step", &step))
		return 0;
	for (uint32_t i = 0; i < rd->g->vectors.nr && !ret; i++)
		if (rd->g->vectors.v[i] == rd->group && !has_step(rd->g, i))
			ret = put_number(rd, i, "step", 4, step, err);
	return ret;
}

/* ---- groups ---- */

/* Vectors are numbered through all groups. */
static int take_params(struct reading *rd, ck_pv group, struct ck_err *err)
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
			return no_memory(err);
		*to = rd->group;
	}
	return 0;
}

static int take_groups(struct reading *rd, ck_pv groups, bool steps,
		       struct ck_err *err)
{
	struct ck_piter it;
	ck_pv group;
	int ret = 0;

	ck_piter_init(&it, rd->p, groups);
	for (rd->group = 0; !ret && ck_piter_next(&it, &group); rd->group++) {
		if (steps)
			ret = take_step(rd, group, err);
		else
			ret = take_params(rd, group, err);
		if (!ret && !steps)
			ret = ck_optim_group_each(rd->p, group, take_value, rd,
						  err);
	}
	rd->g->nr = rd->group;
	return ret;
}

/* @base has the groups, and @beside states. */
static int read_groups(struct reading *rd, ck_pv base, ck_pv beside, bool steps,
		       struct ck_err *err)
{
	ck_pv groups;
	int ret;

	if (!ck_pv_key(rd->p, base, CK_OPTIM_GROUPS, &groups))
		return unknown(rd, "no param_groups were saved "
				   "(elastic_checkpoint)");
	if (!ck_optim_groups_ok(rd->p, groups))
		return unknown(rd, "its param_groups have something else than "
				   "plain values");
	ret = take_groups(rd, groups, false, err);
	if (!ret && !rd->g->why && steps)
		ret = take_states(rd, beside, err);
	if (!ret && !rd->g->why && steps)
		ret = take_groups(rd, groups, true, err);
	return ret;
}

static int read_all(struct reading *rd, struct ck_torch_open *f, ck_pv base,
		    ck_pv beside, bool steps, struct ck_err *err)
{
	int ret;

	rd->g->in = (struct ck_object_in){ .src = f->src,
					   .enc = CK_ENC_PICKLE,
					   .off = f->ts.pickle_off,
					   .len = f->ts.pickle_len };
	ret = read_groups(rd, base, beside, steps, err);
	rd->g->read = !ret && !rd->g->why;
	return ret;
}

int ck_ds_groups_read(struct ck_ds_groups *g, const struct ck_ds_zero *z,
		      struct ck_err *err)
{
	ck_auto_torch_open struct ck_torch_open f = { 0 };
	struct reading rd = { .g = g, .f = &f, .r = ck_ds_first(z) };
	ck_pv inner, base;
	bool ok;
	int ret;

	if (!rd.r)
		return unknown(&rd, "no optimizer file of a stage can be read");
	ret = ck_torch_open(&f, z->dir, z->b, rd.r->file->name, &ok, err);
	if (ret || !ok)
		return ret ? ret : unknown(&rd, "a file of it cannot be read");
	rd.p = f.ts.pickle;
	g->prefix = z->stage3 ? "optimizer_state_dict.optimizer_state_dict." :
				"optimizer_state_dict.base_optimizer_state.";
	if (!ck_pv_key(rd.p, ck_pickle_root(rd.p), "optimizer_state_dict",
		       &inner) ||
	    !ck_pv_key(rd.p, inner,
		       z->stage3 ? "optimizer_state_dict" :
				   "base_optimizer_state",
		       &base))
		return unknown(&rd, "it is not in its files");
	g->zero_stage = ck_pv_key(rd.p, inner, "zero_stage", &inner);
	return read_all(&rd, &f, base, base, z->nr_states > 1, err);
}

int ck_ds_groups_read_universal(struct ck_ds_groups *g, struct ck_torch_open *f,
				bool steps, struct ck_err *err)
{
	struct reading rd = { .g = g, .f = f, .p = f->ts.pickle };
	ck_pv root = ck_pickle_root(rd.p), beside;

	g->zero_stage = true;
	if (!ck_pv_key(rd.p, root, "optimizer_state_dict", &beside))
		beside = root; /* made of stages 1 and 2 */
	return read_all(&rd, f, root, beside, steps, err);
}

bool ck_ds_groups_same(const struct ck_ds_groups *a,
		       const struct ck_ds_groups *b)
{
	return !a->odd && !b->odd && a->nr == b->nr &&
	       a->values.len == b->values.len &&
	       (!a->values.len ||
		!memcmp(a->values.v, b->values.v, a->values.len));
}
