/* SPDX-License-Identifier: Apache-2.0 */
/*
 * against.c - what the bytes of ranks say against a strategy
 *
 * Shapes of another run's slices may fit, or be the same.  But where that run
 * has copies this one has slices, or the other way round, and it is of other
 * parameters: then what fits does so by chance.
 */
#include "core/format/mindspore/set.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEN (CK_MS_HASHED | CK_MS_SAMPLED)

static const uint64_t *dims_of(const struct ck_ms_set *s,
			       const struct ck_ms_tensor *t)
{
	return s->dims.v + t->dims;
}

static uint32_t stage_of(const struct ck_ms_set *s,
			 const struct ck_ms_tensor *t)
{
	return (uint32_t)(s->file.v[t->file].rank / s->strategy.devices);
}

static const struct ck_strategy_item *item_of(const struct ck_ms_set *s,
					      const struct ck_ms_tensor *t)
{
	const struct ck_strmap_key *k = &s->names.v[t->name];

	return ck_strategy_find(&s->strategy, k->s, k->len, stage_of(s, t));
}

/* Whether its bytes tell anything: one value is the same wherever it is. */
static bool tells(const struct ck_ms_tensor *t)
{
	return !t->why && t->flags & SEEN &&
	       !(t->flags & (CK_MS_ALIKE | CK_MS_OPAQUE | CK_MS_SPOILED));
}

static bool same(const struct ck_ms_set *s, const struct ck_ms_tensor *a,
		 const struct ck_ms_tensor *b)
{
	return a->rank == b->rank && a->hash == b->hash &&
	       !memcmp(dims_of(s, a), dims_of(s, b),
		       a->rank * sizeof(uint64_t));
}

/* ---- copies that are none ---- */

/* What should be copies of one slice, of one stage. */
struct group {
	const struct ck_ms_tensor *first;
	uint32_t nr, nr_same;
};

/*
 * One file that is damaged, or of another save, differs from its copies; it
 * does not make all of them differ.
 */
static bool none_agree(const struct group *g, size_t nr)
{
	size_t bad = 0;

	for (size_t i = 0; i < nr; i++) {
		if (g[i].nr > 1 && g[i].nr_same > 1)
			return false;
		bad += g[i].nr > 1 ? g[i].nr - 1 : 0;
	}
	return bad > 1;
}

static bool copies_differ(const struct ck_ms_set *s, uint32_t name,
			  struct group *g, size_t nr)
{
	const struct ck_ms_tensor *t;
	uint32_t stage = CK_STRATEGY_NONE;
	struct ck_ms_piece p;
	enum ck_ms_how how;

	memset(g, 0, nr * sizeof(*g));
	for (uint32_t i = s->name.v[name].first; i != CK_STRATEGY_NONE;
	     i = t->next) {
		const struct ck_strategy_item *it;
		struct group *of;

		t = &s->tensor.v[i];
		it = item_of(s, t);
		if (!it || it->why || !tells(t) ||
		    ck_ms_how_of(s, t, &it->l, &how, NULL) ||
		    ck_ms_place(&it->l, how, dims_of(s, t), t->rank,
				s->file.v[t->file].rank, &p, NULL) ||
		    p.slice >= nr)
			continue;
		if (stage != CK_STRATEGY_NONE && stage != it->l.stage &&
		    none_agree(g, nr))
			return true;
		if (stage != it->l.stage)
			memset(g, 0, nr * sizeof(*g));
		stage = it->l.stage;
		of = &g[p.slice];
		of->first = of->nr ? of->first : t;
		of->nr++;
		of->nr_same += same(s, of->first, t);
	}
	return none_agree(g, nr);
}

/* ---- another run's parameters ---- */

/* Parts of something, which the strategy does not know. */
static bool is_unknown_cut(const struct ck_ms_set *s, uint32_t name)
{
	const struct ck_ms_tensor *first = NULL;

	for (uint32_t i = s->name.v[name].first; i != CK_STRATEGY_NONE;
	     i = s->tensor.v[i].next) {
		const struct ck_ms_tensor *t = &s->tensor.v[i];

		/* programs save numbers of their own with each rank */
		if (item_of(s, t) || !tells(t) || !t->rank ||
		    t->bytes <= ck_dtype_info(t->dtype)->size)
			continue;
		if (!first || stage_of(s, first) != stage_of(s, t))
			first = t;
		else if (!same(s, first, t))
			return true;
	}
	return false;
}

/* The parameter itself, or one that what is so called would be a state of. */
static bool is_saved(const struct ck_ms_set *s, const char *name, size_t len)
{
	for (;;) {
		const char *dot = memchr(name, '.', len);

		if (ck_strmap_get(&s->names, name, len) != CK_STRMAP_NONE)
			return true;
		if (!dot)
			return false;
		len -= (size_t)(dot + 1 - name);
		name = dot + 1;
	}
}

