/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doubt.c - whether a strategy was used, and is that of these files
 *
 * A layout does not say whether it was used: integrated_save gathers whole
 * tensors and leaves the strategy file as it is, and gradients that are being
 * accumulated are listed as sharded and stored unsharded.  The shapes of the
 * JSON form tell; without them the files' bytes must.
 *
 * Shapes of another run's slices may fit, or be the same.  But where that run
 * has copies this one has slices, or the other way round, and it is of other
 * parameters: then what fits does so by chance.  Where it has the optimizer's
 * shards and this one none, copies of a slice would be put one after the other;
 * all the same, and not of one value, they are copies.
 */
#include "core/format/mindspore/mindspore.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRADIENTS "accu_grads."

static const struct ck_strmap_key *name_of(const struct mindspore_set *s,
					   const struct mindspore_tensor *t)
{
	return &s->names.v[t->name];
}

/* ---- how a layout was used ---- */

static enum mindspore_how how_by_shape(const struct ck_strategy_layout *l,
				       const struct mindspore_tensor *t,
				       uint64_t slices, uint64_t shards)
{
	uint64_t have, want, cut, all;

	if (!ck_dims_volume(t->dims, t->rank, &have) ||
	    !ck_dims_volume(l->shape, l->shape_rank, &want) ||
	    !ck_mul_ok(have, slices, &cut) || !ck_mul_ok(cut, shards, &all) ||
	    all == want || l->nr_rows || l->field)
		return MINDSPORE_CUT;
	if (cut == want)
		return MINDSPORE_UNSHARDED;
	return have == want ? MINDSPORE_WHOLE : MINDSPORE_CUT;
}

/* Of the same rank: the parameter whose gradients these are. */
static const struct mindspore_tensor *parameter_of(
	const struct mindspore_set *s, const struct mindspore_tensor *t)
{
	const struct ck_strmap_key *k = name_of(s, t);
	size_t skip = strlen(GRADIENTS);
	uint32_t at = ck_strmap_get(&s->names, k->s + skip, k->len - skip);
	const struct mindspore_tensor *p =
		at == CK_STRMAP_NONE ? NULL : s->name.v[at].first;

	while (p && p->file->rank != t->file->rank)
		p = p->next;
	return p;
}

static int how_of_gradients(const struct mindspore_set *s,
			    const struct mindspore_tensor *t, uint64_t shards,
			    enum mindspore_how *how, struct ck_err *why)
{
	const struct mindspore_tensor *p = parameter_of(s, t);
	uint64_t rows = t->rank ? t->dims[0] : 0, whole;

	if (!p || !p->rank || !ck_mul_ok(p->dims[0], shards, &whole))
		return ck_fail(
			why, EINVAL,
			"the strategy says that it is sharded, which gradients seldom are, and its parameter is not there to compare with: the strategy file in JSON form has its shape");
	if (rows == whole)
		*how = MINDSPORE_UNSHARDED;
	else if (rows != p->dims[0])
		return ck_fail(
			why, EINVAL,
			"it has %" PRIu64
			" rows, which fit neither its parameter nor that unsharded",
			rows);
	return 0;
}

static int how_of(const struct mindspore_set *s,
		  const struct mindspore_tensor *t, enum mindspore_how *how,
		  struct ck_err *why)
{
	const struct ck_strategy_layout *l = &t->item->l;
	const struct ck_strmap_key *k = name_of(s, t);
	size_t len = strlen(GRADIENTS);
	uint64_t slices, shards;
	int ret = ck_strategy_cuts(l, &slices, &shards, why);

	*how = s->integrated ? MINDSPORE_WHOLE : MINDSPORE_CUT;
	if (ret || s->integrated)
		return ret;
	if (l->has_shape)
		*how = how_by_shape(l, t, slices, shards);
	else if (shards > 1 && k->len > len && !memcmp(k->s, GRADIENTS, len))
		return how_of_gradients(s, t, shards, how, why);
	return 0;
}

int ck_mindspore_place_of(const struct mindspore_set *s,
			  const struct mindspore_tensor *t,
			  struct mindspore_place *out, struct ck_err *why)
{
	enum mindspore_how how;
	int ret = how_of(s, t, &how, why);

	return ret ? ret :
		     ck_mindspore_place(&t->item->l, how, t->dims, t->rank,
					t->file->rank, out, why);
}

/* ---- what can be compared ---- */

static bool is_laid_out(const struct mindspore_tensor *t)
{
	return t->item && !t->item->why && !t->fault;
}

