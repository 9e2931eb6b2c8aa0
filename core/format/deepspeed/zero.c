/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero.c - from partitions to parts of parameters
 *
 *   stages 1, 2:  the parameters of a group one after another, the whole cut
 *                 into as many equal partitions as there are ranks
 *   stage 3:      each parameter cut by itself into ceil(n / ranks) elements;
 *                 the pieces of a rank one after another
 *
 * What is left over at the end of either is padding, and never read.  In the
 * file of each rank of stages 1 and 2 param_slice_mappings says the same as
 * param_shapes and the size of a partition; where they do not agree, nobody
 * knows what is where.  With round_robin_gradients DeepSpeed lays the vectors
 * out as param_shapes has it and, in some releases, counts the fragments as if
 * it had not (its weights and gradients, which are views of the vectors, show
 * which of them is right).
 */
#include "core/format/deepspeed/deepspeed.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/mesh/mesh.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* More than this many unused elements a rank is no alignment. */
#define MAX_SLACK 512

/* ---- where elements are ---- */

static const struct deepspeed_flat *flat_of(const struct deepspeed_vec *v,
					    uint64_t k, uint32_t state)
{
	return ck_deepspeed_flat(v->of[k].r, state, v->of[k].group);
}

/* Flat @i of member @k, if it is of that state; NULL: it is of another. */
static const struct deepspeed_flat *flat_at(const struct deepspeed_vec *v,
					    uint64_t k, size_t i,
					    uint32_t state)
{
	const struct deepspeed_flat *f = &v->of[k].r->flats.v[i];

	return f->state == state && (v->each || f->group == v->of[k].group) ?
		       f :
		       NULL;
}

static size_t nr_flats(const struct deepspeed_vec *v, uint64_t k)
{
	const struct deepspeed_rank *r = v->of[k].r;

	return r && r->usable ? r->flats.nr : 0;
}

/* What the vector's states are of; 0: it has no such state. */
static enum ck_dtype dtype_of(const struct deepspeed_vec *v, uint32_t state)
{
	for (uint64_t k = 0; k < v->count; k++)
		for (size_t i = 0; i < nr_flats(v, k); i++)
			if (flat_at(v, k, i, state))
				return flat_at(v, k, i, state)->run.x.dtype;
	return 0;
}

/* ---- slice tables ---- */

/* Where each parameter of the group would begin without round robin. */
static int undo_round_robin(const struct deepspeed_zero *z, uint32_t group,
			    uint64_t *pos)
{
	const struct deepspeed_param *p = z->m->params.v;
	size_t first = 0, nr = 0;
	uint64_t at = 0;

	while (first < z->m->params.nr && p[first].group != group)
		first++;
	while (first + nr < z->m->params.nr && p[first + nr].group == group)
		nr++;
	for (size_t i = 0; i < nr; i++) {
		size_t k = first + ck_split_dealt(i, nr, z->count);

		pos[k] = at;
		if (!ck_add_ok(at, p[k].numel, &at))
			return -EINVAL;
	}
	return 0;
}

/* The file of a rank that says otherwise than parameters at @pos; or NULL. */
static const struct deepspeed_rank *find_other(const struct deepspeed_zero *z,
					       uint32_t group, uint64_t size,
					       const uint64_t *pos, bool *any)
{
	for (size_t i = 0; i < z->ranks.nr; i++) {
		const struct deepspeed_rank *r = &z->ranks.v[i];

		for (size_t k = 0; r->usable && k < r->slices.nr; k++) {
			const struct deepspeed_slice *s = &r->slices.v[k];
			const struct deepspeed_param *p =
				&z->m->params.v[s->param];
			uint64_t lo, hi, at;

			if (p->group != group || !s->numel)
				continue;
			*any = true;
			if (r->bad_slices ||
			    !ck_split_meet(size, i, pos[s->param], p->numel,
					   &lo, &hi, &at) ||
			    at != s->start || hi - lo != s->numel)
				return r;
		}
	}
	return NULL;
}

/*
 * Whether the slice tables of all ranks say of a group what z->pos says; *any:
 * they say something.  -EINVAL with a line in @why where they contradict.
 */
