/* SPDX-License-Identifier: Apache-2.0 */
/*
 * optim.c - optimizer states of all ranks as pieces of full tensors
 *
 * Without ZeRO the i-th parameter's states are entry i of the module, in the
 * shape of its slice.  ZeRO 1 lays the parameters of some ranks into a bucket,
 * of which each rank keeps an equal part; ZeRO 3 gives each rank the same
 * stretch [from, to) of its own vector, and the slice is these in a row.
 */
#include "core/format/nnscaler/nnscaler.h"

#include "core/base/check.h"
#include "core/base/search.h"
#include "core/geom/range.h"
#include "core/mesh/mesh.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

const struct nnscaler_state *ck_nnscaler_states_of(
	const struct nnscaler_rank *r, int64_t id, size_t *nr)
{
	size_t at = CK_FIRST(i, 0, r->states.nr, r->states.v[i].id >= id);

	for (*nr = 0; at + *nr < r->states.nr; ++*nr)
		if (r->states.v[at + *nr].id != id)
			break;
	return *nr ? r->states.v + at : NULL;
}

static struct nnscaler_name *state_name(struct nnscaler *n,
					const struct nnscaler_name *model,
					const struct nnscaler_name *state)
{
	struct ck_str *text = ck_nnscaler_text(n, "optimizer.");

	ck_str_add(text, model->s + 6, model->len - 6);
	ck_str_puts(text, ".");
	ck_str_add(text, state->s, state->len);
	return ck_nnscaler_name(n);
}

void ck_nnscaler_state(struct nnscaler *n, uint32_t rank,
		       const struct nnscaler_state *st,
		       const struct nnscaler_name *model)
{
	struct nnscaler_piece t = {
		.shown = { .state = st->key, .id = st->id, .raw = !model },
		.rank = rank,
		.x = st->x,
	};
	struct ck_str *text;

	if (model) {
		t.name = state_name(n, model, st->key);
	} else {
		text = ck_nnscaler_text(n, "");
		if (!n->merged)
			ck_str_fmt(text, "rank_%u.", rank);
		ck_str_fmt(text, "optimizer.state.%" PRId64 ".", st->id);
		ck_str_add(text, st->key->s, st->key->len);
		t.name = ck_nnscaler_name(n);
	}
	ck_nnscaler_piece(n, &t);
}

/* A parameter of one rank, of whose states pieces are made. */
struct param {
	struct nnscaler *n;
	uint32_t rank;
	const struct nnscaler_module *m;
	const struct nnscaler_attr *a;
	uint64_t volume; /* of its slice */
};

/* @st, which rank @rank has, as a piece of the parameter's. */
static struct nnscaler_piece new_piece(const struct param *j, uint32_t rank,
				       const struct nnscaler_state *st)
{
	return (struct nnscaler_piece){
		.name = state_name(j->n, j->a->name, st->key),
		.shown.state = st->key,
		.box = st->x.rank ? j->a->box : NULL,
		.rank = rank,
		.x = st->x,
	};
}

static bool is_of_slice(const struct ck_extent *x,
			const struct nnscaler_attr *a)
{
	return x->rank == a->box->rank &&
	       !memcmp(a->box->len, x->shape, x->rank * sizeof(*x->shape));
}

/* States that the rank keeps in the shape of the slice, or numbers. */
static void own_states(const struct param *j, int64_t id, bool *odd)
{
	size_t nr;
	const struct nnscaler_state *st =
		ck_nnscaler_states_of(&j->n->ranks.v[j->rank], id, &nr);

	for (size_t i = 0; i < nr; i++) {
		struct nnscaler_piece t = new_piece(j, j->rank, &st[i]);

		if (!st[i].x.rank || is_of_slice(&st[i].x, j->a)) {
			ck_nnscaler_piece(j->n, &t);
			continue;
		}
		*odd = true;
		ck_nnscaler_state(j->n, j->rank, &st[i], NULL);
	}
}

/* The same module in the file of rank @nr; NULL: it cannot be read. */
static const struct nnscaler_module *peer(const struct param *j, int64_t nr)
{
	const struct nnscaler_module *m;

	if ((uint64_t)nr >= j->n->ranks.nr || !j->n->ranks.v[nr].ok)
		return NULL;
	for (m = j->n->ranks.v[nr].modules; m; m = m->next)
		if (m->prefix == j->m->prefix &&
		    m->is_virtual == j->m->is_virtual && m->has_states)
			break;
	return m;
}

/* One rank's part of a bucket: where it has the parameter's elements. */
struct stretch {
	uint64_t lo, hi; /* of the slice's order */
	uint64_t from; /* element of the rank's vector */
	uint64_t len; /* what the vector must have; 0: not said */
};

