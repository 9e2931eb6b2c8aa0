/* SPDX-License-Identifier: Apache-2.0 */
/*
 * states.c - what one rank's file says of its optimizer
 *
 *   state                    number -> states
 *   parallel_module_locs     module -> its numbers [offset, offset + count)
 *
 * and in the extra state of a module whose states ZeRO shares:
 *
 *   model_idx2opt_idx        parameter -> its state, or (bucket, from, to, shape)
 *   opt_idx2ranks            bucket -> ((ranks), elements)
 */
#include "core/format/nnscaler/nnscaler.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define VIRTUAL "_nnscaler_non_parallel_module_"

/* ---- the tables of ZeRO ---- */

static bool set_place(const struct ck_pickle *p, struct nnscaler_attr *a,
		      ck_pv v)
{
	int64_t lo, hi;

	a->has_opt = true;
	if (ck_pv_int(p, v, &a->opt))
		return true;
	if ((ck_pv_kind(v) != CK_P_TUPLE && ck_pv_kind(v) != CK_P_LIST) ||
	    !ck_pq_int(p, v, "0", &a->opt) || !ck_pq_int(p, v, "1", &lo) ||
	    !ck_pq_int(p, v, "2", &hi) || lo < 0 || hi < lo)
		return false;
	a->in_bucket = true;
	a->pos = (uint64_t)lo;
	a->end = (uint64_t)hi;
	return true;
}

static int read_places(const struct nnscaler_file *f, struct nnscaler_module *m,
		       ck_pv extra, struct ck_err *err)
{
	ck_auto_free struct nnscaler_attr **params = NULL;
	size_t nr = 0;
	int64_t i;

	for (struct nnscaler_attr *a = m->attrs; a; a = a->next)
		nr += a->is_param;
	params = calloc(nr + 1, sizeof(struct nnscaler_attr *));
	if (!params)
		return ck_no_memory(err);
	nr = 0;
	for (struct nnscaler_attr *a = m->attrs; a; a = a->next)
		if (a->is_param)
			params[nr++] = a;
	for (struct ck_pq_each e =
		     ck_pq_begin(f->p, extra, "model_idx2opt_idx/{}");
	     ck_pq_next(&e);)
		if (!ck_pv_int(f->p, e.key[0], &i) || i < 0 ||
		    (uint64_t)i >= nr || !set_place(f->p, params[i], e.v))
			return ck_fail(
				err, EINVAL,
				"%s: model_idx2opt_idx: expected parameter: state, or parameter: (bucket, from, to, shape)",
				f->c.name);
	return 0;
}

static int read_bucket(struct nnscaler *n, const struct nnscaler_file *f,
		       int64_t opt, ck_pv v, struct nnscaler_bucket **out,
		       struct ck_err *err)
{
	struct nnscaler_bucket *b;
	ck_pv ranks;
	int64_t size;
	uint64_t nr;

	if (!ck_pv_at(f->p, v, 0, &ranks) || !ck_pq_int(f->p, v, "1", &size) ||
	    size < 0)
		return ck_fail(err, EINVAL,
			       "%s: opt_idx2ranks: expected ((ranks), size)",
			       f->c.name);
	nr = ck_pv_len(f->p, ranks);
	b = nr < SIZE_MAX / 16 ?
		    ck_arena_alloc(&n->a.mem,
				   sizeof(*b) + nr * sizeof(*b->ranks)) :
		    NULL;
	if (!b)
		return ck_no_memory(err);
	*out = b;
	b->opt = opt;
	b->size = (uint64_t)size;
	for (struct ck_pq_each e = ck_pq_begin(f->p, ranks, "[]");
	     b->nr < nr && ck_pq_next(&e);) {
		int64_t *rank = &b->ranks[b->nr++];

		if (!ck_pv_int(f->p, e.v, rank) || *rank < 0 ||
		    *rank >= NNSCALER_MAX_RANKS)
			return ck_fail(err, EINVAL,
				       "%s: opt_idx2ranks: expected ranks",
				       f->c.name);
	}
	if (b->nr)
		return 0;
	return ck_fail(err, EINVAL, "%s: opt_idx2ranks: a bucket of no ranks",
		       f->c.name);
}

int ck_nnscaler_tables(struct nnscaler *n, const struct nnscaler_file *f,
		       struct nnscaler_module *m, ck_pv extra,
		       struct ck_err *err)
{
	struct nnscaler_bucket **last = &m->buckets;
	int64_t opt;
	int ret = read_places(f, m, extra, err);

	for (struct ck_pq_each e = ck_pq_begin(f->p, extra, "opt_idx2ranks/{}");
	     !ret && ck_pq_next(&e);) {
		if (ck_pv_kind(e.v) == CK_P_NONE)
			continue;
		if (!ck_pv_int(f->p, e.key[0], &opt))
			return ck_fail(
				err, EINVAL,
				"%s: opt_idx2ranks: expected numbers as keys",
				f->c.name);
		ret = read_bucket(n, f, opt, e.v, last, err);
		if (!ret)
			last = &(*last)->next;
	}
	return ret;
}

/* ---- states ---- */

/* A number that is a state, as the tensor that it would be; false: none. */
static bool set_number(const struct ck_pickle *p, ck_pv v,
		       struct nnscaler_state *st, uint64_t *bits)
{
	union {
		uint64_t bits;
		int64_t whole;
		float f32;
	} u = { 0 };
	double f64;

	st->x.dtype = CK_DT_I64;
	if (!ck_pv_int(p, v, &u.whole)) {
		if (!ck_pv_float(p, v, &f64))
			return false;
		u.f32 = (float)f64;
		st->x.dtype = CK_DT_F32;
	}
	*bits = u.bits;
	return true;
}

