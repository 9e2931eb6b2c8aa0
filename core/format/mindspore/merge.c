/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merge.c - pieces of the ranks' files to tensors, by their layouts
 *
 * A layout does not say whether it was used: integrated_save gathers whole
 * tensors and leaves the strategy file as it is, and gradients that are being
 * accumulated are listed as sharded and stored unsharded.  The shapes of the
 * JSON form tell; without them the files' bytes must.
 */
#include "core/format/mindspore/set.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCU "accu_grads."

struct merge {
	struct ck_ms_set *s;
	bool integrated;
	uint32_t *slice; /* by number: the first tensor that has it, + 1 */
	size_t nr_slices;
	char against
		[CK_ERR_MAX]; /* why the strategy is not that of these files */
};

static const uint64_t *dims_of(const struct ck_ms_set *s,
			       const struct ck_ms_tensor *t)
{
	return s->dims.v + t->dims;
}

static const struct ck_strmap_key *name_of(const struct ck_ms_set *s,
					   uint32_t name)
{
	return &s->names.v[name];
}

static uint32_t rank_of(const struct ck_ms_set *s, const struct ck_ms_tensor *t)
{
	return s->file.v[t->file].rank;
}

/* The layout of that tensor where its rank is; NULL: it has none. */
static struct ck_strategy_item *item_of(const struct ck_ms_set *s,
					const struct ck_ms_tensor *t)
{
	const struct ck_strmap_key *k = name_of(s, t->name);

	if (!s->strategy.devices)
		return NULL;
	return ck_strategy_find(
		&s->strategy, k->s, k->len,
		(uint32_t)(rank_of(s, t) / s->strategy.devices));
}

static int refuse(struct merge *m, uint32_t name, const char *why,
		  struct ck_err *err)
{
	const struct ck_strmap_key *k = name_of(m->s, name);

	return ck_builder_refuse(m->s->b, 0, k->s, k->len, err, "%s", why);
}

/* ---- whether the layout was used ---- */

static bool volume(const uint64_t *dims, unsigned rank, uint64_t *out)
{
	*out = 1;
	for (unsigned d = 0; d < rank; d++)
		if (!ck_mul_ok(*out, dims[d], out))
			return false;
	return true;
}

static enum ck_ms_how how_by_shape(const struct ck_strategy_layout *l,
				   const uint64_t *stored, unsigned rank,
				   uint64_t slices, uint64_t shards)
{
	uint64_t have, want, cut, all;

	if (!volume(stored, rank, &have) ||
	    !volume(l->shape, l->shape_rank, &want) ||
	    !ck_mul_ok(have, slices, &cut) || !ck_mul_ok(cut, shards, &all) ||
	    all == want || l->nr_rows || l->field)
		return CK_MS_CUT;
	if (cut == want)
		return CK_MS_UNSHARDED;
	return have == want ? CK_MS_WHOLE : CK_MS_CUT;
}

/* Of the same rank: the parameter whose gradients these are. */
static const struct ck_ms_tensor *parameter_of(const struct ck_ms_set *s,
					       const struct ck_ms_tensor *t)
{
	const struct ck_strmap_key *k = name_of(s, t->name);
	size_t skip = strlen(ACCU);
	uint32_t at = ck_strmap_get(&s->names, k->s + skip, k->len - skip);

	if (at == CK_STRMAP_NONE)
		return NULL;
	for (uint32_t i = s->name.v[at].first; i != CK_STRATEGY_NONE;
	     i = s->tensor.v[i].next)
		if (rank_of(s, &s->tensor.v[i]) == rank_of(s, t))
			return &s->tensor.v[i];
	return NULL;
}

static int how_of_gradients(const struct ck_ms_set *s,
			    const struct ck_ms_tensor *t, uint64_t shards,
			    enum ck_ms_how *how, struct ck_err *why)
{
	const struct ck_ms_tensor *p = parameter_of(s, t);
	uint64_t rows = t->rank ? dims_of(s, t)[0] : 0, whole;

	if (!p || !p->rank || !ck_mul_ok(dims_of(s, p)[0], shards, &whole))
		return ck_fail(
			why, EINVAL,
			"the strategy says that it is sharded, which gradients seldom are, and its parameter is not there to compare with: the strategy file in JSON form has its shape");
	if (rows == whole)
		*how = CK_MS_UNSHARDED;
	else if (rows != dims_of(s, p)[0])
		return ck_fail(
			why, EINVAL,
			"it has %" PRIu64
			" rows, which fit neither its parameter nor that unsharded",
			rows);
	return 0;
}

