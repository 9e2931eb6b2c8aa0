/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain.c - entries of an optimizer that belong to no parallelised module
 *
 * They are numbered and not named: in merged files all of them, and those of
 * ordinary modules that ZeRO does not share.  Modules stand among the others
 * in both orders, so that what lies between two is told apart from the rest.
 */
#include "core/format/nnscaler/nnscaler.h"

#include "core/base/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct order {
	struct nnscaler *n;
	const struct nnscaler_rank *r;
	CK_VEC(struct ck_optim_id) ids; /* ordinary ones */
	CK_VEC(struct ck_optim_tensor) t; /* as n->plain */
};

static void order_free(struct order *o)
{
	free(o->ids.v);
	free(o->t.v);
}
#define auto_order __attribute__((cleanup(order_free)))

static bool in_module(const struct nnscaler_rank *r, int64_t id)
{
	for (const struct nnscaler_module *m = r->modules; m; m = m->next)
		if (m->has_states && id >= m->offset &&
		    id - m->offset < m->count)
			return true;
	return false;
}

/* The numbers that are no module's, in order: the next after @id. */
static bool next_id(const struct nnscaler_rank *r, int64_t *id)
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
static const struct nnscaler_state *shaped(const struct nnscaler_rank *r,
					   int64_t id)
{
	size_t nr;
	const struct nnscaler_state *st = ck_nnscaler_states_of(r, id, &nr);

	for (size_t i = 0; i < nr; i++)
		if (strcmp(st[i].key->s, "step") != 0)
			return &st[i];
	return NULL;
}

static int list_ids(struct order *o, struct ck_err *err)
{
	int64_t id = -1;
	int ret = 0;

	while (!ret && next_id(o->r, &id)) {
		const struct nnscaler_state *st = shaped(o->r, id);

		ret = ck_vec_put(
			&o->ids, err,
			(struct ck_optim_id){ .number = id,
					      .shape = st ? st->x.shape : NULL,
					      .rank = st ? st->x.rank : 0,
					      .tensor = CK_OPTIM_NONE });
	}
	return ret;
}

struct bytes {
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
	struct nnscaler *n = o->n;
	ck_auto_strmap struct ck_strmap seen = { 0 };

	for (size_t i = 0; i < n->plain.nr; i++) {
		const struct nnscaler_plain *p = &n->plain.v[i];
		const struct bytes at = { p->x.off, ck_nnscaler_volume(&p->x),
					  p->x.src, p->x.rank };
		struct ck_optim_tensor *t = ck_vec_push(&o->t);
		size_t before = seen.nr, skip = p->is_module ? 0 : 6;

		if (!t)
			return ck_no_memory(err);
		*t = (struct ck_optim_tensor){
			.name = p->name->s + skip, /* "model." */
			.name_len = p->name->len - skip,
			.shape = p->x.shape,
			.rank = p->x.rank,
			.buffer = !p->is_module && !is_float(p->x.dtype),
			.tied = p->is_module,
		};
		if (p->is_module)
			continue;
		if (ck_strmap_keep(&seen, &n->a.mem, (const char *)&at,
				   sizeof(at)) == CK_STRMAP_NONE)
			return ck_no_memory(err);
		t->tied = at.volume && seen.nr == before;
	}
	return 0;
}

static const struct nnscaler_module *module_at(
	const struct nnscaler_rank *r, const struct nnscaler_plain *mark)
{
	const struct nnscaler_module *m = mark->is_module ? r->modules : NULL;

	while (m &&
	       (m->prefix != mark->name || !m->has_states || m->is_virtual))
		m = m->next;
	return m;
}

/* Between modules: tensors [t, t_end), numbers [i, i_end). */
static int find_segment(struct order *o, size_t t, size_t t_end, size_t i,
			size_t i_end, struct ck_err *err)
{
	int ret;

	if (i_end < i)
		return 0;
	/* NULL where there are none */
	ret = ck_optim_order(o->t.v ? o->t.v + t : NULL, t_end - t,
			     o->ids.v ? o->ids.v + i : NULL, i_end - i,
			     o->n->merged, err);
	for (; i < i_end && !ret; i++)
		if (o->ids.v[i].tensor != CK_OPTIM_NONE)
			o->ids.v[i].tensor += (uint32_t)t;
	return ret;
}

