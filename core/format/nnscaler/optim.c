/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.c - optimizer states of all ranks as pieces of full tensors
 *
 * Without ZeRO the i-th parameter's states are entry i of the module, in the
 * shape of its slice.  ZeRO 1 lays the parameters of some ranks into a bucket,
 * of which each rank keeps an equal part; ZeRO 3 gives each rank the same
 * stretch [from, to) of its own vector, and the slice is these in a row.
 */
#include "core/format/nnscaler/priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/search.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

uint32_t ck_nn_state_name(struct ck_nn_set *s, uint32_t model, uint32_t state)
{
	const struct ck_strmap_key *m = &s->names.map.v[model];
	const struct ck_strmap_key *k = &s->names.map.v[state];
	struct ck_str full = { 0 };
	uint32_t at = CK_STRMAP_NONE;

	ck_str_puts(&full, "optimizer.");
	ck_str_add(&full, m->s + 6, m->len - 6);
	ck_str_puts(&full, ".");
	ck_str_add(&full, k->s, k->len);
	if (!full.failed)
		at = ck_nn_name(&s->names, full.v, full.len);
	ck_str_free(&full);
	return at;
}

const struct ck_nn_state *ck_nn_states_of(const struct ck_nn_rank *r,
					  int64_t id, size_t *nr)
{
	size_t at = CK_FIRST(i, 0, r->states.nr, r->states.v[i].id >= id);

	for (*nr = 0; at + *nr < r->states.nr; ++*nr)
		if (r->states.v[at + *nr].id != id)
			break;
	return *nr ? r->states.v + at : NULL;
}

int ck_nn_raw_say(struct ck_nn_set *s, uint32_t rank,
		  const struct ck_nn_state *st, struct ck_err *err)
{
	struct ck_nn_piece p = { .state = st->key,
				 .id = st->id,
				 .rank = rank,
				 .dims = ck_nn_whole(s, &st->t),
				 .dims_rank = st->t.rank,
				 .t = st->t };
	/* a copy: new names move the others */
	const struct ck_strmap_key key = s->names.map.v[st->key];
	ck_auto_str struct ck_str name = { 0 };

	if (!s->merged)
		ck_str_fmt(&name, "rank_%u.", rank);
	ck_str_fmt(&name, "optimizer.state.%" PRId64 ".", st->id);
	p.param = name.failed ? CK_STRMAP_NONE :
				ck_nn_name(&s->names, name.v, name.len - 1);
	ck_str_add(&name, key.s, key.len);
	p.name = name.failed ? CK_STRMAP_NONE :
			       ck_nn_name(&s->names, name.v, name.len);
	if (p.dims == SIZE_MAX || p.name == CK_STRMAP_NONE ||
	    p.param == CK_STRMAP_NONE)
		return ck_fail(err, ENOMEM, "no memory for names");
	return ck_nn_piece_add(s, &p, err);
}

/* A parameter of one rank whose states are said. */
struct param {
	struct ck_nn_set *s;
	uint32_t rank;
	const struct ck_nn_module *m;
	const struct ck_nn_attr *a;
	uint64_t volume; /* of its slice */
	bool *odd; /* states of another shape were met */
};

static int new_piece(const struct param *j, uint32_t key, uint32_t rank,
		     const struct ck_nn_tensor *t, struct ck_nn_piece *p,
		     struct ck_err *err)
{
	*p = (struct ck_nn_piece){
		.name = ck_nn_state_name(j->s, j->a->name, key),
		.state = key,
		.rank = rank,
		.dims = j->a->dims,
		.dims_rank = t->rank ? j->a->rank : 0,
		.t = *t,
	};
	p->param = ck_nn_name(&j->s->names, j->s->names.v.v[j->a->name] + 6,
			      j->s->names.map.v[j->a->name].len - 6);
	if (p->name == CK_STRMAP_NONE || p->param == CK_STRMAP_NONE)
		return ck_fail(err, ENOMEM, "no memory for names");
	return 0;
}