static bool is_seen(const struct mindspore_tensor *t)
{
	return t->flags & (MINDSPORE_HASHED | MINDSPORE_SAMPLED);
}

/* Whether its bytes tell anything: one value is the same wherever it is. */
static bool tells(const struct mindspore_tensor *t)
{
	return !t->fault && is_seen(t) &&
	       !(t->flags &
		 (MINDSPORE_CONSTANT | MINDSPORE_OPAQUE | MINDSPORE_DAMAGED));
}

static bool same_shape(const struct mindspore_tensor *a,
		       const struct mindspore_tensor *b)
{
	return a->rank == b->rank &&
	       !memcmp(a->dims, b->dims, a->rank * sizeof(*a->dims));
}

/* Its number among the slices, were its layout used so; false: it cannot be. */
static bool slice_if(const struct mindspore_tensor *t, enum mindspore_how how,
		     uint64_t *slice)
{
	struct mindspore_place p;

	if (ck_mindspore_place(&t->item->l, how, t->dims, t->rank,
			       t->file->rank, &p, NULL))
		return false;
	*slice = p.slice;
	return true;
}

/* Without the optimizer's shards, and with. */
static bool shard_if(const struct mindspore_tensor *t, uint64_t *slice,
		     uint64_t *shard)
{
	return t->item->l.shards && slice_if(t, MINDSPORE_UNSHARDED, slice) &&
	       slice_if(t, MINDSPORE_CUT, shard);
}

/* What should be copies of one slice, or shards of it. */
struct group {
	const struct mindspore_tensor *first;
	uint64_t shard;
	uint32_t nr, nr_same;
};

struct judge {
	struct mindspore_set *s;
	struct group *g; /* by slice */
	size_t nr;
};

/* ---- whole tensors in spite of layouts ---- */

static bool are_slices(const struct mindspore_set *s)
{
	return mindspore_integrated_is(s->dir, "no");
}

struct evidence {
	bool differ; /* two slices do: they are slices */
	uint64_t same, constant; /* do not; or only for they are constant */
	uint32_t name; /* a tensor of those that are constant */
};

static void compare_slices(const struct mindspore_set *s, uint32_t name,
			   struct evidence *e)
{
	const struct mindspore_tensor *first = NULL;
	uint64_t first_slice = 0, slice;

	for (const struct mindspore_tensor *t = s->name.v[name].first;
	     t && !e->differ; t = t->next) {
		if (!is_laid_out(t) || t->item->l.has_shape ||
		    !slice_if(t, MINDSPORE_CUT, &slice))
			continue;
		if (!first) {
			first = t;
			first_slice = slice;
		} else if (slice != first_slice) {
			bool seen = is_seen(first) && is_seen(t);

			e->differ = !same_shape(first, t) ||
				    (seen && first->hash != t->hash);
			if (seen && !e->differ)
				first->flags &MINDSPORE_CONSTANT ?
					e->constant++ :
					e->same++;
		}
		if (e->constant == 1)
			e->name = name;
	}
}

/* Of two ranks one may as well be a copy of the other. */
static int note_integrated(struct mindspore_set *s, struct ck_err *err)
{
	bool two = s->strategy.devices == 2;

	s->integrated = true;
	return mindspore_report(
		s->b, two ? CK_WARNING : CK_NOTE, NULL, err,
		"every rank holds the same whole tensors (integrated_save), so the strategy's cuts are not applied; -o integrated=no would apply them%s",
		two ? ", if one file is a copy of the other whose own is lost; -o integrated=yes ends this warning" :
		      "");
}

/* Whether the tensors are whole; *decided: there is no doubt of the shards. */
static int decide_integrated(struct mindspore_set *s, bool *decided,
			     struct ck_err *err)
{
	struct evidence e = { .differ = false };

	s->integrated = mindspore_integrated_is(s->dir, "yes");
	*decided = s->integrated || are_slices(s);
	/* MindSpore does not gather over stages */
	if (*decided || s->strategy.nr_stages != 1)
		return 0;
	for (uint32_t i = 0; i < s->name.nr && !e.differ; i++)
		compare_slices(s, i, &e);
	if (e.differ || (!e.same && !e.constant))
		return 0;
	*decided = true;
	if (e.same)
		return note_integrated(s, err);
	return ck_fail(
		err, EINVAL,
		"%s: of the tensors that the strategy cuts, all that are here have one value in all ranks (such as %s), as what was not trained yet, so that nothing tells slices from whole tensors: say -o integrated=yes (whole) or -o integrated=no (slices), or give the strategy file in JSON form",
		s->dir->path, s->names.v[e.name].s);
}