static void stretch_of(const struct param *j, const struct nnscaler_bucket *b,
		       uint64_t k, struct stretch *t)
{
	const struct nnscaler_attr *a = j->a;
	const struct ck_split parts = { CK_SIZES_EVEN, b->nr, NULL };
	uint64_t part = 0, first = 0;

	if (j->m->fact[NNSCALER_ZERO] > 1) {
		uint64_t per = a->end - a->pos;

		*t = (struct stretch){ .from = a->pos };
		t->lo = per && k > j->volume / per ? j->volume :
						     CK_MIN(k * per, j->volume);
		t->hi = CK_MIN(t->lo + per, j->volume);
		return;
	}
	ck_split_part(&parts, b->size, k, &first, &part, NULL);
	*t = (struct stretch){ .len = part };
	t->lo = CK_MAX(a->pos, first);
	t->hi = CK_MIN(a->end, first + part);
	if (t->hi <= t->lo) {
		t->hi = t->lo = 0;
		return;
	}
	t->from = t->lo - first;
	t->lo -= a->pos;
	t->hi -= a->pos;
}

static int refuse(const struct param *j, const struct nnscaler_name *key,
		  struct ck_err *err, const char *why)
{
	const struct nnscaler_name *name = state_name(j->n, j->a->name, key);

	return ck_builder_refuse(j->n->a.b, 0, name->s, name->len, err,
				 "%s: %s", j->n->ranks.v[j->rank].file, why);
}

/* What rank @nr has of state @like, or would have if its file were there. */
static int add_part(const struct param *j, const struct nnscaler_bucket *b,
		    uint64_t k, const struct nnscaler_state *like,
		    struct ck_err *err)
{
	int64_t nr = b->ranks[k];
	const struct nnscaler_module *m = peer(j, nr);
	const struct nnscaler_rank *r =
		(uint64_t)nr < j->n->ranks.nr ? &j->n->ranks.v[nr] : NULL;
	const struct nnscaler_state *all = NULL, *st = NULL;
	struct nnscaler_piece t;
	struct stretch at;
	size_t nr_all = 0;

	if (m)
		all = ck_nnscaler_states_of(r, m->offset + b->opt, &nr_all);
	for (size_t i = 0; i < nr_all; i++)
		if (all[i].key == like->key)
			st = &all[i];
	if (!st && (m || !r || r->file || r->at == CK_NONE || !like->x.rank))
		return 0; /* a hole; or a number, of which others have copies */
	if (st && st->x.rank != like->x.rank)
		return refuse(j, like->key, err,
			      "ranks keep this state in different shapes");
	t = new_piece(j, (uint32_t)nr, st ? st : like);
	if (!t.x.rank) {
		ck_nnscaler_piece(j->n, &t);
		return 0;
	}
	stretch_of(j, b, k, &at);
	if (st && (t.x.rank != 1 || t.x.stride ||
		   (at.len && t.x.shape[0] != at.len) ||
		   at.from + (at.hi - at.lo) > t.x.shape[0]))
		return refuse(
			j, like->key, err,
			"a rank's part of its bucket is not of the size that opt_idx2ranks says");
	t.flat = true;
	t.absent = !st;
	t.lo = at.lo;
	t.hi = at.hi;
	t.x.off = st ? t.x.off + at.from * ck_dtype_info(t.x.dtype)->size : 0;
	ck_nnscaler_piece(j->n, &t);
	return 0;
}

static bool bucket_fits(const struct param *j, const struct nnscaler_bucket *b)
{
	const struct nnscaler_attr *a = j->a;

	if (a->bad)
		return false;
	if (j->m->fact[NNSCALER_ZERO] > 1)
		return b->size <= CK_SIZE_MAX && a->end <= CK_SIZE_MAX / 16;
	return b->size % b->nr == 0 && a->end <= b->size &&
	       b->size <= CK_SIZE_MAX / 16 && a->end - a->pos == j->volume;
}

/* The first rank of the bucket that can be read speaks for all of them. */
static int bucket_states(const struct param *j, const struct nnscaler_bucket *b,
			 struct ck_err *err)
{
	const struct nnscaler_module *m;
	const struct nnscaler_state *like = NULL;
	size_t first = 0, nr_like = 0;
	int ret = 0;