/* A state that the rank keeps in the shape of the slice, or a number. */
static int own_say(const struct param *j, const struct ck_nn_state *st,
		   struct ck_err *err)
{
	const uint64_t *len =
		j->s->dims.v + j->a->dims + 2 * (size_t)j->a->rank;
	struct ck_nn_piece p;
	int ret;

	if (st->t.rank && (st->t.rank != j->a->rank ||
			   memcmp(len, j->s->dims.v + st->t.dims,
				  st->t.rank * sizeof(*len)) != 0)) {
		*j->odd = true;
		return ck_nn_raw_say(j->s, j->rank, st, err);
	}
	ret = new_piece(j, st->key, j->rank, &st->t, &p, err);
	return ret ? ret : ck_nn_piece_add(j->s, &p, err);
}

static int own_states(const struct param *j, int64_t id, struct ck_err *err)
{
	const struct ck_nn_rank *r = &j->s->ranks.v[j->rank];
	size_t nr;
	const struct ck_nn_state *st = ck_nn_states_of(r, id, &nr);
	int ret = 0;

	for (size_t i = 0; i < nr && !ret; i++)
		ret = own_say(j, &st[i], err);
	return ret;
}

static const struct ck_nn_bucket *bucket_of(const struct ck_nn_rank *r,
					    const struct ck_nn_module *m,
					    int64_t opt)
{
	const struct ck_nn_bucket *b =
		m->nr_buckets ? r->buckets.v + m->buckets : NULL;

	if (opt >= 0 && (uint64_t)opt < m->nr_buckets && b[opt].opt == opt)
		return &b[opt];
	for (size_t i = 0; i < m->nr_buckets; i++)
		if (b[i].opt == opt)
			return &b[i];
	return NULL;
}

/* The same module in the file of rank @nr; NULL: it cannot be read. */
static const struct ck_nn_module *peer(const struct param *j, int64_t nr)
{
	const struct ck_nn_rank *r;

	if ((uint64_t)nr >= j->s->ranks.nr || !j->s->ranks.v[nr].ok)
		return NULL;
	r = &j->s->ranks.v[nr];
	for (size_t i = 0; i < r->modules.nr; i++)
		if (r->modules.v[i].prefix == j->m->prefix &&
		    r->modules.v[i].virtual_one == j->m->virtual_one &&
		    r->modules.v[i].has_states)
			return &r->modules.v[i];
	return NULL;
}

/* One rank's part of a bucket: where it has the parameter's elements. */
struct stretch {
	uint64_t lo, hi; /* of the slice's order */
	uint64_t from; /* element of the rank's vector */
	uint64_t len; /* what the vector must have; 0: not said */
};

static void stretch_of(const struct param *j, const struct ck_nn_bucket *b,
		       uint64_t k, struct stretch *t)
{
	const struct ck_nn_attr *a = j->a;
	uint64_t part = b->size / b->nr_ranks;

	if (j->m->id.zero > 1) {
		uint64_t per = a->end - a->pos;

		*t = (struct stretch){ .from = a->pos };
		t->lo = per && k > j->volume / per ? j->volume :
						     CK_MIN(k * per, j->volume);
		t->hi = CK_MIN(t->lo + per, j->volume);
		return;
	}
	*t = (struct stretch){ .len = part };
	t->lo = CK_MAX(a->pos, k * part);
	t->hi = CK_MIN(a->end, (k + 1) * part);
	if (t->hi <= t->lo) {
		t->hi = t->lo = 0;
		return;
	}
	t->from = t->lo - k * part;
	t->lo -= a->pos;
	t->hi -= a->pos;
}

static int refuse(const struct param *j, uint32_t key, struct ck_err *err,
		  const char *why)
{
	uint32_t at = ck_nn_state_name(j->s, j->a->name, key);

	if (at == CK_STRMAP_NONE)
		return ck_fail(err, ENOMEM, "no memory for names");
	return ck_builder_refuse(j->s->b, 0, j->s->names.v.v[at],
				 j->s->names.map.v[at].len, err, "%s: %s",
				 j->s->ranks.v[j->rank].file, why);
}

