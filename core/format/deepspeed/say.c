/* SPDX-License-Identifier: Apache-2.0 */
/*
 * say.c - from partitions to parts of parameters
 *
 *   stages 1, 2:  the parameters of a group one after another, the whole cut
 *                 into as many equal partitions as there are ranks
 *   stage 3:      each parameter cut by itself into ceil(n / ranks) elements;
 *                 the pieces of a rank one after another
 *
 * What is left over at the end of either is padding, and never read.
 */
#include "core/format/deepspeed/priv.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* More than this many unused elements a rank is no alignment. */
#define MAX_SLACK 512

void ck_ds_piece3(uint64_t numel, uint64_t r, uint64_t nr, uint64_t *lo,
		  uint64_t *hi)
{
	uint64_t len = CK_DIV_UP(numel, nr);

	*lo = len && r > numel / len ? numel : CK_MIN(r * len, numel);
	*hi = CK_MIN(*lo + len, numel);
}

bool ck_ds_piece12(uint64_t pos, uint64_t numel, uint64_t size, uint64_t r,
		   uint64_t *lo, uint64_t *hi, uint64_t *at)
{
	uint64_t first = CK_MAX(pos, r * size);
	uint64_t end = CK_MIN(pos + numel, (r + 1) * size);

	if (first >= end)
		return false;
	*lo = first - pos;
	*hi = end - pos;
	*at = first - r * size;
	return true;
}

int ck_ds_check_rank3(const struct ck_ds_zero *z, const struct ck_ds_rank *r,
		      struct ck_err *why)
{
	uint64_t want = 0, have = 0;

	for (size_t i = 0; i < z->m->params.nr; i++)
		if (!ck_add_ok(want,
			       CK_DIV_UP(z->m->params.v[i].numel, z->count),
			       &want))
			return ck_fail(why, EINVAL, "param_shapes overflow");
	for (size_t i = 0; i < r->flats.nr && !r->flats.v[i].state; i++)
		have += r->flats.v[i].run.len;
	if (want != have)
		return ck_fail(
			why, EINVAL,
			"its vectors have %" PRIu64
			" elements, where param_shapes in %s make %" PRIu64
			" over %" PRIu64 " ranks: it is not read",
			have, z->m->f.s->name, want, z->count);
	return 0;
}

static const struct ck_ds_flat *find_flat(const struct ck_ds_rank *r,
					  uint32_t state, uint32_t group)
{
	for (size_t i = 0; r->usable && i < r->flats.nr; i++)
		if (r->flats.v[i].state == state &&
		    r->flats.v[i].group == group)
			return &r->flats.v[i];
	return NULL;
}

/*
 * The size of a partition: all vectors of all ranks have it, but those at the
 * end, where padding may be cut off; of a small group these are most of them.
 * The longest is whole if it is the first rank's, or if another is as long.
 */
int ck_ds_group_size(struct ck_ds_zero *z, uint32_t group, uint64_t *size,
		     struct ck_err *why)
{
	bool sure = z->count == 1, undone = false;
	size_t of = 0; /* whose the longest is */
	int ret;

	*size = 0;
	for (size_t r = 0; r < z->ranks.nr; r++)
		for (uint32_t s = 0; s < z->nr_states; s++) {
			const struct ck_ds_flat *f =
				find_flat(&z->ranks.v[r], s, group);

			if (!f)
				continue;
			if (f->run.len > *size) {
				sure = !r;
				of = r;
			}
			sure |= f->run.len == *size && r != of;
			*size = CK_MAX(*size, f->run.len);
		}
	ret = *size ? ck_ds_slices_check(z, group, *size, &sure, &undone, why) :
		      0;
	if (ret)
		return ret;
	z->undone |= undone;
	if (*size && !sure)
		return ck_fail(
			why, EINVAL,
			"group %u: how large a partition is follows from no file that is there",
			group);
	return 0;
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
static int check_group(const struct ck_ds_zero *z, uint32_t group,
		       uint64_t need, uint64_t size, struct ck_err *why)
{
	uint64_t all;

	for (size_t r = 0; r < z->ranks.nr; r++)
		for (uint32_t s = 0; s < z->nr_states; s++) {
			const struct ck_ds_flat *f =
				find_flat(&z->ranks.v[r], s, group);

			if (f && r + 1 < z->count && f->run.len != size &&
			    f->run.len != left_of(need, r, size))
				return ck_fail(
					why, EINVAL,
					"%s: a vector of %" PRIu64
					" elements in group %u, where others have %" PRIu64,
					z->ranks.v[r].file->name, f->run.len,
					group, size);
		}
	if (!ck_mul_ok(size, z->count, &all) || all < need ||
	    all - need > MAX_SLACK * z->count)
		return ck_fail(why, EINVAL,
			       "group %u needs %" PRIu64
			       " elements by param_shapes in %s, and %" PRIu64
			       " partitions have %" PRIu64 " each",
			       group, need, z->m->f.s->name, z->count, size);
	return 0;
}

static int settle_group(struct ck_ds_zero *z, uint32_t group, uint64_t need,
			struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_ERROR };
	struct ck_err why = { 0 };
	uint64_t *size = &z->group_size[group];
	int ret = ck_ds_group_size(z, group, size, &why);

