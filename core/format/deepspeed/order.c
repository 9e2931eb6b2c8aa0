/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.c - numbers of parameters, as one optimizer of the whole has them
 *
 * Groups follow each other; in a group the parameters are in the order of
 * param_shapes, before round_robin_gradients dealt them to ranks, stage after
 * stage of a pipeline, whose module has what is tied first of all.  Without
 * such an order states stay as they were, and a note says why.
 *
 *   param_groups  [{'lr': 0.1, ..., 'params': [0]}]    numbers of vectors
 *   state         {0: {'step': 3., 'exp_avg': vector}} of each vector
 *
 * Vector N is entry N of param_shapes; of stage 3 a group may have several.
 * What a state has beside vectors is of each of their parameters.
 */
#include "core/format/deepspeed/deepspeed.h"

#include "core/base/check.h"
#include "core/emit/pickle_out.h"
#include "core/mesh/mesh.h"
#include "core/optim/groups.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define OPTIMIZER "optimizer"
#define TIED "tied_modules."

/* ---- what an optimizer file says of the groups ---- */

struct reading {
	struct deepspeed_groups *g;
	struct ck_arena *mem;
	struct ck_torch_open *f;
	const struct ck_pickle *p;
	const struct deepspeed_rank *r; /* NULL: of the universal form */
	uint32_t group; /* at hand */
};

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

/* {KEY: number} as a pickle; 1, or as ck_torch_number(). */
static int put_number(struct reading *rd, const char *key, size_t len, ck_pv v,
		      struct ck_str *out)
{
	int64_t whole;
	double real;
	int ret = 1;

	ck_po_begin(out);
	ck_po_op(out, CK_PO_EMPTY_DICT);
	ck_po_str(out, key, len);
	if (ck_pv_int(rd->p, v, &whole)) {
		ck_str_fmt(out, "L%" PRIi64 "L\n", whole);
	} else if (ck_pv_kind(v) == CK_P_NONE) {
		ck_po_op(out, CK_PO_NONE);
	} else {
		ret = ck_torch_number(rd->f, v, &real);
		if (ret > 0)
			ck_po_float(out, real);
	}
	ck_po_op(out, CK_PO_SETITEM);
	ck_po_end(out);
	return ret;
}

