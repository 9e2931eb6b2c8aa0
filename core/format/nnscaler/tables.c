/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables.c - the tables of ZeRO, and what an optimizer's states are
 *
 *   model_idx2opt_idx   parameter -> its state, or (bucket, from, to, shape)
 *   opt_idx2ranks       bucket -> ((ranks), elements)
 */
#include "core/format/nnscaler/rank_priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool int_at(const struct ck_pickle *p, ck_pv tuple, uint64_t i,
		   int64_t *out)
{
	ck_pv v;

	return ck_pv_at(p, tuple, i, &v) && ck_pv_int(p, v, out);
}

static bool place_set(struct ck_nn_reader *j, struct ck_nn_attr *a, ck_pv v)
{
	const struct ck_pickle *p = j->f->p;
	int64_t lo, hi;

	a->has_opt = true;
	if (ck_pv_int(p, v, &a->opt))
		return true;
	if (ck_pv_kind(v) != CK_P_TUPLE && ck_pv_kind(v) != CK_P_LIST)
		return false;
	if (!int_at(p, v, 0, &a->opt) || !int_at(p, v, 1, &lo) ||
	    !int_at(p, v, 2, &hi) || lo < 0 || hi < lo)
		return false;
	a->in_bucket = true;
	a->pos = (uint64_t)lo;
	a->end = (uint64_t)hi;
	return true;
}

static int places_read(struct ck_nn_reader *j, struct ck_err *err)
{
	CK_VEC(struct ck_nn_attr *) params = { 0 };
	struct ck_piter it;
	ck_pv table, key, v;
	int64_t i;
	int ret = 0;

	if (!ck_nn_field(j->f->p, j->extra, "model_idx2opt_idx", &table))
		return 0;
	for (size_t k = 0; k < j->m->nr_attrs; k++) {
		struct ck_nn_attr *a = &j->r->attrs.v[j->m->attrs + k];

		if (!ck_vec_reserve(&params, 1))
			ret = ck_fail(err, ENOMEM, "no memory for tables");
		else if (a->is_param)
			params.v[params.nr++] = a;
	}
	ck_piter_init_pairs(&it, j->f->p, table);
	while (!ret && ck_piter_next2(&it, &key, &v))
		if (!ck_pv_int(j->f->p, key, &i) || i < 0 ||
		    (uint64_t)i >= params.nr || !place_set(j, params.v[i], v))
			ret = ck_fail(
				err, EINVAL,
				"%s: model_idx2opt_idx: expected parameter: state, or parameter: (bucket, from, to, shape)",
				j->f->name);
	free(params.v);
	return ret;
}

static int bucket_add(struct ck_nn_reader *j, int64_t opt, ck_pv v,
		      struct ck_err *err)
{
	const struct ck_pickle *p = j->f->p;
	struct ck_nn_bucket *b = ck_vec_push(&j->r->buckets);
	struct ck_piter it;
	ck_pv ranks, item;
	int64_t n;

	if (!b)
		return ck_fail(err, ENOMEM, "no memory for tables");
	*b = (struct ck_nn_bucket){ .opt = opt, .ranks = j->r->rank_nrs.nr };
	j->m->nr_buckets++;
	if (!ck_pv_at(p, v, 0, &ranks) || !int_at(p, v, 1, &n) || n < 0)
		return ck_fail(err, EINVAL,
			       "%s: opt_idx2ranks: expected ((ranks), size)",
			       j->f->name);
	b->size = (uint64_t)n;
	ck_piter_init(&it, p, ranks);
	while (ck_piter_next(&it, &item)) {
		int64_t *to = ck_vec_push(&j->r->rank_nrs);

		if (!to)
			return ck_fail(err, ENOMEM, "no memory for tables");
		if (!ck_pv_int(p, item, to) || *to < 0 ||
		    *to >= CK_NN_MAX_RANKS)
			return ck_fail(err, EINVAL,
				       "%s: opt_idx2ranks: expected ranks",
				       j->f->name);
		b->nr_ranks++;
	}
	if (b->nr_ranks)
		return 0;
	return ck_fail(err, EINVAL, "%s: opt_idx2ranks: a bucket of no ranks",
		       j->f->name);
}

