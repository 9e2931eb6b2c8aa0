/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c - numbers of parameters, as one optimizer of the whole has them
 *
 * Groups follow each other; in a group the parameters are in the order of
 * param_shapes, before round_robin_gradients dealt them to ranks, stage after
 * stage of a pipeline, whose module has what is tied first of all.  Without
 * such an order states stay as they were said, and a note says why.
 */
#include "core/format/deepspeed/groups.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/le.h"
#include "core/optim/groups.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPTIMIZER "optimizer"
#define TIED "tied_modules."

static int no_memory(struct ck_err *err)
{
	return ck_fail(err, ENOMEM, "no memory for the optimizer's order");
}

void ck_ds_order_free(struct ck_ds_order *o)
{
	for (unsigned i = 0; i < o->nr; i++) {
		struct ck_ds_stage *s = &o->stage[i];

		for (size_t k = 0; k < s->param.nr; k++)
			free(s->param.v[k].name);
		free(s->param.v);
		ck_ds_groups_free(&s->groups);
	}
	free(o->stage);
	ck_ds_groups_free(&o->universal);
	ck_strmap_free(&o->states);
	for (size_t i = 0; i < o->kept.nr; i++)
		free(o->kept.v[i]);
	free(o->kept.v);
	*o = (struct ck_ds_order){ 0 };
}

/* ---- what a stage trains ---- */

/* What the run was told: 1, 0, or -1 where no file has it. */
static int told_round_robin(const struct ck_ds_model *m)
{
	const struct ck_pickle *p = m->f.ts.pickle;
	ck_pv config, zero, v;
	int64_t yes;

	if (!ck_pv_key(p, ck_pickle_root(p), "ds_config", &config) ||
	    !ck_pv_key(p, config, "zero_optimization", &zero))
		return -1;
	return ck_pv_key(p, zero, "round_robin_gradients", &v) &&
	       ck_pv_int(p, v, &yes) && yes;
}

/* Whether groups have their parameters as the model has: 1, 0 or -ENOMEM. */
static int in_model_order(const struct ck_ds_model *m)
{
	ck_auto_strmap struct ck_strmap names = { 0 };
	const struct ck_pickle *p = m->f.ts.pickle;
	uint32_t at = 0, before = 0;
	struct ck_piter it;
	const char *s;
	size_t len;
	ck_pv key, v;

	ck_piter_init_pairs(&it, p, m->module);
	while (ck_piter_next2(&it, &key, &v))
		if (ck_pv_str(p, key, &s, &len) &&
		    ck_strmap_put(&names, s, len) == CK_STRMAP_NONE)
			return -ENOMEM;
	for (size_t i = 0; i < m->params.nr; i++, before = at) {
		const struct ck_ds_param *q = &m->params.v[i];

		at = ck_strmap_get(&names, q->name, q->name_len);
		if (at == CK_STRMAP_NONE ||
		    (i && q[-1].group == q->group && at <= before))
			return 0;
	}
	return 1;
}

/* Whether param_shapes is in the order of ranks: 1, 0, -1: unknown, -ENOMEM. */
static int is_dealt(const struct ck_ds_zero *z, const struct ck_ds_groups *g,
		    bool universal, const char **why)
{
	int told, ret;

	if (z->m->stage3)
		return 0;
	told = z->undone ? 1 : told_round_robin(z->m);
	if (!told)
		return 0;
	if (told > 0 && !universal && g->zero_stage && z->count)
		return 1;
	ret = told < 0 ? in_model_order(z->m) : 0;
	if (ret)
		return ret < 0 ? ret : 0;
	*why = told < 0 ?
		       "no ds_config says whether param_shapes, which is not in the order of the model, is in that of round_robin_gradients" :
		       "it is in an order of round_robin_gradients that no file says";
	return 0;
}