static int find_all(struct order *o, struct ck_err *err)
{
	const struct ck_opts *opts = o->n->a.dir->opts;
	size_t t = 0, i = 0, len;
	const char *given = ck_opts_bytes(opts, "params", 0, &len);
	int ret = 0;

	ck_opts_use(opts, "params");
	if (given)
		return ck_optim_order_given(o->t.v, o->t.nr, o->ids.v,
					    o->ids.nr, given, len, err);
	if (ck_opts_get(opts, "params"))
		return ck_fail(err, ENOENT, "-o params=%s: no such file",
			       ck_opts_get(opts, "params"));
	for (size_t k = 0; k < o->n->plain.nr && !ret; k++) {
		const struct nnscaler_module *m =
			module_at(o->r, &o->n->plain.v[k]);
		size_t below = 0;

		if (!m)
			continue;
		while (below < o->ids.nr && o->ids.v[below].number < m->offset)
			below++;
		ret = find_segment(o, t, k, i, below, err);
		t = k + 1;
		i = CK_MAX(i, below);
	}
	return ret ? ret : find_segment(o, t, o->t.nr, i, o->ids.nr, err);
}

/* States under the name that was found, those of other shapes as stored. */
static void rank_states(struct order *o, uint32_t rank)
{
	const struct nnscaler_rank *r = &o->n->ranks.v[rank];
	int64_t id = -1;

	for (size_t i = 0; next_id(r, &id); i++) {
		size_t nr;
		const struct nnscaler_state *st =
			ck_nnscaler_states_of(r, id, &nr);
		uint32_t t = i < o->ids.nr ? o->ids.v[i].tensor : CK_OPTIM_NONE;
		const struct nnscaler_plain *like =
			t == CK_OPTIM_NONE ? NULL : &o->n->plain.v[t];

		for (size_t k = 0; k < nr; k++) {
			const struct ck_extent *x = &st[k].x;
			bool fits = like &&
				    (!x->rank ||
				     (x->rank == like->x.rank &&
				      !memcmp(x->shape, like->x.shape,
					      x->rank * sizeof(*x->shape))));

			ck_nnscaler_state(o->n, rank, &st[k],
					  fits ? like->name : NULL);
		}
	}
}

static int report_doubts(struct order *o, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING };
	size_t unknown = 0, usual = 0, first = 0;
	int ret = 0;

	for (size_t i = o->ids.nr; i-- > 0;) {
		unknown += o->ids.v[i].shape &&
			   o->ids.v[i].tensor == CK_OPTIM_NONE;
		usual += o->ids.v[i].convention;
		if (o->ids.v[i].convention)
			first = i;
	}
	if (unknown)
		ret = ck_builder_problem(
			o->n->a.b, &p, err,
			"%zu entries of the optimizer could be of several parameters: they are shown by number, as optimizer.state.N; -o params=FILE, a name a line in the order of the model's parameters, says which they are",
			unknown);
	if (!ret && usual)
		ret = ck_builder_problem(
			o->n->a.b, &p, err,
			"the names of %zu entries of the optimizer (the first: %.*s) follow from order and shape only if weight and bias of a module are parameters: -o params=FILE, a name a line in the order of the model's parameters, makes sure",
			usual,
			(int)CK_MIN(o->t.v[o->ids.v[first].tensor].name_len,
				    200),
			o->t.v[o->ids.v[first].tensor].name);
	return ret;
}

int ck_nnscaler_plain_states(struct nnscaler *n, struct ck_err *err)
{
	auto_order struct order o = { .n = n, .r = &n->ranks.v[n->first] };
	int ret = list_ids(&o, err);

	if (ret || !o.ids.nr)
		return ret;
	ret = list_tensors(&o, err);
	if (!ret)
		ret = find_all(&o, err);
	for (uint32_t i = 0; i < n->ranks.nr && !ret; i++)
		if (n->ranks.v[i].ok)
			rank_states(&o, i);
	return ret ? ret : report_doubts(&o, err);
}