/* ---- the optimizer's shards ---- */

struct alike {
	bool differ; /* two shards do: they are shards */
	bool shapes; /* a shape says so */
	const char *name; /* a tensor of which two shards are the same */
	const struct mindspore_source *a, *b; /* the files of these */
};

static void compare_shards(const struct judge *j, uint32_t name,
			   struct alike *out)
{
	const struct mindspore_set *s = j->s;
	uint64_t slice, shard;

	memset(j->g, 0, j->nr * sizeof(*j->g));
	for (const struct mindspore_tensor *t = s->name.v[name].first; t;
	     t = t->next) {
		struct group *g;

		if (!is_laid_out(t) || !is_seen(t) ||
		    t->flags & MINDSPORE_CONSTANT ||
		    !shard_if(t, &slice, &shard) || slice >= j->nr)
			continue;
		out->shapes |= t->item->l.has_shape;
		g = &j->g[slice];
		if (!g->first) {
			g->first = t;
			g->shard = shard;
		} else if (g->shard != shard && g->first->hash != t->hash) {
			out->differ = true;
		} else if (g->shard != shard && !out->name) {
			out->name = name_of(s, t)->s;
			out->a = g->first->file;
			out->b = t->file;
		}
	}
}

static int check_shards(const struct judge *j, struct ck_err *err)
{
	const struct mindspore_set *s = j->s;
	struct alike f = { .differ = false };

	for (uint32_t i = 0; i < s->name.nr && j->nr; i++)
		/* gradients are listed as sharded and stored whole */
		if (strncmp(s->names.v[i].s, GRADIENTS, strlen(GRADIENTS)))
			compare_shards(j, i, &f);
	if (!f.name)
		return 0;
	if (f.differ || f.shapes)
		return mindspore_report(
			s->b, CK_WARNING, NULL, err,
			"%s: the strategy says that the optimizer's shards of it in %s and %s differ, and they are the same: it may be another run's strategy",
			f.name, f.a->name, f.b->name);
	return ck_fail(
		err, EINVAL,
		"%s: the strategy says that copies are cut further, for the optimizer, and all that should differ so hold the same (such as %s), as of a run without: give that run's strategy file with -o strategy=FILE, or say -o integrated=no if these are its parts",
		s->dir->path, f.name);
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
static bool are_all_twice(struct shard *v, size_t nr)
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

int ck_mindspore_are_copies(const struct mindspore_set *s, uint32_t name,
			    bool *are, struct ck_err *err)
{
	CK_VEC(struct shard) v = { 0 };
	uint64_t slice, shard;
	enum mindspore_how how;

	*are = false;
	if (s->integrated || are_slices(s))
		return 0;
	for (const struct mindspore_tensor *t = s->name.v[name].first; t;
	     t = t->next) {
		/* a shape tells without them */
		if (!is_laid_out(t) || t->item->l.has_shape || !tells(t) ||
		    how_of(s, t, &how, NULL) || how != MINDSPORE_CUT ||
		    !shard_if(t, &slice, &shard))
			continue;
		if (!ck_vec_reserve(&v, 1)) {
			free(v.v);
			return ck_no_memory(err);
		}
		v.v[v.nr++] =
			(struct shard){ slice, shard, t->hash, t->file->stage };
	}
	*are = v.nr && are_all_twice(v.v, v.nr);
	free(v.v);
	return 0;
}

/* ---- another run's strategy ---- */

/* No piece of @name is as its layout says; one that is has a damaged sibling.
 */
static int contradicts(const struct mindspore_set *s, uint32_t name,
		       struct ck_err *why)
{
	struct mindspore_place p;
	int ret = 0;

	for (const struct mindspore_tensor *t = s->name.v[name].first; t;
	     t = t->next) {
		if (!is_laid_out(t) || t->flags & MINDSPORE_OPAQUE)
			continue;
		ret = ck_mindspore_place_of(s, t, &p, why);
		if (ret != -ERANGE)
			return ret == -ENOMEM ? ret : 0;
	}
	return ret;
}

/*
 * One file that is damaged, or of another save, differs from its copies; it
 * does not make all of them differ.
 */
static bool none_agree(const struct judge *j)
{
	size_t bad = 0;

	for (size_t i = 0; i < j->nr; i++) {
		if (j->g[i].nr > 1 && j->g[i].nr_same > 1)
			return false;
		bad += j->g[i].nr > 1 ? j->g[i].nr - 1 : 0;
	}
	return bad > 1;
}

/* Of a stage, what should be copies of one slice. */
static bool do_copies_differ(const struct judge *j, uint32_t name)
{
	uint32_t stage = CK_STRATEGY_NONE;
	struct mindspore_place p;

	memset(j->g, 0, j->nr * sizeof(*j->g));
	for (const struct mindspore_tensor *t = j->s->name.v[name].first; t;
	     t = t->next) {
		struct group *g;

		if (!is_laid_out(t) || !tells(t) ||
		    ck_mindspore_place_of(j->s, t, &p, NULL) ||
		    p.slice >= j->nr)
			continue;
		if (stage != t->item->l.stage) {
			if (stage != CK_STRATEGY_NONE && none_agree(j))
				return true;
			memset(j->g, 0, j->nr * sizeof(*j->g));
		}
		stage = t->item->l.stage;
		g = &j->g[p.slice];
		g->first = g->nr ? g->first : t;
		g->nr++;
		g->nr_same +=
			g->first->hash == t->hash && same_shape(g->first, t);
	}
	return none_agree(j);
}

/* Parts of something, which the strategy does not know. */
static bool is_unknown_cut(const struct mindspore_set *s, uint32_t name)
{
	const struct mindspore_tensor *first = NULL;

	for (const struct mindspore_tensor *t = s->name.v[name].first; t;
	     t = t->next) {
		/* programs save numbers of their own with each rank */
		if (t->item || !tells(t) || !t->rank ||
		    t->bytes <= ck_dtype_info(t->dtype)->size)
			continue;
		if (!first || first->file->stage != t->file->stage)
			first = t;
		else if (first->hash != t->hash || !same_shape(first, t))
			return true;
	}
	return false;
}

/* The parameter itself, or one that what is so called would be a state of. */
static bool is_saved(const struct mindspore_set *s, const char *name,
		     size_t len)
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

/* A parameter of the strategy of which nothing was saved; NULL: none is. */
static const char *not_saved(const struct mindspore_set *s)
{
	for (size_t i = 0; i < s->strategy.names.nr; i++) {
		const struct ck_strmap_key *k = &s->strategy.names.v[i];

		if (!is_saved(s, k->s, k->len))
			return k->s;
	}
	return NULL;
}

/* Where one tensor contradicts it, others that fit it do so by chance. */
static int check_strategy(const struct judge *j, struct ck_err *err)
{
	struct mindspore_set *s = j->s;
	const char *other;
	struct ck_err why;
	uint32_t i;
	int ret = 0;

	for (i = 0; i < s->name.nr && !ret; i++)
		ret = contradicts(s, i, &why);
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	if (ret) {
		snprintf(
			s->against, sizeof(s->against),
			"the strategy contradicts %.200s (%.300s), so its cuts are not those of this run: give that run's strategy file with -o strategy=FILE",
			s->names.v[i - 1].s, why.msg);
		return 0;
	}
	if (!s->strategy.devices)
		return 0;
	for (i = 0; i < s->name.nr && !do_copies_differ(j, i);)
		i++;
	if (i < s->name.nr) {
		snprintf(
			s->against, sizeof(s->against),
			"of %.200s no copies that the strategy says there are agree: it is of another run, or the ranks' files are of several saves; give this run's strategy file with -o strategy=FILE",
			s->names.v[i].s);
		return 0;
	}
	other = are_slices(s) ? NULL : not_saved(s);
	for (i = 0; i < s->name.nr && other && !is_unknown_cut(s, i);)
		i++;
	if (other && i < s->name.nr)
		snprintf(
			s->against, sizeof(s->against),
			"the strategy is of other parameters: it does not know %.200s, which was cut, and %.200s, which it does, was not saved; give this run's strategy file with -o strategy=FILE (-o integrated=no uses this one)",
			s->names.v[i].s, other);
	return 0;
}

int ck_mindspore_doubt(struct mindspore_set *s, struct ck_err *err)
{
	size_t nr = (size_t)CK_MIN(s->strategy.devices, UINT64_C(1) << 20);
	ck_auto_free struct group *g = calloc(nr + 1, sizeof(*g));
	const struct judge j = { s, g, nr };
	bool decided;
	int ret;

	if (!g)
		return ck_no_memory(err);
	ret = decide_integrated(s, &decided, err);
	if (!ret && !decided)
		ret = check_shards(&j, err);
	if (!ret && !s->integrated && !s->smaller)
		ret = check_strategy(&j, err);
	return ret;
}