static int check_slices(struct deepspeed_zero *z, uint32_t group, uint64_t size,
			bool *any, struct ck_err *why)
{
	const struct deepspeed_rank *r =
		find_other(z, group, size, z->pos, any);
	ck_auto_free uint64_t *pos = NULL;

	if (!r)
		return 0;
	pos = calloc(z->m->params.nr + 1, sizeof(*pos));
	if (!pos)
		return ck_no_memory(why);
	if (undo_round_robin(z, group, pos) ||
	    find_other(z, group, size, pos, any))
		return ck_fail(why, EINVAL,
			       "%s: param_slice_mappings of group %" PRIu32
			       " is no partition of %" PRIu64
			       " elements in the order of param_shapes",
			       r->name, group, size);
	z->undone = true;
	return 0;
}

/* ---- groups ---- */

/*
 * The size of a partition: all vectors of all ranks have it, but those at the
 * end, where padding may be cut off; of a small group these are most of them.
 * The longest is whole if it is the first rank's, or if another is as long.
 */
static int find_size(struct deepspeed_zero *z, struct deepspeed_vec *v,
		     uint32_t group, struct ck_err *why)
{
	bool sure = z->count == 1;
	size_t of = 0; /* whose the longest is */
	int ret;

	for (size_t r = 0; r < z->ranks.nr; r++)
		for (uint32_t s = 0; s < z->states.nr; s++) {
			const struct deepspeed_flat *f = flat_of(v, r, s);

			if (!f)
				continue;
			if (f->run.len > v->size) {
				sure = !r;
				of = r;
			}
			sure |= f->run.len == v->size && r != of;
			v->size = CK_MAX(v->size, f->run.len);
		}
	ret = v->size ? check_slices(z, group, v->size, &sure, why) : 0;
	if (ret || !v->size || sure)
		return ret;
	return ck_fail(
		why, EINVAL,
		"group %u: how large a partition is follows from no file that is there",
		group);
}

/* What rank @r has of @need elements, without padding. */
static uint64_t left_of(uint64_t need, uint64_t r, uint64_t size)
{
	uint64_t before;

	if (!ck_mul_ok(r, size, &before) || before >= need)
		return 0;
	return CK_MIN(need - before, size);
}

/* That what the parameters need is what the partitions have. */
static int check_size(const struct deepspeed_zero *z,
		      const struct deepspeed_vec *v, uint32_t group,
		      uint64_t need, struct ck_err *why)
{
	uint64_t all;

	for (size_t r = 0; r < z->ranks.nr; r++)
		for (uint32_t s = 0; s < z->states.nr; s++) {
			const struct deepspeed_flat *f = flat_of(v, r, s);

			if (f && r + 1 < z->count && f->run.len != v->size &&
			    f->run.len != left_of(need, r, v->size))
				return ck_fail(
					why, EINVAL,
					"%s: a vector of %" PRIu64
					" elements in group %u, where others have %" PRIu64,
					z->ranks.v[r].name, f->run.len, group,
					v->size);
		}
	if (!ck_mul_ok(v->size, z->count, &all) || all < need ||
	    all - need > MAX_SLACK * z->count)
		return ck_fail(why, EINVAL,
			       "group %u needs %" PRIu64
			       " elements by param_shapes in %s, and %" PRIu64
			       " partitions have %" PRIu64 " each",
			       group, need, z->m->f.s->name, z->count, v->size);
	return 0;
}

static int make_group(struct deepspeed_zero *z, uint32_t group, uint64_t need,
		      struct ck_err *err)
{
	struct deepspeed_vec *v = &z->vecs.v[group];
	struct ck_err why = { 0 };
	int ret = 0;

	v->each = z->stage3;
	v->count = z->ranks.nr;
	v->of = ck_arena_alloc(&z->ld->mem, v->count * sizeof(*v->of));
	if (!v->of)
		return ck_no_memory(err);
	for (size_t r = 0; r < z->ranks.nr; r++)
		v->of[r] = (struct deepspeed_member){ &z->ranks.v[r], group };
	if (!v->each)
		ret = find_size(z, v, group, &why);
	if (!ret && v->size)
		ret = check_size(z, v, group, need, &why);
	if (!ret || ret == -ENOMEM)
		return ret ? ck_fail(err, ENOMEM, "%s", why.msg) : 0;
	v->size = 0;
	return deepspeed_problem(z->ld, CK_ERROR, NULL, err,
				 "%s: it is not read", why.msg);
}