static int take_param(struct ck_ds_stage *s, const char *name, size_t len,
		      uint32_t vector, uint32_t group, struct ck_err *err)
{
	struct ck_ds_trained *to = ck_vec_push(&s->param);

	if (!to)
		return no_memory(err);
	*to = (struct ck_ds_trained){
		.name = strndup(name, len),
		.vector = vector,
		.group = group,
		.tied = len > strlen(TIED) && !memcmp(name, TIED, strlen(TIED)),
	};
	return to->name ? 0 : no_memory(err);
}

/* Parameters [first, first + nr) are a vector's. */
static int take_vector(struct ck_ds_stage *s, const struct ck_ds_zero *z,
		       const struct ck_ds_param *first, size_t nr, bool dealt,
		       uint32_t group, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < nr && !ret; i++) {
		const struct ck_ds_param *p =
			first +
			(dealt ? ck_ds_round_robin(i, nr, z->count) : i);

		ret = take_param(s, p->name, p->name_len, p->group, group, err);
	}
	return ret;
}

/* Where there are experts: their vectors are of several files. */
static int take_placed(struct ck_ds_stage *s, const struct ck_ds_zero *z,
		       const struct ck_ds_groups *g, struct ck_err *err)
{
	int ret = 0;

	s->why = z->unplaced;
	if (!s->why && (!z->placed.nr || told_round_robin(z->m) > 0))
		s->why = "no file says in which order the experts are";
	for (uint32_t group = 0; group < g->nr && !ret && !s->why; group++)
		for (size_t i = 0; i < z->placed.nr && !ret; i++) {
			const struct ck_ds_placed *p = &z->placed.v[i];

			if (p->vector >= g->vectors.nr)
				s->why =
					"its param_groups are of other vectors";
			else if (g->vectors.v[p->vector] == group)
				ret = take_param(s, p->name, strlen(p->name),
						 p->vector, group, err);
		}
	return ret;
}

static int take_params(struct ck_ds_stage *s, const struct ck_ds_zero *z,
		       const struct ck_ds_groups *g, bool universal,
		       struct ck_err *err)
{
	const struct ck_ds_param *p = z->m->params.v;
	size_t nr = z->m->params.nr, end;
	int dealt = is_dealt(z, g, universal, &s->why), ret = 0;

	if (dealt < 0)
		return no_memory(err);
	for (size_t i = 0; i < nr && !z->m->stage3 && z->group_size; i++)
		if (!z->group_size[p[i].group])
			s->why = "vectors of it contradict each other";
	if (g->vectors.nr != z->m->nr_groups)
		s->why = "its param_groups are of other vectors than "
			 "param_shapes";
	for (size_t i = 0; i < nr && !ret && !s->why; i = end) {
		end = i;
		while (end < nr && p[end].group == p[i].group)
			end++;
		ret = take_vector(s, z, p + i, end - i, dealt,
				  g->vectors.v[p[i].group], err);
	}
	return ret;
}

/* In the module of all stages what is tied comes first of all. */
static void check_tied(struct ck_ds_stage *s)
{
	for (size_t i = 1; i < s->param.nr; i++)
		if (s->param.v[i].tied && !s->param.v[i - 1].tied &&
		    s->param.v[i].group == s->param.v[i - 1].group)
			s->why = "a stage of it has tied parameters between "
				 "others, and no file says where the whole "
				 "has them";
}

static int keep_state(struct ck_ds_order *o, const char *name,
		      struct ck_err *err)
{
	char **to;

	if (!strcmp(name, "fp32") ||
	    ck_strmap_get(&o->states, name, strlen(name)) != CK_STRMAP_NONE)
		return 0;
	to = ck_vec_push(&o->kept);
	if (!to)
		return no_memory(err);
	*to = strdup(name);
	return *to && ck_strmap_put(&o->states, *to, strlen(name)) !=
				       CK_STRMAP_NONE ?
		       0 :
		       no_memory(err);
}