int ck_ms_how_of(const struct ck_ms_set *s, const struct ck_ms_tensor *t,
		 const struct ck_strategy_layout *l, enum ck_ms_how *how,
		 struct ck_err *why)
{
	const struct ck_strmap_key *k = name_of(s, t->name);
	uint64_t slices, shards;
	int ret = ck_strategy_cuts(l, &slices, &shards, why);

	*how = CK_MS_CUT;
	if (ret)
		return ret;
	if (l->has_shape)
		*how = how_by_shape(l, dims_of(s, t), t->rank, slices, shards);
	else if (shards > 1 && k->len > strlen(ACCU) &&
		 !memcmp(k->s, ACCU, strlen(ACCU)))
		return how_of_gradients(s, t, shards, how, why);
	return 0;
}

static int choose_how(const struct merge *m, const struct ck_ms_tensor *t,
		      const struct ck_strategy_layout *l, enum ck_ms_how *how,
		      struct ck_err *why)
{
	uint64_t slices, shards;

	if (!m->integrated)
		return ck_ms_how_of(m->s, t, l, how, why);
	*how = CK_MS_WHOLE;
	return ck_strategy_cuts(l, &slices, &shards, why);
}

struct evidence {
	bool differ; /* two slices do: they are slices */
	uint64_t same, alike; /* do not; or only because they are constant */
	uint32_t name; /* a tensor of those that are constant */
};

static void compare(const struct ck_ms_set *s, const struct ck_ms_tensor *a,
		    const struct ck_ms_tensor *b, struct evidence *e)
{
	unsigned seen = CK_MS_HASHED | CK_MS_SAMPLED;

	if (a->rank != b->rank ||
	    memcmp(dims_of(s, a), dims_of(s, b), a->rank * sizeof(uint64_t)))
		e->differ = true;
	else if (a->flags & seen && b->flags & seen && a->hash != b->hash)
		e->differ = true;
	else if (a->flags & seen && b->flags & seen)
		(a->flags & CK_MS_ALIKE) ? e->alike++ : e->same++;
}

static void look_at(const struct ck_ms_set *s, uint32_t name,
		    struct evidence *e)
{
	const struct ck_ms_tensor *first = NULL;
	uint64_t first_slice = 0;

	for (uint32_t i = s->name.v[name].first; i != CK_STRATEGY_NONE;
	     i = s->tensor.v[i].next) {
		const struct ck_ms_tensor *t = &s->tensor.v[i];
		const struct ck_strategy_item *it = item_of(s, t);
		struct ck_ms_piece p;

		if (!it || it->why || it->l.has_shape || t->why ||
		    ck_ms_place(&it->l, CK_MS_CUT, dims_of(s, t), t->rank,
				rank_of(s, t), &p, NULL))
			continue;
		if (!first) {
			first = t;
			first_slice = p.slice;
		} else if (p.slice != first_slice) {
			compare(s, first, t, e);
		}
		if (e->alike == 1)
			e->name = name;
		if (e->differ)
			return;
	}
}

/* Of two ranks one may as well be a copy of the other. */
static int note_integrated(struct merge *m, struct ck_err *err)
{
	bool two = m->s->strategy.devices == 2;
	const struct ck_problem_in note = { .severity = two ? CK_WARNING :
							      CK_NOTE };

	m->integrated = true;
	return ck_builder_problem(
		m->s->b, &note, err,
		"every rank holds the same whole tensors (integrated_save), so the strategy's cuts are not applied; -o integrated=no would apply them%s",
		two ? ", if one file is a copy of the other whose own is lost; -o integrated=yes ends this warning" :
		      "");
}

static int decide(struct merge *m, struct ck_err *err)
{
	struct ck_ms_set *s = m->s;
	const char *said = ck_opts_get(s->dir->opts, "integrated");
	struct evidence e = { .differ = false };

	if (said && strcmp(said, "auto")) {
		m->integrated = !strcmp(said, "yes");
		return 0;
	}
	if (s->strategy.nr_stages !=
	    1) /* MindSpore does not gather over them */
		return ck_ms_check_shards(s, err);
	for (uint32_t i = 0; i < s->name.nr && !e.differ; i++)
		look_at(s, i, &e);
	if (e.differ || (!e.same && !e.alike))
		return ck_ms_check_shards(s, err);
	if (e.same)
		return note_integrated(m, err);
	return ck_fail(
		err, EINVAL,
		"%s: of the tensors that the strategy cuts, all that are here have one value in all ranks (such as %s), as what was not trained yet, so that nothing tells slices from whole tensors: say -o integrated=yes (whole) or -o integrated=no (slices), or give the strategy file in JSON form",
		s->dir->path, name_of(s, e.name)->s);
}