static int read_state(struct nnscaler *n, struct nnscaler_rank *r,
		      struct nnscaler_file *f, int64_t id,
		      const struct ck_pq_each *e, struct ck_err *err)
{
	struct nnscaler_state st = { .id = id };
	const struct ck_problem_in p = { .severity = CK_ERROR,
					 .file = f->c.name };
	struct ck_err why = { 0 };
	uint64_t bits;
	int ret = 0;

	if (ck_nnscaler_is_tensor(f, e->v))
		ret = ck_nnscaler_extent(n, f, e->v, &st.x, &why);
	else if (!set_number(f->p, e->v, &st, &bits))
		return 0;
	else
		ret = ck_builder_mem(n->a.b, &bits,
				     ck_dtype_info(st.x.dtype)->size, &st.x.src,
				     &why);
	if (ret == -EINVAL)
		return ck_builder_problem(
			n->a.b, &p, err, "optimizer.state.%" PRId64 ".%.*s: %s",
			id, (int)CK_MIN(e->len, 100), e->name, why.msg);
	if (ret)
		return ck_fail(err, -ret, "%s", why.msg);
	ck_str_add(ck_nnscaler_text(n, ""), e->name, e->len);
	st.key = ck_nnscaler_name(n);
	return ck_vec_put(&r->states, err, st);
}

static int by_id(const void *pa, const void *pb)
{
	const struct nnscaler_state *a = pa, *b = pb;

	if (a->id != b->id)
		return a->id < b->id ? -1 : 1;
	return a->key->nr < b->key->nr ? -1 : a->key->nr > b->key->nr;
}

static int read_states(struct nnscaler *n, struct nnscaler_rank *r,
		       struct nnscaler_file *f, ck_pv optimizer,
		       struct ck_err *err)
{
	int64_t id;
	int ret = 0;

	for (struct ck_pq_each e = ck_pq_begin(f->p, optimizer, "state/{}/{}");
	     !ret && ck_pq_next(&e);)
		if (e.name && ck_pv_int(f->p, e.key[0], &id) && id >= 0)
			ret = read_state(n, r, f, id, &e, err);
	if (r->states.nr)
		qsort(r->states.v, r->states.nr, sizeof(*r->states.v), by_id);
	return ret;
}

/* ---- which of them are whose ---- */

static int read_locs(struct nnscaler *n, uint32_t rank, struct nnscaler_file *f,
		     ck_pv extra, struct ck_err *err)
{
	const struct ck_pickle *p = f->p;
	ck_pv other;
	int ret = 0;

	for (struct ck_pq_each e =
		     ck_pq_begin(p, extra, "parallel_module_locs/{}");
	     !ret && ck_pq_next(&e);) {
		struct nnscaler_module *m = n->ranks.v[rank].modules;

		if (!e.name)
			continue;
		if (!ck_pv_is_str(p, e.key[0], VIRTUAL))
			while (m && (m->is_virtual || m->prefix->len != e.len ||
				     memcmp(m->prefix->s, e.name, e.len) != 0))
				m = m->next;
		else if (ck_pq(p, extra, "non_parallel_extra_state", &other))
			ret = ck_nnscaler_virtual_module(n, rank, f, other, &m,
							 err);
		else
			ret = ck_fail(
				err, EINVAL,
				"%s: optimizer: no non_parallel_extra_state",
				f->c.name);
		if (ret || !m)
			continue;
		m->has_states = true;
		m->offset = ck_pq_int_or(p, e.v, "offset", -1);
		m->count = ck_pq_int_or(p, e.v, "count", -1);
		if (m->offset < 0 || m->count < 0 || m->offset > INT32_MAX ||
		    m->count > INT32_MAX)
			return ck_fail(
				err, EINVAL,
				"%s: parallel_module_locs: expected offset and count",
				f->c.name);
	}
	return ret;
}

/* Those whose states nnScaler's own merge takes as one value an element. */
static bool is_known(const char *class)
{
	return strcasestr(class, "adam") || strcasestr(class, "muon") ||
	       !strcmp(class, "HybridOptimizer");
}

static int64_t count_ids(const struct ck_pickle *p, ck_pv optimizer)
{
	ck_pv groups, params;
	int64_t nr = 0;

	if (!ck_pv_key(p, optimizer, "param_groups", &groups))
		return -1;
	for (struct ck_pq_each e = ck_pq_begin(p, groups, "[]");
	     ck_pq_next(&e);) {
		if (!ck_pv_key(p, e.v, "params", &params) ||
		    ck_pv_len(p, params) > INT32_MAX)
			return -1;
		nr += (int64_t)ck_pv_len(p, params);
	}
	return nr <= INT32_MAX ? nr : -1;
}

int ck_nnscaler_states(struct nnscaler *n, uint32_t rank,
		       struct nnscaler_file *f, ck_pv optimizer,
		       struct ck_err *err)
{
	struct nnscaler_rank *r = &n->ranks.v[rank];
	const char *class = "";
	size_t len = 0;
	ck_pv extra;
	int ret;

	r->nr_ids = -1;
	if (!optimizer || ck_pv_kind(optimizer) == CK_P_NONE)
		return 0;
	r->nr_ids = count_ids(f->p, optimizer);
	ret = read_states(n, r, f, optimizer, err);
	if (ret || !ck_pv_key(f->p, optimizer, NNSCALER_EXTRA, &extra))
		return ret;
	ck_pq_str(f->p, extra, "name", &class, &len);
	ck_str_add(ck_nnscaler_text(n, ""), class, len);
	r->class = len ? ck_nnscaler_name(n) : NULL;
	r->known_optimizer = len && is_known(r->class->s);
	return read_locs(n, rank, f, extra, err);
}