int ck_nn_tables_read(struct ck_nn_reader *j, struct ck_err *err)
{
	struct ck_piter it;
	ck_pv table, key, v;
	int64_t opt;
	int ret = places_read(j, err);

	j->m->buckets = j->r->buckets.nr;
	if (ret || !ck_nn_field(j->f->p, j->extra, "opt_idx2ranks", &table))
		return ret;
	ck_piter_init_pairs(&it, j->f->p, table);
	while (!ret && ck_piter_next2(&it, &key, &v))
		if (ck_pv_kind(v) != CK_P_NONE)
			ret = ck_pv_int(j->f->p, key, &opt) ?
				      bucket_add(j, opt, v, err) :
				      ck_fail(err, EINVAL,
					      "%s: opt_idx2ranks: expected numbers as keys",
					      j->f->name);
	return ret;
}

/* A number that is a state, as the tensor that it would be. */
static int number_place(struct ck_nn_set *s, const struct ck_pickle *p, ck_pv v,
			struct ck_nn_tensor *t, bool *ok, struct ck_err *err)
{
	union {
		uint64_t bits;
		int64_t whole;
		float f32;
	} u = { 0 };
	double f64;

	*t = (struct ck_nn_tensor){ .dims = s->dims.nr,
				    .dtype = CK_DT_I64,
				    .dense = true,
				    .number = true };
	*ok = ck_pv_int(p, v, &u.whole);
	if (!*ok && ck_pv_float(p, v, &f64)) {
		u.f32 = (float)f64;
		t->dtype = CK_DT_F32;
		*ok = true;
	}
	if (!*ok)
		return 0;
	if (!ck_vec_reserve(&s->dims, 1))
		return ck_fail(err, ENOMEM, "no memory for numbers");
	s->dims.v[s->dims.nr++] = u.bits;
	return ck_builder_mem(s->b, &u, ck_dtype_info(t->dtype)->size, &t->src,
			      err);
}

static int state_add(struct ck_nn_set *s, struct ck_nn_rank *r,
		     struct ck_nn_file *f, int64_t id, ck_pv key, ck_pv v,
		     struct ck_err *err)
{
	struct ck_nn_state st = { .id = id }, *to;
	const char *name;
	struct ck_err why = { 0 };
	bool ok = true;
	size_t len;
	int ret;

	if (!ck_pv_str(f->p, key, &name, &len))
		return 0;
	st.key = ck_nn_name(&s->names, name, len);
	if (st.key == CK_STRMAP_NONE)
		return ck_fail(err, ENOMEM, "no memory for names");
	ret = ck_nn_is_tensor(f, v) ?
		      ck_nn_place(f, v, &s->dims, &st.t, &why) :
		      number_place(s, f->p, v, &st.t, &ok, &why);
	if (ret == -EINVAL) {
		const struct ck_problem_in p = { .severity = CK_ERROR,
						 .file = f->name };

		return ck_builder_problem(
			s->b, &p, err, "optimizer.state.%" PRId64 ".%.*s: %s",
			id, (int)CK_MIN(len, 100), name, why.msg);
	}
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	to = ok ? ck_vec_push(&r->states) : NULL;
	if (to)
		*to = st;
	return ok && !to ? ck_fail(err, ENOMEM, "no memory for states") : 0;
}

static int by_id(const void *pa, const void *pb)
{
	const struct ck_nn_state *a = pa, *b = pb;

	if (a->id != b->id)
		return a->id < b->id ? -1 : 1;
	return a->key < b->key ? -1 : a->key > b->key;
}

static int states_read(struct ck_nn_set *s, struct ck_nn_rank *r,
		       struct ck_nn_file *f, ck_pv optimizer,
		       struct ck_err *err)
{
	struct ck_piter it, inner;
	ck_pv all, id, state, key, v;
	int64_t n;
	int ret = 0;

	if (!ck_pv_key(f->p, optimizer, "state", &all))
		return 0;
	ck_piter_init_pairs(&it, f->p, all);
	while (!ret && ck_piter_next2(&it, &id, &state)) {
		if (!ck_pv_int(f->p, id, &n) || n < 0)
			continue;
		ck_piter_init_pairs(&inner, f->p, state);
		while (!ret && ck_piter_next2(&inner, &key, &v))
			ret = state_add(s, r, f, n, key, v, err);
	}
	if (r->states.nr)
		qsort(r->states.v, r->states.nr, sizeof(*r->states.v), by_id);
	return ret;
}

static struct ck_nn_module *module_of(struct ck_nn_set *s, struct ck_nn_rank *r,
				      const char *prefix, size_t len)
{
	uint32_t at = ck_nn_name(&s->names, prefix, len);

	for (size_t i = 0; i < r->modules.nr && at != CK_STRMAP_NONE; i++)
		if (r->modules.v[i].prefix == at &&
		    !r->modules.v[i].virtual_one)
			return &r->modules.v[i];
	return NULL;
}