/* ---- whether the strategy is of these files ---- */

/* No piece of @name is as its layout says; one that is has a damaged sibling. */
static int contradicts(struct merge *m, uint32_t name, struct ck_err *err)
{
	const struct ck_ms_set *s = m->s;
	int ret = 0;

	for (uint32_t i = s->name.v[name].first; i != CK_STRATEGY_NONE;
	     i = s->tensor.v[i].next) {
		const struct ck_ms_tensor *t = &s->tensor.v[i];
		const struct ck_strategy_item *it = item_of(s, t);
		enum ck_ms_how how;
		struct ck_ms_piece p;

		if (!it || it->why || t->why || t->flags & CK_MS_OPAQUE)
			continue;
		ret = choose_how(m, t, &it->l, &how, err);
		if (!ret)
			ret = ck_ms_place(&it->l, how, dims_of(s, t), t->rank,
					  rank_of(s, t), &p, err);
		if (ret != -ERANGE)
			return ret == -ENOMEM ? ret : 0;
	}
	return ret;
}

/* Then others that fit it do so by chance. */
static int test_strategy(struct merge *m, struct ck_err *err)
{
	struct ck_err why;
	int ret;

	for (uint32_t i = 0; i < m->s->name.nr && !m->s->smaller; i++) {
		ret = contradicts(m, i, &why);
		if (ret == -ENOMEM)
			return ck_fail(err, ENOMEM, "%s", why.msg);
		if (!ret)
			continue;
		snprintf(
			m->against, sizeof(m->against),
			"the strategy contradicts %.200s (%.300s), so its cuts are not those of this run: give that run's strategy file with -o strategy=FILE",
			name_of(m->s, i)->s, why.msg);
		return 0;
	}
	return m->s->smaller ?
		       0 :
		       ck_ms_against(m->s, m->against, sizeof(m->against), err);
}

static bool cuts(const struct ck_strategy_layout *l)
{
	uint64_t slices, shards;

	return ck_strategy_cuts(l, &slices, &shards, NULL) || slices > 1 ||
	       shards > 1;
}

/* ---- parts ---- */

static void fill_part(const struct ck_ms_set *s, const struct ck_ms_tensor *t,
		      const struct ck_ms_piece *p, struct ck_part *out)
{
	const struct ck_strmap_key *k = name_of(s, t->name);

	*out = (struct ck_part){
		.name = k->s,
		.name_len = k->len,
		.src = s->file.v[t->file].src,
		.dtype = t->dtype,
		.rank = p->rank,
		.shape = p->shape,
		.grid_rank = p->grid_rank,
		.grid = p->grid_rank ? p->grid : NULL,
		.start = p->start,
		.len = p->len,
	};
}

/* The upper half of each float32 is the bfloat16 that it was made from. */
static int add_wide(struct merge *m, const struct ck_ms_tensor *t,
		    struct ck_part *part, struct ck_err *err)
{
	unsigned rank = part->grid ? part->grid_rank : part->rank;
	int64_t stride[CK_MAX_RANK], step = 2;

	for (unsigned d = rank; d-- > 0;) {
		stride[d] = step;
		step *= (int64_t)
				part->len[d]; /* all fit: bytes is 4 times it */
	}
	part->off = m->s->seg.v[t->seg].off + 2;
	part->stride = stride;
	return ck_builder_add(m->s->b, part, err);
}

static int add_pieces(struct merge *m, const struct ck_ms_tensor *t,
		      struct ck_part *part, struct ck_err *err)
{
	uint64_t elem = ck_dtype_info(t->dtype)->size, at = 0, flat[2];
	int ret = 0;

	part->flat = flat;
	for (uint32_t i = 0; i < t->nr_segs && !ret; i++) {
		const struct ck_ms_seg *g = &m->s->seg.v[t->seg + i];

		if (g->len % elem)
			return refuse(
				m, t->name,
				"one of its records ends inside an element",
				err);
		flat[0] = at;
		flat[1] = at += g->len / elem;
		part->off = g->off;
		ret = ck_builder_add(m->s->b, part, err);
	}
	return ret;
}