static int read_stage(struct ck_ds_load *ld, struct ck_ds_stage *s,
		      const struct ck_ds_zero *z, struct ck_err *err)
{
	const struct ck_ds_groups *g =
		ld->universal ? &ld->order->universal : &s->groups;
	int ret = 0;

	for (unsigned i = 0; i < z->nr_states && !ret; i++)
		ret = keep_state(ld->order, z->states[i], err);
	if (!ret && !ld->universal)
		ret = ck_ds_groups_read(&s->groups, z, err);
	if (!ret && g->read)
		ret = z->moe && !ld->universal ?
			      take_placed(s, z, g, err) :
			      take_params(s, z, g, ld->universal, err);
	if (!ret && ld->pp > 1)
		check_tied(s);
	return ret;
}

int ck_ds_order_read(struct ck_ds_load *ld, unsigned pp,
		     const struct ck_ds_zero *z, struct ck_err *err)
{
	struct ck_ds_order *o = ld->order;

	if (!ld->zero && !ld->universal)
		return 0;
	if (!o->stage) {
		o->stage = calloc(ld->pp, sizeof(*o->stage));
		if (!o->stage)
			return no_memory(err);
		o->nr = ld->pp;
	}
	o->stage[pp].seen = true;
	return read_stage(ld, &o->stage[pp], z, err);
}

/* ---- all stages ---- */

struct saying {
	struct ck_ds_load *ld;
	struct ck_ds_order *o;
	struct ck_optim_groups g;
	struct ck_strmap seen; /* parameters, numbered */
};

static struct ck_ds_groups *groups_of(const struct saying *s, unsigned i)
{
	return s->ld->universal ? &s->o->universal : &s->o->stage[i].groups;
}

static const char *find_why(const struct saying *s)
{
	for (unsigned i = 0; i < s->o->nr; i++) {
		const struct ck_ds_stage *st = &s->o->stage[i];
		const struct ck_ds_groups *g = groups_of(s, i);

		if (st->why || g->why)
			return st->why ? st->why : g->why;
		if (!st->seen || !g->read)
			return "no file that can be read has all of it";
		if (i && g != groups_of(s, 0) &&
		    !ck_ds_groups_same(g, groups_of(s, 0)))
			return "stages of the pipeline have other groups each";
	}
	return NULL;
}

static int state_paths(struct saying *s, const char *name, uint64_t id,
		       struct ck_err *err)
{
	ck_auto_str struct ck_str full = { 0 };
	int ret = 0;

	for (size_t i = 0; i < s->o->states.nr && !ret; i++) {
		const struct ck_strmap_key *k = &s->o->states.v[i];

		full.len = 0;
		ck_str_fmt(&full, "%s.%s", k->s, name);
		if (full.failed)
			return no_memory(err);
		ret = ck_optim_state_path(&s->g, full.v, full.len, id, k->s,
					  k->len, err);
	}
	return ret;
}

/* {KEY: number} as a pickle */
static void put_number(struct ck_str *s, const struct ck_ds_number *n)
{
	unsigned char bits[8];
	uint64_t u;

	ck_str_puts(s, "\x80\x02}X");
	ck_le32_put(bits, (uint32_t)n->len);
	ck_str_add(s, bits, 4);
	ck_str_add(s, n->key, n->len);
	switch (n->kind) {
	case CK_DS_NONE:
		ck_str_puts(s, "N");
		break;
	case CK_DS_WHOLE:
		ck_str_fmt(s, "L%" PRIi64 "L\n", n->whole);
		break;
	case CK_DS_REAL:
		memcpy(&u, &n->real, sizeof(u));
		ck_str_puts(s, "G");
		for (int shift = 56; shift >= 0; shift -= 8)
			ck_str_add(s, &(char){ (char)(u >> shift) }, 1);
		break;
	}
	ck_str_puts(s, "s.");
}

/* All parameters of a vector share one pickle. */
static int make_number(struct saying *s, struct ck_ds_number *n,
		       struct ck_err *err)
{
	ck_auto_str struct ck_str bytes = { 0 };

	if (n->nr_bytes)
		return 0;
	put_number(&bytes, n);
	if (bytes.failed)
		return no_memory(err);
	n->nr_bytes = bytes.len;
	return ck_builder_mem(s->ld->b, bytes.v, bytes.len, &n->src, err);
}