/* Ordinary parameters whose states ZeRO shares: a module of their own. */
static int virtual_read(struct ck_nn_set *s, struct ck_nn_rank *r,
			struct ck_nn_file *f, ck_pv extra,
			struct ck_nn_module **m, struct ck_err *err)
{
	struct ck_nn_reader j = {
		.s = s, .r = r, .f = f, .prefix = "", .kind = "model."
	};
	int ret;

	if (!ck_nn_field(f->p, extra, "non_parallel_extra_state", &j.extra))
		return ck_fail(err, EINVAL,
			       "%s: optimizer: no non_parallel_extra_state",
			       f->name);
	ret = ck_nn_module_read(&j, err);
	if (!ret) {
		*m = j.m;
		j.m->virtual_one = true;
	}
	return ret;
}

static int locs_read(struct ck_nn_set *s, struct ck_nn_rank *r,
		     struct ck_nn_file *f, ck_pv extra, struct ck_err *err)
{
	const struct ck_pickle *p = f->p;
	struct ck_piter it;
	ck_pv locs, key, loc;
	int ret = 0;

	if (!ck_nn_field(p, extra, "parallel_module_locs", &locs))
		return 0;
	ck_piter_init_pairs(&it, p, locs);
	while (!ret && ck_piter_next2(&it, &key, &loc)) {
		struct ck_nn_module *m = NULL;
		const char *prefix;
		size_t len;

		if (ck_pv_is_str(p, key, CK_NN_VIRTUAL))
			ret = virtual_read(s, r, f, extra, &m, err);
		else if (ck_pv_str(p, key, &prefix, &len))
			m = module_of(s, r, prefix, len);
		if (!m)
			continue;
		m->has_states = true;
		m->offset = ck_nn_int(p, loc, "offset", -1);
		m->count = ck_nn_int(p, loc, "count", -1);
		if (m->offset < 0 || m->count < 0 || m->offset > INT32_MAX ||
		    m->count > INT32_MAX)
			return ck_fail(
				err, EINVAL,
				"%s: parallel_module_locs: expected offset and count",
				f->name);
	}
	return ret;
}

static bool has_word(const char *s, size_t len, const char *word)
{
	size_t n = strlen(word);

	for (size_t i = 0; i + n <= len; i++)
		if (!strncasecmp(s + i, word, n))
			return true;
	return false;
}

/* Those whose states nnScaler's own merge takes as one value an element. */
static bool is_known(const char *class, size_t len)
{
	return has_word(class, len, "adam") || has_word(class, len, "muon") ||
	       (len == 15 && !memcmp(class, "HybridOptimizer", 15));
}

static int64_t count_ids(const struct ck_pickle *p, ck_pv optimizer)
{
	struct ck_piter it;
	ck_pv groups, group, params;
	int64_t nr = 0;

	if (!ck_pv_key(p, optimizer, "param_groups", &groups))
		return -1;
	ck_piter_init(&it, p, groups);
	while (ck_piter_next(&it, &group)) {
		if (!ck_pv_key(p, group, "params", &params) ||
		    ck_pv_len(p, params) > INT32_MAX)
			return -1;
		nr += (int64_t)ck_pv_len(p, params);
	}
	return nr <= INT32_MAX ? nr : -1;
}

int ck_nn_optim_read(struct ck_nn_set *s, struct ck_nn_rank *r,
		     struct ck_nn_file *f, ck_pv optimizer, struct ck_err *err)
{
	const char *class = "";
	size_t len = 0;
	ck_pv extra, v;
	int ret;

	r->nr_ids = -1;
	if (!optimizer || ck_pv_kind(optimizer) == CK_P_NONE)
		return 0;
	r->nr_ids = count_ids(f->p, optimizer);
	ret = states_read(s, r, f, optimizer, err);
	if (ret || !ck_pv_key(f->p, optimizer, CK_NN_EXTRA, &extra))
		return ret;
	if (ck_nn_field(f->p, extra, "name", &v))
		ck_pv_str(f->p, v, &class, &len);
	r->known_optimizer = is_known(class, len);
	r->class = ck_nn_name(&s->names, class, len);
	if (r->class == CK_STRMAP_NONE)
		return ck_fail(err, ENOMEM, "no memory for names");
	return locs_read(s, r, f, extra, err);
}