static int add_part(struct merge *m, const struct ck_ms_tensor *t,
		    const struct ck_ms_piece *p, struct ck_err *err)
{
	struct ck_part part;

	fill_part(m->s, t, p, &part);
	if (t->flags & CK_MS_SPOILED || !t->nr_segs)
		return ck_builder_declare(m->s->b, &part, err);
	part.overlap_ok = t->nr_segs == 1;
	if (t->flags & CK_MS_WIDE)
		return add_wide(m, t, &part, err);
	if (t->nr_segs > 1)
		return add_pieces(m, t, &part, err);
	part.off = m->s->seg.v[t->seg].off;
	return ck_builder_add(m->s->b, &part, err);
}

/* ---- one name ---- */

int ck_ms_other_world(const struct ck_ms_set *s, uint64_t world, size_t ranks,
		      const char *sign, struct ck_err *err)
{
	return ck_fail(
		err, EINVAL,
		"%s: the strategy is for %" PRIu64
		" ranks, and there are %zu, as of a run on so many devices%s%s: give that run's strategy file with -o strategy=FILE",
		s->dir->path, world, ranks, sign ? "; " : "", sign ? sign : "");
}

/* The tensor cannot be had; or, in doubt about the strategy, nothing can. */
static int give_up(struct merge *m, uint32_t name, const char *why,
		   struct ck_err *err)
{
	const struct ck_strategy *st = &m->s->strategy;

	if (!m->s->smaller)
		return refuse(m, name, why, err);
	return ck_ms_other_world(
		m->s, st->devices * st->nr_stages,
		(size_t)m->s->file.v[m->s->file.nr - 1].rank + 1, why, err);
}

static int add_object(struct merge *m, const struct ck_ms_tensor *t, bool alone,
		      struct ck_err *err)
{
	struct ck_ms_set *s = m->s;
	const struct ck_strmap_key *k = name_of(s, t->name);
	ck_auto_free char *name = NULL;
	struct ck_object_in o = { .src = s->file.v[t->file].src,
				  .enc = CK_ENC_RAW };

	if (t->nr_segs != 1)
		return 0;
	if ((alone ? asprintf(&name, "%s", k->s) :
		     asprintf(&name, "rank_%u/%s", rank_of(s, t), k->s)) < 0)
		return ck_mindspore_no_memory(err);
	o.name = name;
	o.name_len = strlen(name);
	o.off = s->seg.v[t->seg].off;
	o.len = t->bytes;
	return ck_range_ok(o.off, o.len, UINT64_C(1) << 61) ?
		       ck_builder_object(s->b, &o, err) :
		       0;
}

static int no_copy(struct merge *m, const struct ck_ms_tensor *a,
		   const struct ck_ms_tensor *b, bool laid_out,
		   struct ck_err *err)
{
	char why[CK_ERR_MAX];

	snprintf(
		why, sizeof(why),
		laid_out || m->integrated ?
			"%s and %s hold copies of it that differ (unshard heal)" :
			"%s and %s hold different ones, and no layout of the strategy says that they are parts: -o strategy=FILE does, or -o integrated=yes that they are copies",
		m->s->file.v[a->file].name, m->s->file.v[b->file].name);
	return give_up(m, a->name, why, err);
}

/* Copies must agree, as far as their bytes were looked at. */
static bool agree(const struct ck_ms_tensor *a, const struct ck_ms_tensor *b)
{
	unsigned both = a->flags & b->flags;

	return !(both & (CK_MS_HASHED | CK_MS_SAMPLED)) || a->hash == b->hash ||
	       (a->flags | b->flags) & CK_MS_SPOILED;
}

static int check_copy(struct merge *m, uint32_t index, uint64_t slice,
		      bool laid_out, bool *ok, struct ck_err *err)
{
	const struct ck_ms_tensor *t = &m->s->tensor.v[index];
	uint32_t *first;

	*ok = true;
	if (slice >= m->nr_slices)
		return 0;
	first = &m->slice[slice];
	if (!*first) {
		*first = index + 1;
		return 0;
	}
	*ok = agree(&m->s->tensor.v[*first - 1], t) ||
	      ((laid_out || m->integrated) && ck_dir_any_copy(m->s->dir));
	return *ok ? 0 :
		     no_copy(m, &m->s->tensor.v[*first - 1], t, laid_out, err);
}