	if (!ret && *size)
		ret = check_group(z, group, need, *size, &why);
	if (!ret)
		return 0;
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	*size = 0;
	return ck_builder_problem(z->b, &p, err, "%s: it is not read", why.msg);
}

/* The counts of unused elements that the ranks say; all the same, or none. */
static const uint64_t *paddings(const struct ck_ds_zero *z)
{
	const uint64_t *found = NULL;
	size_t nr = z->m->params.nr;

	for (size_t r = 0; r < z->ranks.nr; r++) {
		const struct ck_ds_rank *rank = &z->ranks.v[r];

		if (!rank->usable || rank->paddings.nr != nr)
			continue;
		if (!found)
			found = rank->paddings.v;
	}
	return found;
}

/* Where each parameter begins in its group's vector. */
static int place_params(struct ck_ds_zero *z, struct ck_err *err)
{
	const struct ck_ds_param *p = z->m->params.v;
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
		if (z->stage3 || (i + 1 < nr && p[i + 1].group == p[i].group))
			continue;
		ret = settle_group(z, p[i].group, at, err);
		at = 0;
	}
	return ret;
}

struct one {
	struct ck_ds_zero *z;
	const struct ck_ds_param *p;
	uint64_t pos;
	uint32_t state;
	const struct ck_cut *cut;
	const struct ck_str *name;
	enum ck_dtype dtype;
};

/* Elements [lo, hi), at @pos of the rank's vectors of this state. */
static int say_part(const struct one *o, const struct ck_ds_rank *r,
		    uint64_t lo, uint64_t hi, uint64_t pos, struct ck_err *err)
{
	struct ck_cut_run gone = { .at = pos, .len = hi - lo };
	int ret = 0;

	if (r->absent) {
		gone.place.src = r->src;
		gone.place.t.dtype = o->dtype;
		return ck_cut_add_run(o->cut, o->z->b, o->name->v, o->name->len,
				      lo, hi, pos, &gone, err);
	}
	for (size_t i = 0; r->usable && i < r->flats.nr && !ret; i++)
		if (r->flats.v[i].state == o->state &&
		    (o->z->stage3 || r->flats.v[i].group == o->p->group))
			ret = ck_cut_add_run(o->cut, o->z->b, o->name->v,
					     o->name->len, lo, hi, pos,
					     &r->flats.v[i].run, err);
	return ret;
}

static int say_parts12(const struct one *o, struct ck_err *err)
{
	uint64_t size = o->z->group_size[o->p->group];
	uint64_t end = o->pos + o->p->numel;
	int ret = 0;

	for (uint64_t r = o->pos / size; r * size < end && !ret; r++) {
		uint64_t lo, hi, at;

		if (r < o->z->ranks.nr &&
		    ck_ds_piece12(o->pos, o->p->numel, size, r, &lo, &hi, &at))
			ret = say_part(o, &o->z->ranks.v[r], lo, hi, at, err);
	}
	return ret;
}

static int say_parts3(const struct one *o, struct ck_err *err)
{
	int ret = 0;

	for (uint64_t r = 0; r < o->z->ranks.nr && !ret; r++) {
		uint64_t lo, hi;

		ck_ds_piece3(o->p->numel, r, o->z->count, &lo, &hi);
		if (lo < hi)
			ret = say_part(o, &o->z->ranks.v[r], lo, hi, o->pos,
				       err);
	}
	return ret;
}

/* Whether any rank has the state, and what dtype it is of. */
static bool has_state(const struct ck_ds_zero *z, const struct ck_ds_param *p,
		      uint32_t state, enum ck_dtype *dtype)
{
	for (size_t r = 0; r < z->ranks.nr; r++)
		for (size_t i = 0;
		     z->ranks.v[r].usable && i < z->ranks.v[r].flats.nr; i++) {
			const struct ck_ds_flat *f = &z->ranks.v[r].flats.v[i];

			if (f->state != state ||
			    (!z->stage3 && f->group != p->group))
				continue;
			*dtype = f->run.place.t.dtype;
			return true;
		}
	return false;
}