/* A parameter of the strategy of which nothing was saved; NULL: there is none. */
static const char *not_saved(const struct ck_ms_set *s)
{
	for (size_t i = 0; i < s->strategy.names.nr; i++) {
		const struct ck_strmap_key *k = &s->strategy.names.v[i];

		if (!is_saved(s, k->s, k->len))
			return k->s;
	}
	return NULL;
}

static bool are_slices(const struct ck_ms_set *s)
{
	const char *said = ck_opts_get(s->dir->opts, "integrated");

	return said && !strcmp(said, "no");
}

static void look_for_others(const struct ck_ms_set *s, char *why, size_t room)
{
	const char *other = are_slices(s) ? NULL : not_saved(s);

	for (uint32_t i = 0; i < s->name.nr && other; i++) {
		if (!is_unknown_cut(s, i))
			continue;
		snprintf(
			why, room,
			"the strategy is of other parameters: it does not know %.200s, which was cut, and %.200s, which it does, was not saved; give this run's strategy file with -o strategy=FILE (-o integrated=no uses this one)",
			s->names.v[i].s, other);
		return;
	}
}

int ck_ms_against(const struct ck_ms_set *s, char *why, size_t room,
		  struct ck_err *err)
{
	size_t nr = (size_t)CK_MIN(s->strategy.devices, UINT64_C(1) << 20);
	ck_auto_free struct group *g = calloc(nr + 1, sizeof(*g));

	if (!g)
		return ck_mindspore_no_memory(err);
	*why = '\0';
	if (!s->strategy.devices)
		return 0;
	for (uint32_t i = 0; i < s->name.nr; i++) {
		if (!copies_differ(s, i, g, nr))
			continue;
		snprintf(
			why, room,
			"of %.200s no copies that the strategy says there are agree: it is of another run, or the ranks' files are of several saves; give this run's strategy file with -o strategy=FILE",
			s->names.v[i].s);
		return 0;
	}
	look_for_others(s, why, room);
	return 0;
}

/* ---- shards that are none ---- */

/* Where @t is, with and without its optimizer's shards; false: it has none. */
static bool is_shard(const struct ck_ms_set *s, const struct ck_ms_tensor *t,
		     uint64_t *slice, uint64_t *shard)
{
	const struct ck_strategy_item *it = item_of(s, t);
	uint32_t rank = s->file.v[t->file].rank;
	struct ck_ms_piece p;
	enum ck_ms_how how;

	/* a shape tells without them */
	if (!it || it->why || !it->l.shards || it->l.has_shape || !tells(t) ||
	    ck_ms_how_of(s, t, &it->l, &how, NULL) || how != CK_MS_CUT ||
	    ck_ms_place(&it->l, CK_MS_UNSHARDED, dims_of(s, t), t->rank, rank,
			&p, NULL))
		return false;
	*slice = p.slice;
	if (ck_ms_place(&it->l, CK_MS_CUT, dims_of(s, t), t->rank, rank, &p,
			NULL))
		return false;
	*shard = p.slice;
	return true;
}

struct shard {
	uint64_t slice, shard, hash;
	uint32_t stage;
};

static int by_value(const void *pa, const void *pb)
{
	const struct shard *a = pa, *b = pb;

	if (a->stage != b->stage)
		return a->stage < b->stage ? -1 : 1;
	if (a->slice != b->slice)
		return a->slice < b->slice ? -1 : 1;
	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	return (a->shard > b->shard) - (a->shard < b->shard);
}

/* Whether each of them is the same as another shard of its slice. */
static bool all_twice(struct shard *v, size_t nr)
{
	size_t end;

	qsort(v, nr, sizeof(*v), by_value);
	for (size_t i = 0; i < nr; i = end) {
		for (end = i + 1; end < nr && v[end].stage == v[i].stage &&
				  v[end].slice == v[i].slice &&
				  v[end].hash == v[i].hash;)
			end++;
		if (v[end - 1].shard == v[i].shard)
			return false;
	}
	return nr;
}

int ck_ms_shards_are_copies(const struct ck_ms_set *s, uint32_t name, bool *are,
			    struct ck_err *err)
{
	CK_VEC(struct shard) v = { 0 };
	uint64_t slice, shard;

	*are = false;
	if (!s->strategy.devices || are_slices(s))
		return 0;
	for (uint32_t i = s->name.v[name].first; i != CK_STRATEGY_NONE;
	     i = s->tensor.v[i].next) {
		const struct ck_ms_tensor *t = &s->tensor.v[i];

		if (!is_shard(s, t, &slice, &shard))
			continue;
		if (!ck_vec_reserve(&v, 1)) {
			free(v.v);
			return ck_mindspore_no_memory(err);
		}
		v.v[v.nr++] =
			(struct shard){ slice, shard, t->hash, stage_of(s, t) };
	}
	*are = v.nr && all_twice(v.v, v.nr);
	free(v.v);
	return 0;
}