	while (first < b->nr && !peer(j, b->ranks[first]))
		first++;
	if (first == b->nr || b->ranks[first] != j->rank)
		return 0;
	for (size_t k = first; k < b->nr && !nr_like; k++) {
		m = peer(j, b->ranks[k]);
		if (m)
			like = ck_nnscaler_states_of(
				&j->n->ranks.v[b->ranks[k]], m->offset + b->opt,
				&nr_like);
	}
	for (size_t i = 0; i < nr_like && !ret; i++) {
		if (like[i].x.rank && !bucket_fits(j, b)) {
			ret = refuse(
				j, like[i].key, err,
				"its place in its bucket is not of its size");
			continue;
		}
		for (size_t k = 0; k < b->nr && !ret; k++)
			ret = add_part(j, b, k, &like[i], err);
	}
	return ret;
}

/* From *at on, for they come in the order of parameters, or anywhere. */
static bool find_bucket(const struct param *j,
			const struct nnscaler_bucket **at)
{
	while (*at && (*at)->opt != j->a->opt)
		*at = (*at)->next;
	if (*at)
		return true;
	*at = j->m->buckets;
	while (*at && (*at)->opt != j->a->opt)
		*at = (*at)->next;
	return *at;
}

/* The @i-th parameter of its module. */
static int param_states(const struct param *j, int64_t i,
			const struct nnscaler_bucket **b, bool *odd,
			struct ck_err *err)
{
	bool shared = j->m->fact[NNSCALER_ZERO] > 0;

	if (shared && !j->a->has_opt)
		return 0;
	if (!shared || !j->a->in_bucket) {
		own_states(j, j->m->offset + (shared ? j->a->opt : i), odd);
		return 0;
	}
	if (!find_bucket(j, b))
		return ck_fail(err, EINVAL,
			       "%s: opt_idx2ranks: no bucket %" PRId64,
			       j->n->ranks.v[j->rank].file, j->a->opt);
	return bucket_states(j, *b, err);
}

static int module_states(struct nnscaler *n, uint32_t rank,
			 const struct nnscaler_module *m, bool *odd,
			 struct ck_err *err)
{
	const struct nnscaler_bucket *b = m->buckets;
	int64_t i = 0;
	int ret = 0;

	for (const struct nnscaler_attr *a = m->attrs; a && !ret; a = a->next) {
		struct param j = { n, rank, m, a, 0 };

		if (!a->is_param)
			continue;
		ck_dims_volume(a->box->len, a->box->rank, &j.volume);
		ret = param_states(&j, i++, &b, odd, err);
	}
	return ret;
}

static void module_raw(struct nnscaler *n, uint32_t rank,
		       const struct nnscaler_module *m)
{
	const struct nnscaler_rank *r = &n->ranks.v[rank];

	for (size_t i = 0; i < r->states.nr; i++)
		if (r->states.v[i].id >= m->offset &&
		    r->states.v[i].id - m->offset < m->count)
			ck_nnscaler_state(n, rank, &r->states.v[i], NULL);
}

static int rank_states(struct nnscaler *n, uint32_t rank, bool *odd,
		       bool *unordered, struct ck_err *err)
{
	const struct nnscaler_rank *r = &n->ranks.v[rank];
	int ret = 0;

	for (const struct nnscaler_module *m = r->modules; m && !ret;
	     m = m->next) {
		if (!m->has_states)
			continue;
		*unordered |= !m->ordered;
		if (r->known_optimizer && m->ordered)
			ret = module_states(n, rank, m, odd, err);
		else
			module_raw(n, rank, m);
	}
	return ret;
}

int ck_nnscaler_optim(struct nnscaler *n, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_WARNING };
	const struct nnscaler_rank *first = &n->ranks.v[n->first];
	bool odd = false, unordered = false, any = false;
	int ret = 0;

	for (uint32_t i = 0; i < n->ranks.nr && !ret; i++) {
		if (n->ranks.v[i].ok)
			ret = rank_states(n, i, &odd, &unordered, err);
		any |= n->ranks.v[i].states.nr > 0;
	}
	if (!ret && any && !first->known_optimizer && first->class)
		ret = ck_builder_problem(
			n->a.b, &p, err,
			"optimizer states of %s, which nnScaler does not merge: they are shown as stored, as rank_N.optimizer.state",
			first->class->s);
	if (!ret && odd)
		ret = ck_builder_problem(
			n->a.b, &p, err,
			"some optimizer states are not of their parameters' shapes: they are shown as stored, as rank_N.optimizer.state");
	if (!ret && unordered)
		ret = ck_builder_problem(
			n->a.b, &p, err,
			"param_area_map and cube_param_names disagree on the order of parameters: optimizer states are shown as stored");
	return ret ? ret : ck_nnscaler_plain_states(n, err);
}