/* The counts of unused elements that a rank says; or NULL. */
static const uint64_t *paddings(const struct deepspeed_zero *z)
{
	for (size_t r = 0; r < z->ranks.nr; r++)
		if (z->ranks.v[r].usable &&
		    z->ranks.v[r].paddings.nr == z->m->params.nr)
			return z->ranks.v[r].paddings.v;
	return NULL;
}

/* Where each parameter begins in its group's vector. */
static int place_params(struct deepspeed_zero *z, struct ck_err *err)
{
	const struct deepspeed_param *p = z->m->params.v;
	const uint64_t *pad = paddings(z);
	size_t nr = z->m->params.nr;
	uint64_t at = 0, step;
	int ret = 0;

	for (size_t i = 0; i < nr && !ret; i++) {
		step = z->stage3 ? CK_DIV_UP(p[i].numel, z->count) : p[i].numel;
		z->pos[i] = at;
		if (!ck_add_ok(at, step, &at) ||
		    (!z->stage3 && pad && !ck_add_ok(at, pad[i], &at)))
			return ck_fail(err, EINVAL, "%s: param_shapes overflow",
				       z->m->f.s->name);
		if (i + 1 < nr && p[i + 1].group == p[i].group)
			continue;
		ret = make_group(z, p[i].group, at, err);
		at = z->stage3 ? at : 0;
	}
	return ret;
}

/* ---- parts ---- */

/* What of a parameter at @pos member @k has; false: nothing. */
static bool piece_of(const struct deepspeed_vec *v, uint64_t k, uint64_t pos,
		     uint64_t numel, uint64_t *lo, uint64_t *hi, uint64_t *at)
{
	const struct ck_split each = { .how = CK_SIZES_CEIL, .nr = v->count };
	uint64_t len;

	if (!v->each)
		return ck_split_meet(v->size, k, pos, numel, lo, hi, at);
	*at = pos;
	if (ck_split_part(&each, numel, k, lo, &len, NULL))
		return false;
	*hi = *lo + len;
	return len;
}

/* What member @k has of it: elements [lo, hi), from @at on in its vectors. */
static int give_member(struct ck_asm *a, const struct deepspeed_vec *v,
		       uint64_t k, struct ck_asm_tensor *t,
		       const struct ck_cut *cut, uint32_t state, uint64_t lo,
		       uint64_t hi, uint64_t at, struct ck_err *err)
{
	const struct deepspeed_rank *r = v->of[k].r;
	struct ck_asm_run gone = { at, hi - lo, { .dtype = t->dtype } };
	uint32_t file = r ? ck_asm_file(a, r->name, r->dp) : 0;
	int ret = file == CK_NONE ? ck_no_memory(err) : 0;

	if (!ret && r && r->absent) {
		gone.x.src = r->src;
		return ck_cut_give_run(cut, a, t, file, lo, hi, at, &gone, err);
	}
	for (size_t i = 0; i < nr_flats(v, k) && !ret; i++)
		if (flat_at(v, k, i, state))
			ret = ck_cut_give_run(cut, a, t, file, lo, hi, at,
					      &flat_at(v, k, i, state)->run,
					      err);
	return ret;
}

static int give_state(struct ck_asm *a, const struct deepspeed_vec *v,
		      struct ck_asm_tensor *t, const struct ck_cut *cut,
		      uint32_t state, uint64_t pos, uint64_t numel,
		      struct ck_err *err)
{
	uint64_t k = v->each ? 0 : pos / v->size, lo, hi, at;
	int ret = 0;

	if (ck_asm_declare(a, t, (uint8_t)dtype_of(v, state), cut->whole,
			   cut->rank))
		return ck_no_memory(err);
	/* who comes after one without has none either */
	for (;
	     !ret && k < v->count && piece_of(v, k, pos, numel, &lo, &hi, &at);
	     k++)
		ret = give_member(a, v, k, t, cut, state, lo, hi, at, err);
	return ret;
}