static int add_number(struct reading *rd, uint32_t vector, const char *key,
		      size_t len, ck_pv v, struct ck_err *err)
{
	ck_auto_str struct ck_str bytes = { 0 };
	int ret = put_number(rd, key, len, v, &bytes);
	const struct deepspeed_number n = {
		.vector = vector,
		.key = ck_arena_copy(rd->mem, key, len),
		.len = len,
		.bytes = ck_arena_copy(rd->mem, bytes.v, bytes.len),
		.nr_bytes = bytes.len,
	};

	if (!ret)
		return unknown(rd, "it has states that are neither vectors "
				   "of the parameters nor numbers");
	if (ret < 0 || bytes.failed || !n.key || !n.bytes)
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

static int groups_read(struct deepspeed_groups *g,
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

static void groups_free(struct deepspeed_groups *g)
{
	free(g->key.v);
	free(g->number.v);
	free(g->vectors.v);
}

void ck_deepspeed_order_free(struct deepspeed_order *o)
{
	for (unsigned i = 0; i < o->nr; i++) {
		free(o->stage[i].param.v);
		groups_free(&o->stage[i].groups);
	}
	free(o->stage);
	groups_free(&o->universal);
	ck_strmap_free(&o->states);
}

/* ---- what a stage trains ---- */

/* What the run was told: 1, 0, or -1 where no file has it. */
static int asked_round_robin(const struct deepspeed_model *m)
{
	ck_pv zero;

	return ck_pq(m->f.ts.pickle, m->root, "ds_config/zero_optimization",
		     &zero) ?
		       ck_pq_int_or(m->f.ts.pickle, zero,
				    "round_robin_gradients", 0) != 0 :
		       -1;
}

/* Whether groups have their parameters as the model has. */
static bool in_model_order(const struct deepspeed_model *m)
{
	uint32_t at = 0, before = 0;

	for (size_t i = 0; i < m->params.nr; i++, before = at) {
		const struct deepspeed_param *q = &m->params.v[i];

		at = ck_strmap_get(&m->weights, q->name, q->name_len);
		if (at == CK_STRMAP_NONE ||
		    (i && q[-1].group == q->group && at <= before))
			return false;
	}
	return true;
}

/* Whether param_shapes is in the order of ranks; *why: that cannot be told. */
static bool is_dealt(const struct deepspeed_zero *z,
		     const struct deepspeed_groups *g, const char **why)
{
	int asked;

	if (z->m->stage3)
		return false;
	asked = z->undone ? 1 : asked_round_robin(z->m);
	if (!asked || (asked < 0 && in_model_order(z->m)))
		return false;
	if (asked > 0 && !z->ld->universal && g->zero_stage && z->count)
		return true;
	*why = asked < 0 ?
		       "no ds_config says whether param_shapes, which is not in the order of the model, is in that of round_robin_gradients" :
		       "it is in an order of round_robin_gradients that no file says";
	return false;
}

static int add_trained(struct deepspeed_load *ld, struct deepspeed_stage *s,
		       const char *name, size_t len, uint32_t vector,
		       uint32_t group, struct ck_err *err)
{
	const struct deepspeed_trained new = {
		.name = ck_arena_copy(&ld->mem, name, len),
		.vector = vector,
		.group = group,
		.tied = len > strlen(TIED) && !memcmp(name, TIED, strlen(TIED)),
	};

	return new.name ? ck_vec_put(&s->param, err, new) : ck_no_memory(err);
}

/* Where there are experts: their vectors are of several files. */
static int list_placed(struct deepspeed_stage *s,
		       const struct deepspeed_zero *z,
		       const struct deepspeed_groups *g, struct ck_err *err)
{
	int ret = 0;

	s->why = z->unplaced;
	if (!s->why && (!z->placed.nr || asked_round_robin(z->m) > 0))
		s->why = "no file says in which order the experts are";
	for (uint32_t group = 0; group < g->nr && !ret && !s->why; group++)
		for (size_t i = 0; i < z->placed.nr && !ret; i++) {
			const struct deepspeed_placed *p = &z->placed.v[i];

			if (p->vector >= g->vectors.nr)
				s->why =
					"its param_groups are of other vectors";
			else if (g->vectors.v[p->vector] == group)
				ret = add_trained(z->ld, s, p->name,
						  strlen(p->name), p->vector,
						  group, err);
		}
	return ret;
}

static int list_params(struct deepspeed_stage *s,
		       const struct deepspeed_zero *z,
		       const struct deepspeed_groups *g, struct ck_err *err)
{
	const struct deepspeed_param *p = z->m->params.v;
	size_t nr = z->m->params.nr, end;
	bool dealt = is_dealt(z, g, &s->why);
	int ret = 0;

	for (size_t i = 0; i < nr && !z->m->stage3 && z->vecs.nr; i++)
		if (!z->vecs.v[p[i].group].size)
			s->why = "vectors of it contradict each other";
	if (g->vectors.nr != z->m->nr_groups)
		s->why = "its param_groups are of other vectors than "
			 "param_shapes";
	for (size_t i = 0; i < nr && !ret && !s->why; i = end) {
		for (end = i; end < nr && p[end].group == p[i].group;)
			end++;
		for (size_t k = 0; k < end - i && !ret; k++) {
			size_t at =
				dealt ? ck_split_dealt(k, end - i, z->count) :
					k;
			const struct deepspeed_param *q = &p[i + at];

			ret = add_trained(z->ld, s, q->name, q->name_len,
					  q->group, g->vectors.v[q->group],
					  err);
		}
	}
	return ret;
}

/* In the module of all stages what is tied comes first of all. */
static void check_tied(struct deepspeed_stage *s)
{
	for (size_t i = 1; i < s->param.nr; i++)
		if (s->param.v[i].tied && !s->param.v[i - 1].tied &&
		    s->param.v[i].group == s->param.v[i - 1].group)
			s->why = "a stage of it has tied parameters between "
				 "others, and no file says where the whole "
				 "has them";
}

static int keep_states(struct deepspeed_load *ld, const struct ck_strmap *kinds,
		       struct ck_err *err)
{
	for (size_t i = 0; i < kinds->nr; i++)
		if (strcmp(kinds->v[i].s, "fp32") != 0 &&
		    ck_strmap_keep(&ld->order.states, &ld->mem, kinds->v[i].s,
				   kinds->v[i].len) == CK_STRMAP_NONE)
			return ck_no_memory(err);
	return 0;
}

int ck_deepspeed_order_read(const struct deepspeed_zero *z, struct ck_err *err)
{
	struct deepspeed_load *ld = z->ld;
	struct deepspeed_order *o = &ld->order;
	const struct deepspeed_groups *g;
	struct deepspeed_stage *s;
	int ret;

	if (!ld->zero && !ld->universal)
		return 0;
	if (!o->stage) {
		o->stage = calloc(ld->pp, sizeof(*o->stage));
		if (!o->stage)
			return ck_no_memory(err);
		o->nr = ld->pp;
	}
	s = &o->stage[z->m->mp / ld->tp];
	s->seen = true;
	g = ld->universal ? &o->universal : &s->groups;
	ret = keep_states(ld, &z->states, err);
	if (!ret && !ld->universal)
		ret = groups_read(&s->groups, z, err);
	if (!ret && g->read)
		ret = z->m->moe && !ld->universal ? list_placed(s, z, g, err) :
						    list_params(s, z, g, err);
	if (!ret && ld->pp > 1)
		check_tied(s);
	return ret;
}

/* ---- all stages ---- */

struct numbering {
	struct deepspeed_load *ld;
	struct deepspeed_order *o;
	struct ck_optim_groups g;
	struct ck_strmap seen; /* parameters, numbered */
};

static struct deepspeed_groups *groups_of(const struct numbering *s, unsigned i)
{
	return s->ld->universal ? &s->o->universal : &s->o->stage[i].groups;
}

static const char *find_why(const struct numbering *s)
{
	const struct deepspeed_groups *first = groups_of(s, 0);

	for (unsigned i = 0; i < s->o->nr; i++) {
		const struct deepspeed_stage *st = &s->o->stage[i];
		const struct deepspeed_groups *g = groups_of(s, i);

		if (st->why || g->why)
			return st->why ? st->why : g->why;
		if (!st->seen || !g->read)
			return "no file that can be read has all of it";
		if (g != first && (g->odd || first->odd || g->nr != first->nr ||
				   g->sum != first->sum))
			return "stages of the pipeline have other groups each";
	}
	return NULL;
}

/* All parameters of a vector share one pickle. */
static int show_number(struct numbering *s, struct deepspeed_number *n,
		       uint64_t id, struct ck_err *err)
{
	struct ck_object_in in = { .enc = CK_ENC_PICKLE, .len = n->nr_bytes };
	int ret = n->shown ? 0 :
			     ck_builder_mem(s->ld->b, n->bytes, n->nr_bytes,
					    &n->src, err);

	n->shown = true;
	in.src = n->src;
	return ret ? ret :
		     ck_optim_state_add(&s->g, id, n->key, n->len, &in, err);
}

static int number_param(struct numbering *s, struct deepspeed_groups *g,
			const struct deepspeed_trained *p, struct ck_err *err)
{
	ck_auto_str struct ck_str full = { 0 };
	uint64_t id = s->seen.nr;
	uint32_t at = ck_strmap_put(&s->seen, p->name, strlen(p->name));
	int ret = 0;

	if (at == CK_STRMAP_NONE)
		return ck_no_memory(err);
	if (at != id) /* tied: another stage has it */
		return 0;
	for (size_t i = 0; i < s->o->states.nr && !ret; i++) {
		const struct ck_strmap_key *k = &s->o->states.v[i];

		full.len = 0;
		ck_str_fmt(&full, "%s.%s", k->s, p->name);
		if (full.failed)
			return ck_no_memory(err);
		ret = ck_optim_state_path(&s->g, full.v, full.len, id, k->s,
					  k->len, err);
	}
	for (size_t i = 0; i < g->number.nr && !ret; i++)
		if (g->number.v[i].vector == p->vector)
			ret = show_number(s, &g->number.v[i], id, err);
	return ret;
}

/* Of one stage those of a group that are @tied, or the others. */
static int number_params(struct numbering *s, unsigned i, uint32_t group,
			 bool tied, struct ck_err *err)
{
	struct deepspeed_stage *st = &s->o->stage[i];
	size_t k = st->next;
	int ret = 0;

	for (; k < st->param.nr && st->param.v[k].group == group && !ret; k++)
		if (st->param.v[k].tied == tied)
			ret = number_param(s, groups_of(s, i), &st->param.v[k],
					   err);
	if (!tied)
		st->next = k;
	return ret;
}

static int number_group(struct numbering *s, uint32_t group, struct ck_err *err)
{
	const struct deepspeed_groups *g = groups_of(s, 0);
	const struct ck_optim_groups stored = { .b = s->ld->b,
						.dict = OPTIMIZER,
						.prefix = g->prefix };
	uint64_t first = s->seen.nr;
	int ret = 0;

	for (unsigned k = 0; k < 2 * s->o->nr && !ret; k++)
		ret = number_params(s, k % s->o->nr, group, k < s->o->nr, err);
	for (size_t i = 0; i < g->key.nr && !ret; i++) {
		const struct deepspeed_group_key *key = &g->key.v[i];

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

int ck_deepspeed_order_add(struct deepspeed_load *ld, struct ck_err *err)
{
	struct deepspeed_order *o = &ld->order;
	struct numbering s = { .ld = ld,
			       .o = o,
			       .g = { .b = ld->b, .dict = OPTIMIZER } };
	int ret = ld->universal ? keep_states(ld, &ld->states, err) : 0;
	const char *why;

	if (ret || !o->nr)
		return ret;
	why = find_why(&s);
	if (why) /* without states nothing is lost */
		return o->states.nr ?
			       deepspeed_problem(
				       ld, CK_NOTE, NULL, err,
				       "its optimizer is not shown as torch.optim has it: %s",
				       why) :
			       0;
	for (uint32_t g = 0; g < groups_of(&s, 0)->nr && !ret; g++)
		ret = number_group(&s, g, err);
	ck_strmap_free(&s.seen);
	return ret;
}
