/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain.c - entries of an optimizer that belong to no parallelised module
 *
 * They are numbered and not named: in merged files all of them, and those of
 * ordinary modules that ZeRO does not share.  Modules stand among the others
 * in both orders, so that what lies between two is told apart from the rest.
 */
#include "core/format/nnscaler/priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct order {
	struct ck_nn_set *s;
	const struct ck_nn_rank *r;
	CK_VEC(int64_t) ids; /* ordinary ones */
	CK_VEC(struct ck_nn_order_id) found; /* same positions */
	CK_VEC(struct ck_nn_order_tensor) t;
	CK_VEC(uint32_t) name; /* same positions as t: with "model." */
};

static void order_free(struct order *o)
{
	free(o->ids.v);
	free(o->found.v);
	free(o->t.v);
	free(o->name.v);
}
#define auto_order __attribute__((cleanup(order_free)))

static bool in_module(const struct ck_nn_rank *r, int64_t id)
{
	for (size_t i = 0; i < r->modules.nr; i++)
		if (r->modules.v[i].has_states &&
		    id >= r->modules.v[i].offset &&
		    id - r->modules.v[i].offset < r->modules.v[i].count)
			return true;
	return false;
}

/* The numbers that are no module's, in order: the next after @id. */
static bool next_id(const struct ck_nn_rank *r, int64_t *id)
{
	int64_t nr = r->nr_ids;

	if (nr < 0)
		nr = r->states.nr ? r->states.v[r->states.nr - 1].id + 1 : 0;
	nr = CK_MIN(nr, INT32_MAX);
	while (++*id < nr)
		if (!in_module(r, *id))
			return true;
	return false;
}

/* What the optimizer counts steps by is of no parameter's shape. */
static const struct ck_nn_state *shaped(const struct ck_nn_set *s,
					const struct ck_nn_rank *r, int64_t id)
{
	size_t nr;
	const struct ck_nn_state *st = ck_nn_states_of(r, id, &nr);

	for (size_t i = 0; i < nr; i++)
		if (strcmp(s->names.v.v[st[i].key], "step") != 0)
			return &st[i];
	return NULL;
}

static int list_ids(struct order *o, struct ck_err *err)
{
	int64_t id = -1;

	while (next_id(o->r, &id)) {
		const struct ck_nn_state *st = shaped(o->s, o->r, id);

		if (!ck_vec_reserve(&o->ids, 1) ||
		    !ck_vec_reserve(&o->found, 1))
			return ck_fail(err, ENOMEM, "no memory for an order");
		o->ids.v[o->ids.nr++] = id;
		o->found.v[o->found.nr++] = (struct ck_nn_order_id){
			.shape = st ? o->s->dims.v + st->t.dims : NULL,
			.rank = st ? st->t.rank : 0,
			.tensor = CK_STRMAP_NONE,
		};
	}
	return 0;
}

struct twin {
	uint64_t off, volume;
	uint32_t src, rank;
};

static bool is_float(uint8_t dtype)
{
	const char *name = ck_dtype_info(dtype)->name;

	return strstr(name, "float") || strstr(name, "complex");
}

static int list_tensors(struct order *o, struct ck_err *err)
{
	const struct ck_nn_rank *r = o->r;
	ck_auto_free struct twin *twins =
		calloc(r->plain.nr + 1, sizeof(*twins));
	ck_auto_strmap struct ck_strmap seen = { 0 };

	if (!twins)
		return ck_fail(err, ENOMEM, "no memory for an order");
	for (size_t i = 0; i < r->plain.nr; i++) {
		const struct ck_nn_plain *p = &r->plain.v[i];
		const struct ck_strmap_key *key = &o->s->names.map.v[p->key];
		size_t before = seen.nr;

		if (!ck_vec_reserve(&o->t, 1) || !ck_vec_reserve(&o->name, 1))
			return ck_fail(err, ENOMEM, "no memory for an order");
		o->name.v[o->name.nr++] = p->name;
		o->t.v[o->t.nr++] = (struct ck_nn_order_tensor){
			.name = key->s,
			.name_len = key->len,
			.shape = o->s->dims.v + p->t.dims,
			.rank = p->t.rank,
			.buffer = !p->is_module && !is_float(p->t.dtype),
			.tied = p->is_module,
		};
		if (p->is_module)
			continue;
		twins[i] = (struct twin){ p->t.off,
					  ck_nn_volume(&o->s->dims, &p->t),
					  p->t.src, p->t.rank };
		if (ck_strmap_put(&seen, (char *)&twins[i], sizeof(*twins)) ==
		    CK_STRMAP_NONE)
			return ck_fail(err, ENOMEM, "no memory for an order");
		o->t.v[i].tied = twins[i].volume && seen.nr == before;
	}
	return 0;
}

static const struct ck_nn_module *module_at(const struct ck_nn_rank *r,
					    const struct ck_nn_plain *mark)
{
	for (size_t i = 0; mark->is_module && i < r->modules.nr; i++)
		if (r->modules.v[i].prefix == mark->key &&
		    r->modules.v[i].has_states && !r->modules.v[i].virtual_one)
			return &r->modules.v[i];
	return NULL;
}

static size_t ids_below(const struct order *o, int64_t id)
{
	size_t nr = 0;

	while (nr < o->ids.nr && o->ids.v[nr] < id)
		nr++;
	return nr;
}