static int say_number(struct saying *s, struct ck_ds_number *n, uint64_t id,
		      struct ck_err *err)
{
	struct ck_object_in o = { .enc = CK_ENC_PICKLE };
	ck_auto_str struct ck_str name = { 0 };
	int ret = make_number(s, n, err);

	ck_str_fmt(&name, OPTIMIZER "." CK_OPTIM_STATE ".%" PRIu64 ".", id);
	ck_str_add(&name, n->key, n->len);
	if (name.failed)
		return no_memory(err);
	o.src = n->src;
	o.len = n->nr_bytes;
	o.name = name.v;
	o.name_len = name.len;
	if (!ret)
		ret = ck_builder_object(s->ld->b, &o, err);
	return ret ? ret :
		     ck_optim_state_path(&s->g, name.v, name.len, id, n->key,
					 n->len, err);
}

static int say_param(struct saying *s, struct ck_ds_groups *g,
		     const struct ck_ds_trained *p, struct ck_err *err)
{
	uint64_t id = s->seen.nr;
	uint32_t at = ck_strmap_put(&s->seen, p->name, strlen(p->name));
	int ret = 0;

	if (at == CK_STRMAP_NONE)
		return no_memory(err);
	if (at != id) /* tied: another stage has it */
		return 0;
	ret = state_paths(s, p->name, id, err);
	for (size_t i = 0; i < g->number.nr && !ret; i++)
		if (g->number.v[i].vector == p->vector)
			ret = say_number(s, &g->number.v[i], id, err);
	return ret;
}

/* Of one stage those of a group that are @tied, or the others. */
static int say_params(struct saying *s, unsigned i, uint32_t group, bool tied,
		      struct ck_err *err)
{
	struct ck_ds_stage *st = &s->o->stage[i];
	size_t k = st->next;
	int ret = 0;

	for (; k < st->param.nr && st->param.v[k].group == group && !ret; k++)
		if (st->param.v[k].tied == tied)
			ret = say_param(s, groups_of(s, i), &st->param.v[k],
					err);
	if (!tied)
		st->next = k;
	return ret;
}

static int say_group(struct saying *s, uint32_t group, struct ck_err *err)
{
	const struct ck_optim_groups stored = {
		.b = s->ld->b,
		.dict = OPTIMIZER,
		.prefix = groups_of(s, 0)->prefix
	};
	const struct ck_ds_groups *g = groups_of(s, 0);
	uint64_t first = s->seen.nr;
	int ret = 0;

	for (unsigned k = 0; k < 2 * s->o->nr && !ret; k++)
		ret = say_params(s, k % s->o->nr, group, k < s->o->nr, err);
	for (size_t i = 0; i < g->key.nr && !ret; i++) {
		const struct ck_ds_group_key *key = &g->key.v[i];

		if (key->group != group)
			continue;
		ret = strcmp(key->key, CK_OPTIM_PARAMS) ?
			      ck_optim_groups_add(&stored, group, key->key,
						  key->len, &g->in, err) :
			      ck_optim_groups_params(&s->g, group, first,
						     s->seen.nr - first, err);
	}
	return ret;
}

static int say_why(struct saying *s, const char *why, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_NOTE };

	return ck_builder_problem(
		s->ld->b, &p, err,
		"its optimizer is not shown as torch.optim has it: %s", why);
}

int ck_ds_order_say(struct ck_ds_load *ld, struct ck_err *err)
{
	struct ck_ds_order *o = ld->order;
	struct saying s = { .ld = ld,
			    .o = o,
			    .g = { .b = ld->b, .dict = OPTIMIZER } };
	const char *why;
	int ret = 0;

	for (size_t i = 0; i < ld->nr_states && !ret && ld->universal; i++)
		ret = keep_state(o, ld->states[i], err);
	if (ret || !o->nr)
		return ret;
	why = find_why(&s);
	if (why) /* without states nothing is lost */
		return o->states.nr ? say_why(&s, why, err) : 0;
	for (uint32_t g = 0; g < groups_of(&s, 0)->nr && !ret; g++)
		ret = say_group(&s, g, err);
	ck_strmap_free(&s.seen);
	return ret;
}
