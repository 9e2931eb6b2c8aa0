/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - pieces of the ranks' files to tensors, by their layouts */
#include "core/format/mindspore/mindspore.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ABSENT 8

struct merge {
	struct mindspore_set *s;
	const struct mindspore_tensor **slice; /* by number: the first of it */
	size_t nr_slices;
};

static int refuse_tensor(struct merge *m, const struct mindspore_tensor *t,
			 const char *why, struct ck_err *err)
{
	const struct ck_strmap_key *k = &m->s->names.v[t->name];

	return ck_builder_refuse(m->s->b, 0, k->s, k->len, err, "%s", why);
}

int ck_mindspore_other_world(const struct mindspore_set *s, size_t ranks,
			     const char *sign, struct ck_err *err)
{
	return ck_fail(
		err, EINVAL,
		"%s: the strategy is for %" PRIu64
		" ranks, and there are %zu, as of a run on so many devices%s%s: give that run's strategy file with -o strategy=FILE",
		s->dir->path, s->strategy.devices * s->strategy.nr_stages,
		ranks, sign ? "; " : "", sign ? sign : "");
}

/* The tensor cannot be had; or, in doubt about the strategy, nothing can. */
static int give_up(struct merge *m, const struct mindspore_tensor *t,
		   const char *why, struct ck_err *err)
{
	const struct mindspore_set *s = m->s;

	return s->smaller ?
		       ck_mindspore_other_world(
			       s, (size_t)s->file.v[s->file.nr - 1]->rank + 1,
			       why, err) :
		       refuse_tensor(m, t, why, err);
}

/* ---- parts ---- */

/* The upper half of each float32 is the bfloat16 that it was made from. */
static int add_wide(struct merge *m, struct ck_part *part, struct ck_err *err)
{
	int64_t stride[CK_MAX_RANK + 2], step = 2;

	for (unsigned d = part->grid ? part->grid_rank : part->rank; d-- > 0;) {
		stride[d] = step;
		/* all fit: bytes is 4 times it */
		step *= (int64_t)part->len[d];
	}
	part->off += 2;
	part->stride = stride;
	return ck_builder_add(m->s->b, part, err);
}

static int add_runs(struct merge *m, const struct mindspore_tensor *t,
		    struct ck_part *part, struct ck_err *err)
{
	uint64_t elem = ck_dtype_info(t->dtype)->size, flat[2] = { 0, 0 };
	int ret = 0;

	part->flat = flat;
	for (uint32_t i = 0; i < t->nr_runs && !ret; i++) {
		if (t->run[i].len % elem)
			return refuse_tensor(
				m, t,
				"one of its records ends inside an element",
				err);
		flat[0] = flat[1];
		flat[1] += t->run[i].len / elem;
		part->off = t->run[i].off;
		ret = ck_builder_add(m->s->b, part, err);
	}
	return ret;
}

static int add_part(struct merge *m, const struct mindspore_tensor *t,
		    const struct mindspore_place *p, struct ck_err *err)
{
	const struct ck_strmap_key *k = &m->s->names.v[t->name];
	struct ck_part part = {
		.name = k->s,
		.name_len = k->len,
		.src = t->file->src,
		.dtype = t->dtype,
		.rank = p->rank,
		.shape = p->shape,
		.grid_rank = p->grid_rank,
		.grid = p->grid_rank ? p->grid : NULL,
		.start = p->start,
		.len = p->len,
		.overlap_ok = t->nr_runs == 1,
	};

	if (t->flags & MINDSPORE_DAMAGED || !t->nr_runs) {
		part.overlap_ok = false;
		return ck_builder_declare(m->s->b, &part, err);
	}
	part.off = t->run[0].off;
	if (t->flags & MINDSPORE_WIDE)
		return add_wide(m, &part, err);
	return t->nr_runs > 1 ? add_runs(m, t, &part, err) :
				ck_builder_add(m->s->b, &part, err);
}

static int add_object(struct merge *m, const struct mindspore_tensor *t,
		      struct ck_err *err)
{
	struct mindspore_set *s = m->s;
	const char *key = s->names.v[t->name].s;
	struct ck_object_in o = { .src = t->file->src, .enc = CK_ENC_RAW };

	if (t->nr_runs != 1)
		return 0;
	o.name = s->file.nr == 1 ? key :
				   ck_arena_fmt(&s->mem, "rank_%u/%s",
						t->file->rank, key);
	if (!o.name)
		return ck_no_memory(err);
	o.name_len = strlen(o.name);
	o.off = t->run[0].off;
	o.len = t->bytes;
	return ck_range_ok(o.off, o.len, UINT64_C(1) << 61) ?
		       ck_builder_object(s->b, &o, err) :
		       0;
}

/* ---- copies ---- */

/* They must agree, as far as their bytes were looked at. */
static bool copies_agree(const struct mindspore_tensor *a,
			 const struct mindspore_tensor *b)
{
	return !(a->flags & b->flags &
		 (MINDSPORE_HASHED | MINDSPORE_SAMPLED)) ||
	       a->hash == b->hash || (a->flags | b->flags) & MINDSPORE_DAMAGED;
}

/* *ok: it is the first of its slice, or as that. */
static int check_copy(struct merge *m, const struct mindspore_tensor *t,
		      uint64_t slice, bool *ok, struct ck_err *err)
{
	const struct mindspore_tensor *first =
		slice < m->nr_slices ? m->slice[slice] : t;
	bool are_copies = t->item || m->s->integrated;
	char why[CK_ERR_MAX];

	if (!first)
		first = m->slice[slice] = t;
	*ok = first == t || copies_agree(first, t) ||
	      (are_copies && ck_dir_any_copy(m->s->dir));
	if (*ok)
		return 0;
	snprintf(
		why, sizeof(why),
		are_copies ?
			"%s and %s hold copies of it that differ (unshard heal)" :
			"%s and %s hold different ones, and no layout of the strategy says that they are parts: -o strategy=FILE does, or -o integrated=yes that they are copies",
		first->file->name, t->file->name);
	return give_up(m, t, why, err);
}