static int place(struct merge *m, const struct ck_ms_tensor *t,
		 struct ck_strategy_item *it, struct ck_ms_piece *p,
		 struct ck_err *why)
{
	static const struct ck_strategy_layout none = { .nr_dev = 1,
							.dev = { 1 } };
	const uint64_t *stored = dims_of(m->s, t);
	enum ck_ms_how how;
	int ret;

	if (!it)
		return ck_ms_place(&none, CK_MS_WHOLE, stored, t->rank, 0, p,
				   why);
	it->seen++;
	if (it->why)
		return ck_fail(why, EINVAL, "%s: %s",
			       m->s->strategy.files.v[it->file], it->why);
	ret = choose_how(m, t, &it->l, &how, why);
	if (!ret)
		ret = ck_ms_place(&it->l, how, stored, t->rank,
				  rank_of(m->s, t), p, why);
	if (!ret && *m->against && cuts(&it->l))
		return ck_fail(why, EINVAL, "%s", m->against);
	return ret ? ck_wrap(why, ret, "%s", m->s->file.v[t->file].name) : 0;
}

static int add_tensor(struct merge *m, uint32_t index, bool *go,
		      struct ck_err *err)
{
	const struct ck_ms_tensor *t = &m->s->tensor.v[index];
	struct ck_strategy_item *it = item_of(m->s, t);
	struct ck_ms_piece p;
	struct ck_err why;
	int ret;

	*go = false;
	ret = place(m, t, it, &p, &why);
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	if (ret)
		return give_up(m, t->name, why.msg, err);
	ret = check_copy(m, index, p.slice, it, go, err);
	return ret || !*go ? ret : add_part(m, t, &p, err);
}

/* It was saved, whatever becomes of it. */
static void see_all(const struct ck_ms_set *s, uint32_t name)
{
	for (uint32_t i = s->name.v[name].first; i != CK_STRATEGY_NONE;
	     i = s->tensor.v[i].next) {
		struct ck_strategy_item *it = item_of(s, &s->tensor.v[i]);

		if (it)
			it->seen++;
	}
}

static int add_name(struct merge *m, uint32_t name, struct ck_err *err)
{
	struct ck_ms_set *s = m->s;
	uint32_t stage = CK_STRATEGY_NONE;
	bool go = true, copies = false;
	int ret = 0;

	for (uint32_t i = s->name.v[name].first; i != CK_STRATEGY_NONE;
	     i = s->tensor.v[i].next)
		if (s->tensor.v[i].why) {
			see_all(s, name);
			return refuse(m, name, s->tensor.v[i].why, err);
		}
	if (!m->integrated)
		ret = ck_ms_shards_are_copies(s, name, &copies, err);
	if (!ret && copies) {
		see_all(s, name);
		return give_up(m, name, CK_MS_SHARDS_ALIKE, err);
	}
	for (uint32_t i = s->name.v[name].first;
	     i != CK_STRATEGY_NONE && !ret && go; i = s->tensor.v[i].next) {
		const struct ck_ms_tensor *t = &s->tensor.v[i];
		const struct ck_strategy_item *it = item_of(s, t);

		/* Slices are counted by each layout for itself. */
		if (it ? it->l.stage != stage : i == s->name.v[name].first)
			memset(m->slice, 0, m->nr_slices * sizeof(*m->slice));
		stage = it ? it->l.stage : stage;
		ret = t->flags & CK_MS_OPAQUE ?
			      add_object(m, t, s->file.nr == 1, err) :
			      add_tensor(m, i, &go, err);
	}
	return ret;
}

int ck_ms_merge(struct ck_ms_set *s, struct ck_err *err)
{
	ck_auto_free uint32_t *slice = NULL;
	struct merge m = { .s = s };
	int ret;

	m.nr_slices = (size_t)CK_MIN(CK_MAX(s->strategy.devices, UINT64_C(1)),
				     UINT64_C(1) << 20);
	slice = calloc(m.nr_slices, sizeof(*slice));
	if (!slice)
		return ck_mindspore_no_memory(err);
	m.slice = slice;
	ret = decide(&m, err);
	if (!ret && !m.integrated)
		ret = test_strategy(&m, err);
	for (uint32_t i = 0; i < s->name.nr && !ret; i++)
		ret = add_name(&m, i, err);
	return ret ? ret : ck_ms_report_absent(s, err);
}