/* What rank @nr has of state @like, or would have if its file were there. */
static int part_say(const struct param *j, const struct ck_nn_bucket *b,
		    uint64_t k, int64_t nr, const struct ck_nn_state *like,
		    struct ck_err *err)
{
	const struct ck_nn_module *m = peer(j, nr);
	const struct ck_nn_state *st = NULL, *all = NULL;
	uint64_t size = ck_dtype_info(like->t.dtype)->size;
	struct ck_nn_tensor t = like->t;
	struct ck_nn_piece p;
	struct stretch at;
	size_t nr_st = 0;
	int ret;

	if (m)
		all = ck_nn_states_of(&j->s->ranks.v[nr], m->offset + b->opt,
				      &nr_st);
	for (size_t i = 0; i < nr_st; i++)
		if (all[i].key == like->key)
			st = &all[i];
	if (!st && (m || (uint64_t)nr >= j->s->ranks.nr ||
		    !j->s->ranks.v[nr].absent || !like->t.rank))
		return 0; /* a hole; or a number, of which others have copies */
	if (st && st->t.rank != like->t.rank)
		return refuse(j, like->key, err,
			      "ranks keep this state in different shapes");
	if (st)
		t = st->t;
	else
		t.src = j->s->ranks.v[nr].src;
	ret = new_piece(j, like->key, (uint32_t)nr, &t, &p, err);
	if (ret || !t.rank)
		return ret ? ret : ck_nn_piece_add(j->s, &p, err);
	stretch_of(j, b, k, &at);
	if (st && (t.rank != 1 || !t.dense ||
		   (at.len && j->s->dims.v[t.dims] != at.len) ||
		   at.from + (at.hi - at.lo) > j->s->dims.v[t.dims]))
		return refuse(
			j, like->key, err,
			"a rank's part of its bucket is not of the size that opt_idx2ranks says");
	p.flat = true;
	p.absent = !st;
	p.lo = at.lo;
	p.hi = at.hi;
	p.t.off = st ? p.t.off + at.from * size : 0;
	return ck_nn_piece_add(j->s, &p, err);
}

/* The first rank of the bucket that can be read speaks for all of them. */
static bool is_speaker(const struct param *j, const struct ck_nn_bucket *b)
{
	const int64_t *nr = j->s->ranks.v[j->rank].rank_nrs.v + b->ranks;

	for (size_t k = 0; k < b->nr_ranks; k++)
		if (peer(j, nr[k]))
			return nr[k] == j->rank;
	return false;
}

static bool bucket_fits(const struct param *j, const struct ck_nn_bucket *b)
{
	const struct ck_nn_attr *a = j->a;

	if (a->bad)
		return false;
	if (j->m->id.zero > 1)
		return b->size <= CK_SIZE_MAX && a->end <= CK_SIZE_MAX / 16;
	return b->size % b->nr_ranks == 0 && a->end <= b->size &&
	       b->size <= CK_SIZE_MAX / 16 && a->end - a->pos == j->volume;
}

static int bucket_say(const struct param *j, const struct ck_nn_bucket *b,
		      struct ck_err *err)
{
	const struct ck_nn_rank *r = &j->s->ranks.v[j->rank];
	const int64_t *nr = r->rank_nrs.v + b->ranks;
	const struct ck_nn_state *like = NULL;
	size_t nr_like = 0;
	int ret = 0;

	for (size_t k = 0; k < b->nr_ranks && !nr_like; k++) {
		const struct ck_nn_module *m = peer(j, nr[k]);

		if (m)
			like = ck_nn_states_of(&j->s->ranks.v[nr[k]],
					       m->offset + b->opt, &nr_like);
	}
	for (size_t i = 0; i < nr_like && !ret; i++) {
		if (like[i].t.rank && !bucket_fits(j, b)) {
			ret = refuse(
				j, like[i].key, err,
				"its place in its bucket is not of its size");
			continue;
		}
		for (size_t k = 0; k < b->nr_ranks && !ret; k++)
			ret = part_say(j, b, k, nr[k], &like[i], err);
	}
	return ret;
}