int ck_deepspeed_states_give(struct ck_asm *a, const struct deepspeed_zero *z,
			     const struct deepspeed_states *of,
			     const struct ck_cut *cut, struct ck_err *err)
{
	int ret = 0;

	for (uint32_t s = 0; s < of->nr && !ret; s++) {
		struct ck_asm_tensor *t;

		if (!dtype_of(of->vec, s))
			continue;
		t = ck_deepspeed_tensor(a, z->states.v[s].s, of->name, of->len);
		ret = !t ? ck_no_memory(err) :
		      of->why.code ?
			   ck_asm_failed(a, t, -of->why.code, &of->why, err) :
			   give_state(a, of->vec, t, cut, s, of->pos, of->numel,
				      err);
	}
	return ret;
}

/* Parameter @i under the name of its own, or an alias. */
static int add_param(struct deepspeed_zero *z, struct ck_asm *a, size_t i,
		     const char *name, size_t len, size_t nr_states,
		     struct ck_err *err)
{
	const struct deepspeed_param *p = &z->m->params.v[i];
	struct deepspeed_states of = { .vec = &z->vecs.v[p->group],
				       .name = name,
				       .len = len,
				       .nr = nr_states,
				       .pos = z->pos[i],
				       .numel = p->numel };
	ck_auto_cut struct ck_cut cut = { 0 };
	uint64_t shape[CK_MAX_RANK];
	unsigned rank;

	if (!of.vec->each && !of.vec->size)
		return 0;
	if (!ck_pq_dims(z->m->f.ts.pickle, p->shape, "", shape, &rank))
		return 0; /* model.c has seen it before */
	ck_deepspeed_cut(z->m, p->name, p->name_len, shape, rank, &cut,
			 &of.why);
	return ck_deepspeed_states_give(a, z, &of, &cut, err);
}

/* Those that no stage before this one has. */
static int add_params(struct deepspeed_zero *z, struct ck_err *err)
{
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(z->ld);
	int ret = 0;

	for (size_t i = 0; i < z->m->params.nr && !ret; i++) {
		const struct deepspeed_param *p = &z->m->params.v[i];

		if (!ck_strmap_has(&z->ld->trained, p->name, p->name_len))
			ret = add_param(z, &a, i, p->name, p->name_len,
					z->states.nr, err);
	}
	return ret ? ret : ck_asm_join(&a, err);
}

static int add_aliases(struct deepspeed_zero *z, struct ck_err *err)
{
	ck_auto_asm struct ck_asm a = ck_deepspeed_asm(z->ld);
	int ret = 0;

	for (uint32_t i = 0; i < z->m->aliases.nr && !ret; i++) {
		const struct ck_strmap_key *l = &z->m->aliases.v[i];
		uint32_t at;

		if (ck_deepspeed_holder(z->m, i, &at) && at != CK_STRMAP_NONE)
			ret = add_param(z, &a, at, l->s, l->len, 1, err);
	}
	return ret ? ret : ck_asm_join(&a, err);
}

int ck_deepspeed_zero_add(struct deepspeed_zero *z, struct ck_err *err)
{
	size_t nr = z->m->params.nr;
	int ret = 0;

	if (!z->ranks.nr || !nr)
		return 0;
	z->pos = calloc(nr, sizeof(*z->pos));
	if (!z->pos || !ck_vec_reserve(&z->vecs, z->m->nr_groups))
		return ck_no_memory(err);
	z->vecs.nr = z->m->nr_groups;
	memset(z->vecs.v, 0, z->vecs.nr * sizeof(*z->vecs.v));
	ret = place_params(z, err);
	/* whoever merges by that table, as DeepSpeed's converter does, mixes names up */
	if (!ret && z->undone)
		ret = deepspeed_problem(
			z->ld, CK_NOTE, NULL, err,
			"param_slice_mappings of model-parallel rank %u are in the order before round_robin_gradients, as some releases wrote them: the vectors are as param_shapes says",
			z->m->mp);
	if (!ret)
		ret = ck_deepspeed_master_check(z, err);
	if (!ret)
		ret = add_params(z, err);
	return ret ? ret : add_aliases(z, err);
}