/* Between modules: tensors [t, t_end), numbers [i, i_end). */
static int segment(struct order *o, size_t t, size_t t_end, size_t i,
		   size_t i_end, struct ck_err *err)
{
	int ret;

	if (i_end < i)
		return 0;
	ret = ck_nn_order(o->t.v + t, t_end - t, o->found.v + i, i_end - i,
			  o->s->merged, err);
	for (; i < i_end && !ret; i++)
		if (o->found.v[i].tensor != CK_STRMAP_NONE)
			o->found.v[i].tensor += (uint32_t)t;
	return ret;
}

static int settle(struct order *o, struct ck_err *err)
{
	size_t t = 0, i = 0, len;
	const char *given = ck_opts_bytes(o->s->dir->opts, "params", 0, &len);
	int ret = 0;

	ck_opts_use(o->s->dir->opts, "params");
	if (given)
		return ck_nn_order_given(o->t.v, o->t.nr, o->found.v,
					 o->found.nr, given, len, err);
	if (ck_opts_get(o->s->dir->opts, "params"))
		return ck_fail(err, ENOENT, "-o params=%s: no such file",
			       ck_opts_get(o->s->dir->opts, "params"));
	for (size_t k = 0; k < o->r->plain.nr && !ret; k++) {
		const struct ck_nn_module *m =
			module_at(o->r, &o->r->plain.v[k]);
		size_t below;

		if (!m)
			continue;
		below = ids_below(o, m->offset);
		ret = segment(o, t, k, i, below, err);
		t = k + 1;
		i = CK_MAX(i, below);
	}
	return ret ? ret : segment(o, t, o->t.nr, i, o->ids.nr, err);
}

static int named_say(struct order *o, uint32_t rank,
		     const struct ck_nn_state *st, uint32_t t,
		     struct ck_err *err)
{
	struct ck_nn_set *s = o->s;
	const struct ck_nn_order_tensor *like = &o->t.v[t];
	struct ck_nn_piece p = {
		.name = ck_nn_state_name(s, o->name.v[t], st->key),
		.param = ck_nn_name(&s->names, like->name, like->name_len),
		.state = st->key,
		.id = st->id,
		.rank = rank,
		.dims_rank = st->t.rank,
		.t = st->t,
	};

	if (st->t.rank &&
	    (st->t.rank != like->rank ||
	     /* dims has moved since like->shape was set */
	     memcmp(s->dims.v + st->t.dims, s->dims.v + o->r->plain.v[t].t.dims,
		    like->rank * sizeof(*like->shape)) != 0))
		return ck_nn_raw_say(s, rank, st, err);
	p.dims = ck_nn_whole(s, &st->t);
	if (p.name == CK_STRMAP_NONE || p.param == CK_STRMAP_NONE ||
	    p.dims == SIZE_MAX)
		return ck_fail(err, ENOMEM, "no memory for names");
	return ck_nn_piece_add(s, &p, err);
}

static int rank_say(struct order *o, uint32_t rank, struct ck_err *err)
{
	const struct ck_nn_rank *r = &o->s->ranks.v[rank];
	int64_t id = -1;
	int ret = 0;

	for (size_t i = 0; !ret && next_id(r, &id); i++) {
		size_t nr;
		const struct ck_nn_state *st = ck_nn_states_of(r, id, &nr);
		uint32_t t =
			i < o->found.nr ? o->found.v[i].tensor : CK_STRMAP_NONE;

		for (size_t k = 0; k < nr && !ret; k++)
			ret = t == CK_STRMAP_NONE ?
				      ck_nn_raw_say(o->s, rank, &st[k], err) :
				      named_say(o, rank, &st[k], t, err);
	}
	return ret;
}

static int say_doubts(struct order *o, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING };
	size_t unknown = 0, usual = 0, first = 0;
	int ret = 0;

	for (size_t i = o->found.nr; i-- > 0;) {
		unknown += o->found.v[i].shape &&
			   o->found.v[i].tensor == CK_STRMAP_NONE;
		usual += o->found.v[i].convention;
		if (o->found.v[i].convention)
			first = i;
	}
	if (unknown)
		ret = ck_builder_problem(
			o->s->b, &p, err,
			"%zu entries of the optimizer could be of several parameters: they are shown by number, as optimizer.state.N; -o params=FILE, a name a line in the order of the model's parameters, says which they are",
			unknown);
	if (!ret && usual)
		ret = ck_builder_problem(
			o->s->b, &p, err,
			"the names of %zu entries of the optimizer (the first: %.*s) follow from order and shape only if weight and bias of a module are parameters: -o params=FILE, a name a line in the order of the model's parameters, makes sure",
			usual,
			(int)CK_MIN(o->t.v[o->found.v[first].tensor].name_len,
				    200),
			o->t.v[o->found.v[first].tensor].name);
	return ret;
}

int ck_nn_plain_say(struct ck_nn_set *s, struct ck_err *err)
{
	auto_order struct order o = { .s = s, .r = &s->ranks.v[s->first] };
	int ret = list_ids(&o, err);

	if (!ret && !o.ids.nr)
		return 0;
	if (!ret)
		ret = list_tensors(&o, err);
	if (!ret)
		ret = settle(&o, err);
	for (uint32_t i = 0; i < s->ranks.nr && !ret; i++)
		if (s->ranks.v[i].ok)
			ret = rank_say(&o, i, err);
	return ret ? ret : say_doubts(&o, err);
}