static int param_say(const struct param *j, int64_t i, struct ck_err *err)
{
	const struct ck_nn_rank *r = &j->s->ranks.v[j->rank];
	const struct ck_nn_bucket *b;

	if (j->m->id.zero <= 0)
		return own_states(j, j->m->offset + i, err);
	if (!j->a->has_opt)
		return 0;
	if (!j->a->in_bucket)
		return own_states(j, j->m->offset + j->a->opt, err);
	b = bucket_of(r, j->m, j->a->opt);
	if (!b)
		return ck_fail(err, EINVAL,
			       "%s: opt_idx2ranks: no bucket %" PRId64, r->file,
			       j->a->opt);
	return is_speaker(j, b) ? bucket_say(j, b, err) : 0;
}

static int module_say(struct ck_nn_set *s, uint32_t rank,
		      const struct ck_nn_module *m, bool *odd,
		      struct ck_err *err)
{
	const struct ck_nn_rank *r = &s->ranks.v[rank];
	int64_t i = 0;
	int ret = 0;

	for (size_t k = 0; k < m->nr_attrs && !ret; k++) {
		const struct ck_nn_attr *a = &r->attrs.v[m->attrs + k];
		struct param j = { s, rank, m, a, 0, odd };

		if (!a->is_param)
			continue;
		if (a->rank)
			ck_dims_volume(s->dims.v + a->dims +
					       2 * (size_t)a->rank,
				       a->rank, &j.volume);
		else
			j.volume = 1;
		ret = param_say(&j, i++, err);
	}
	return ret;
}

static int module_raw(struct ck_nn_set *s, uint32_t rank,
		      const struct ck_nn_module *m, struct ck_err *err)
{
	const struct ck_nn_rank *r = &s->ranks.v[rank];
	int ret = 0;

	for (size_t i = 0; i < r->states.nr && !ret; i++)
		if (r->states.v[i].id >= m->offset &&
		    r->states.v[i].id - m->offset < m->count)
			ret = ck_nn_raw_say(s, rank, &r->states.v[i], err);
	return ret;
}

static int rank_say(struct ck_nn_set *s, uint32_t rank, bool *odd,
		    bool *unordered, struct ck_err *err)
{
	const struct ck_nn_rank *r = &s->ranks.v[rank];
	int ret = 0;

	for (size_t k = 0; k < r->modules.nr && !ret; k++) {
		const struct ck_nn_module *m = &r->modules.v[k];

		if (!m->has_states)
			continue;
		*unordered |= !m->ordered;
		ret = r->known_optimizer && m->ordered ?
			      module_say(s, rank, m, odd, err) :
			      module_raw(s, rank, m, err);
	}
	return ret;
}

int ck_nn_optim_say(struct ck_nn_set *s, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING };
	const struct ck_nn_rank *first = &s->ranks.v[s->first];
	bool odd = false, unordered = false, any = false;
	int ret = 0;

	for (uint32_t i = 0; i < s->ranks.nr && !ret; i++) {
		if (s->ranks.v[i].ok)
			ret = rank_say(s, i, &odd, &unordered, err);
		any |= s->ranks.v[i].states.nr > 0;
	}
	if (!ret && any && !first->known_optimizer && first->class)
		ret = ck_builder_problem(
			s->b, &p, err,
			"optimizer states of %s, which nnScaler does not merge: they are shown as stored, as rank_N.optimizer.state",
			s->names.v.v[first->class]);
	if (!ret && odd)
		ret = ck_builder_problem(
			s->b, &p, err,
			"some optimizer states are not of their parameters' shapes: they are shown as stored, as rank_N.optimizer.state");
	if (!ret && unordered)
		ret = ck_builder_problem(
			s->b, &p, err,
			"param_area_map and cube_param_names disagree on the order of parameters: optimizer states are shown as stored");
	return ret ? ret : ck_nn_plain_say(s, err);
}