static int say_state(struct one *o, const char *name, size_t len,
		     struct ck_err *err)
{
	const struct ck_cut_run none = { .place.t.dtype = o->dtype };
	struct ck_str full = { 0 };
	int ret;

	ck_str_fmt(&full, "%s.", o->z->states[o->state]);
	ck_str_add(&full, name, len);
	o->name = &full;
	ret = full.failed ? ck_fail(err, ENOMEM, "no memory for a name") :
			    ck_cut_add_run(o->cut, o->z->b, full.v, full.len, 0,
					   0, 0, &none, err);
	if (!ret)
		ret = o->z->stage3 ? say_parts3(o, err) : say_parts12(o, err);
	if (!ret)
		ret = ck_ds_path(o->z->b, o->z->states[o->state], name, len,
				 &full, err);
	ck_str_free(&full);
	return ret;
}

static int refuse(struct ck_ds_zero *z, uint32_t state, const char *name,
		  size_t len, const char *why, struct ck_err *err)
{
	struct ck_str full = { 0 };
	int ret;

	ck_str_fmt(&full, "%s.", z->states[state]);
	ck_str_add(&full, name, len);
	ret = full.failed ? ck_fail(err, ENOMEM, "no memory for a name") :
			    ck_builder_refuse(z->b, 0, full.v, full.len, err,
					      "%s", why);
	ck_str_free(&full);
	return ret;
}

/* Parameter @i under the name of its own, or an alias. */
static int say_param(struct ck_ds_zero *z, size_t i, const char *name,
		     size_t len, uint32_t nr_states, struct ck_err *err)
{
	const struct ck_ds_param *p = &z->m->params.v[i];
	ck_auto_cut struct ck_cut cut = { 0 };
	struct one o = { .z = z, .p = p, .pos = z->pos[i], .cut = &cut };
	struct ck_err why = { 0 };
	uint64_t shape[CK_MAX_RANK];
	unsigned rank;
	int ret = 0, bad;

	if (!z->stage3 && !z->group_size[p->group])
		return 0;
	if (!ck_torch_size(z->m->f.ts.pickle, p->shape, shape, &rank))
		return 0; /* read_params() has seen it before */
	bad = ck_ds_cut(z->m, p->name, p->name_len, shape, rank, &cut, &why);
	if (bad == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	for (o.state = 0; o.state < nr_states && !ret; o.state++) {
		if (!has_state(z, p, o.state, &o.dtype))
			continue;
		ret = bad ? refuse(z, o.state, name, len, why.msg, err) :
			    say_state(&o, name, len, err);
	}
	return ret;
}

static int say_aliases(struct ck_ds_zero *z, struct ck_err *err)
{
	int ret = 0;

	for (size_t i = 0; i < z->m->aliases.nr && !ret; i++) {
		const struct ck_ds_alias *a = &z->m->aliases.v[i];
		uint32_t at =
			ck_strmap_get(&z->m->by_name, a->holder, a->holder_len);

		if (at != CK_STRMAP_NONE)
			ret = say_param(z, at, a->name, a->name_len, 1, err);
	}
	return ret;
}

/* Whoever merges by that table, as DeepSpeed's converter does, mixes names up. */
static int say_partial_write(struct ck_ds_zero *z, struct ck_err *err)
{
	const struct ck_problem_in p = { .severity = CK_NOTE };

	if (!z->undone)
		return 0;
	return ck_builder_problem(
		z->b, &p, err,
		"param_slice_mappings of model-parallel rank %u are in the order before round_robin_gradients, as some releases wrote them: the vectors are as param_shapes says",
		z->m->mp);
}

int ck_ds_zero_say(struct ck_ds_zero *z, const struct ck_strmap *skip,
		   struct ck_err *err)
{
	size_t nr = z->m->params.nr;
	int ret = 0;

	if (!z->ranks.nr || !nr)
		return 0;
	z->pos = calloc(nr, sizeof(*z->pos));
	z->group_size = calloc(z->m->nr_groups + 1, sizeof(*z->group_size));
	if (!z->pos || !z->group_size)
		return ck_fail(err, ENOMEM, "no memory for parameters");
	ret = place_params(z, err);
	if (!ret)
		ret = say_partial_write(z, err);
	if (!ret)
		ret = ck_ds_twin_say(z, err);
	for (size_t i = 0; i < nr && !ret; i++) {
		const struct ck_ds_param *p = &z->m->params.v[i];

		if (ck_strmap_get(skip, p->name, p->name_len) == CK_STRMAP_NONE)
			ret = say_param(z, i, p->name, p->name_len,
					z->nr_states, err);
	}
	return ret ? ret : say_aliases(z, err);
}