/* ---- one name ---- */

static bool is_cut(const struct ck_strategy_layout *l)
{
	uint64_t slices, shards;

	return ck_strategy_cuts(l, &slices, &shards, NULL) || slices > 1 ||
	       shards > 1;
}

static int place_tensor(struct merge *m, const struct mindspore_tensor *t,
			struct mindspore_place *p, struct ck_err *why)
{
	static const struct ck_strategy_layout none = { .nr_dev = 1,
							.dev = { 1 } };
	const struct mindspore_set *s = m->s;
	struct ck_strategy_item *it = t->item;
	int ret;

	if (!it)
		return ck_mindspore_place(&none, MINDSPORE_WHOLE, t->dims,
					  t->rank, 0, p, why);
	it->seen++;
	if (it->why)
		return ck_fail(why, EINVAL, "%s: %s",
			       s->strategy.files.v[it->file], it->why);
	ret = ck_mindspore_place_of(s, t, p, why);
	if (!ret && *s->against && is_cut(&it->l))
		return ck_fail(why, EINVAL, "%s", s->against);
	return ret ? ck_wrap(why, ret, "%s", t->file->name) : 0;
}

/* *go: it fits, as those before it. */
static int add_tensor(struct merge *m, const struct mindspore_tensor *t,
		      bool *go, struct ck_err *err)
{
	struct mindspore_place p;
	struct ck_err why;
	int ret = place_tensor(m, t, &p, &why);

	*go = false;
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	if (ret)
		return give_up(m, t, why.msg, err);
	ret = check_copy(m, t, p.slice, go, err);
	return ret || !*go ? ret : add_part(m, t, &p, err);
}

/* It was saved, whatever becomes of it. */
static void see_all(const struct mindspore_tensor *t)
{
	for (; t; t = t->next)
		if (t->item)
			t->item->seen++;
}

static int add_name(struct merge *m, uint32_t name, struct ck_err *err)
{
	const struct mindspore_set *s = m->s;
	const struct mindspore_tensor *first = s->name.v[name].first, *t;
	uint32_t stage = CK_STRATEGY_NONE;
	bool go = true, copies;
	int ret = 0;

	for (t = first; t; t = t->next)
		if (t->fault) {
			see_all(first);
			return refuse_tensor(m, first, t->fault, err);
		}
	ret = ck_mindspore_are_copies(s, name, &copies, err);
	if (!ret && copies) {
		see_all(first);
		return give_up(
			m, first,
			"the strategy says that the optimizer's shards of it differ, and each is the same as another, as copies are: it may be another run's strategy (-o integrated=no takes them as shards)",
			err);
	}
	for (t = first; t && !ret && go; t = t->next) {
		/* slices are counted by each layout for itself */
		if (t->item ? t->item->l.stage != stage : t == first)
			memset(m->slice, 0, m->nr_slices * sizeof(*m->slice));
		stage = t->item ? t->item->l.stage : stage;
		ret = t->flags & MINDSPORE_OPAQUE ? add_object(m, t, err) :
						    add_tensor(m, t, &go, err);
	}
	return ret;
}

/* ---- what the strategy describes and no file has ---- */

/* Of many it is said once: it was not meant to be saved, as of adapters. */
static int report_few(struct mindspore_set *s, uint64_t absent, size_t first,
		      struct ck_err *err)
{
	const struct ck_strategy *st = &s->strategy;
	return mindspore_report(
		s->b, CK_WARNING, NULL, err,
		"the strategy describes %" PRIu64
		" tensors, of which no file holds %" PRIu64
		" (such as %s): a save of some of them only, as of an adapter, or files are lost",
		(uint64_t)st->item.nr, absent,
		st->names.v[st->item.v[first].name].s);
}

static int report_absent(struct mindspore_set *s, struct ck_err *err)
{
	const struct ck_strategy *st = &s->strategy;
	uint64_t absent = 0;
	size_t first = 0;
	int ret = 0;

	for (size_t i = st->item.nr; i-- > 0;)
		if (!st->item.v[i].seen) {
			absent++;
			first = i;
		}
	if (absent > MAX_ABSENT && !s->missing)
		return report_few(s, absent, first, err);
	for (size_t i = 0; i < st->item.nr && !ret; i++) {
		const struct ck_strmap_key *k =
			&st->names.v[st->item.v[i].name];
		const struct ck_problem_in p = {
			.severity = s->missing ? CK_ERROR : CK_WARNING,
			.tensor = k->s,
			.tensor_len = k->len,
		};

		if (!st->item.v[i].seen)
			ret = ck_builder_problem(
				s->b, &p, err,
				"the strategy describes it, and no file of stage %u holds it",
				st->item.v[i].l.stage);
	}
	return ret;
}

int ck_mindspore_merge(struct mindspore_set *s, struct ck_err *err)
{
	struct merge m = { .s = s };
	int ret;

	m.nr_slices = (size_t)CK_MIN(CK_MAX(s->strategy.devices, UINT64_C(1)),
				     UINT64_C(1) << 20);
	m.slice = calloc(m.nr_slices, sizeof(*m.slice));
	if (!m.slice)
		return ck_no_memory(err);
	ret = ck_mindspore_doubt(s, err);
	for (uint32_t i = 0; i < s->name.nr && !ret; i++)
		ret = add_name(&m, i, err);
	free(m.slice);
	return ret ? ret : report_absent(s, err);
}
