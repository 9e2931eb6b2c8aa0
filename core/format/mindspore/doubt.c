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

#include "core/audit/replicas.h"
#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/geom/range.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define GRADIENTS "accu_grads."

/* A piece that is looked at. */
struct look {
	const struct mindspore_set *s;
	const struct ck_asm_tensor *t;
	const struct ck_asm_piece *p;
	const struct mindspore_held *h;
	const struct ck_strategy_layout *l; /* NULL: none that can be used */
	uint64_t rank;
};

static struct look look_at(const struct mindspore_set *s,
			   const struct ck_asm_tensor *t,
			   const struct ck_asm_piece *p)
{
	const struct mindspore_held *h = mindspore_held(s, p);
	bool usable = h->item && !h->item->why;

	return (struct look){ s,
			      t,
			      p,
			      h,
			      usable ? &h->item->l : NULL,
			      s->a.files.v[p->file].rank };
}

/* ---- how a layout was used ---- */

static enum mindspore_how how_by_shape(const struct look *x, uint64_t slices,
				       uint64_t shards)
{
	const struct ck_strategy_layout *l = x->l;
	uint64_t have, want, cut, all;

	if (!ck_dims_volume(x->p->x.shape, x->p->x.rank, &have) ||
	    !ck_dims_volume(l->shape, l->shape_rank, &want) ||
	    !ck_mul_ok(have, slices, &cut) || !ck_mul_ok(cut, shards, &all) ||
	    all == want || l->nr_rows || l->field)
		return MINDSPORE_CUT;
	if (cut == want)
		return MINDSPORE_UNSHARDED;
	return have == want ? MINDSPORE_WHOLE : MINDSPORE_CUT;
}

static bool are_gradients(const struct ck_asm_tensor *t)
{
	size_t len = strlen(GRADIENTS);

	return t->len > len && !memcmp(t->name, GRADIENTS, len);
}

/* Of the same rank: the parameter whose gradients they are. */
static const struct ck_asm_piece *parameter_of(const struct look *x)
{
	const struct ck_asm *a = &x->s->a;
	size_t skip = strlen(GRADIENTS);
	uint32_t at =
		ck_strmap_get(&a->names, x->t->name + skip, x->t->len - skip);
	const struct ck_asm_piece *of;

	if (at == CK_STRMAP_NONE)
		return NULL;
	ck_asm_each_piece(of, a, &a->tensors.v[at])
	{
		if (a->files.v[of->file].rank == x->rank)
			return of;
	}
	return NULL;
}

static int how_of_gradients(const struct look *x, uint64_t shards,
			    enum mindspore_how *how, struct ck_err *why)
{
	const struct ck_asm_piece *of = parameter_of(x);
	uint64_t rows = x->p->x.rank ? x->p->x.shape[0] : 0, whole;

	if (!of || !of->x.rank || !ck_mul_ok(of->x.shape[0], shards, &whole))
		return ck_fail(
			why, EINVAL,
			"the strategy says that it is sharded, which gradients seldom are, and its parameter is not there to compare with: the strategy file in JSON form has its shape");
	if (rows == whole)
		*how = MINDSPORE_UNSHARDED;
	else if (rows != of->x.shape[0])
		return ck_fail(
			why, EINVAL,
			"it has %" PRIu64
			" rows, which fit neither its parameter nor that unsharded",
			rows);
	return 0;
}

static int how_of(const struct look *x, enum mindspore_how *how,
		  struct ck_err *why)
{
	bool integrated = x->s->integrated;
	uint64_t slices, shards;
	int ret = ck_strategy_cuts(x->l, &slices, &shards, why);

	*how = integrated ? MINDSPORE_WHOLE : MINDSPORE_CUT;
	if (ret || integrated)
		return ret;
	if (x->l->has_shape)
		*how = how_by_shape(x, slices, shards);
	else if (shards > 1 && are_gradients(x->t))
		return how_of_gradients(x, shards, how, why);
	return 0;
}

static int place_if(const struct look *x, enum mindspore_how how,
		    struct mindspore_place *out, struct ck_err *why)
{
	return ck_mindspore_place(x->l, how, x->p->x.shape, x->p->x.rank,
				  x->rank, out, why);
}

static int place(const struct look *x, struct mindspore_place *out,
		 struct ck_err *why)
{
	enum mindspore_how how;
	int ret = how_of(x, &how, why);

	return ret ? ret : place_if(x, how, out, why);
}

int ck_mindspore_place_of(const struct mindspore_set *s,
			  const struct ck_asm_tensor *t,
			  const struct ck_asm_piece *p,
			  struct mindspore_place *out, struct ck_err *why)
{
	const struct look x = look_at(s, t, p);

	return place(&x, out, why);
}

/* ---- what can be compared ---- */

static bool is_laid_out(const struct look *x)
{
	return x->l && !x->p->x.fault;
}

static bool is_constant(const struct look *x)
{
	return x->h->flags & MINDSPORE_CONSTANT;
}

/* Whether its bytes tell anything: one value is the same wherever it is. */
static bool tells(const struct look *x)
{
	return !x->p->x.fault && x->p->like && !x->p->lost &&
	       !(x->h->flags & (MINDSPORE_CONSTANT | MINDSPORE_OPAQUE));
}

/* Its number among the slices, were its layout used so; false: it cannot be. */
static bool slice_if(const struct look *x, enum mindspore_how how,
		     uint64_t *slice)
{
	struct mindspore_place at;

	if (place_if(x, how, &at, NULL))
		return false;
	*slice = at.slice;
	return true;
}

/* Without the optimizer's shards, and with. */
static bool shard_if(const struct look *x, uint64_t *slice, uint64_t *shard)
{
	return x->l->shards && slice_if(x, MINDSPORE_UNSHARDED, slice) &&
	       slice_if(x, MINDSPORE_CUT, shard);
}

/* Whether a question is about it; sets which part of which group it is. */
typedef bool (*select_fn)(const struct look *x, struct ck_audit_piece *row);

/* The pieces of @t that a question is about. */
static int gather(const struct mindspore_set *s, const struct ck_asm_tensor *t,
		  select_fn select, struct ck_audit_pieces *rows,
		  struct ck_err *err)
{
	const struct ck_asm_piece *p;

	ck_asm_each_piece(p, &s->a, t)
	{
		const struct look x = look_at(s, t, p);
		struct ck_audit_piece row = {
			.part = p->file,
			.like = p->like,
			.form = XXH3_64bits(p->x.shape,
					    p->x.rank * sizeof(*p->x.shape)),
			.file = p->file,
			.constant = is_constant(&x),
		};

		if (select(&x, &row) && !ck_audit_pieces_add(rows, &row))
			return ck_no_memory(err);
	}
	return 0;
}

/* ---- whole tensors in spite of layouts ---- */

static bool are_slices(const struct mindspore_set *s)
{
	return mindspore_integrated_is(s->a.dir, "no");
}

static bool is_slice(const struct look *x, struct ck_audit_piece *row)
{
	return is_laid_out(x) && !x->l->has_shape &&
	       slice_if(x, MINDSPORE_CUT, &row->part);
}

static int compare_slices(const struct mindspore_set *s,
			  const struct ck_asm_tensor *t,
			  struct ck_audit_parts *e, const char **name,
			  struct ck_err *err)
{
	ck_auto_audit_pieces struct ck_audit_pieces rows = { 0 };
	uint64_t before = e->constant;
	int ret = gather(s, t, is_slice, &rows, err);

	ck_audit_parts(&rows, e);
	if (e->constant && before <= (rows.v.nr ? 1 : 0))
		*name = t->name;
	return ret;
}

/* Of two ranks one may as well be a copy of the other. */
static int note_integrated(struct mindspore_set *s, struct ck_err *err)
{
	bool two = s->strategy.devices == 2;

	s->integrated = true;
	return ck_builder_report_file(
		s->a.b, two ? CK_WARNING : CK_NOTE, NULL, err,
		"every rank holds the same whole tensors (integrated_save), so the strategy's cuts are not applied; -o integrated=no would apply them%s",
		two ? ", if one file is a copy of the other whose own is lost; -o integrated=yes ends this warning" :
		      "");
}

/* Whether the tensors are whole; *decided: there is no doubt of the shards. */
static int decide_integrated(struct mindspore_set *s, bool *decided,
			     struct ck_err *err)
{
	struct ck_audit_parts e = { .differ = false };
	const char *name = NULL; /* a tensor of those that are constant */
	int ret = 0;

	s->integrated = mindspore_integrated_is(s->a.dir, "yes");
	*decided = s->integrated || are_slices(s);
	/* MindSpore does not gather over stages */
	if (*decided || s->strategy.nr_stages != 1)
		return 0;
	for (size_t i = 0; i < s->a.tensors.nr && !e.differ && !ret; i++)
		ret = compare_slices(s, &s->a.tensors.v[i], &e, &name, err);
	if (ret || e.differ || (!e.same && !e.constant))
		return ret;
	*decided = true;
	if (e.same)
		return note_integrated(s, err);
	return ck_fail(
		err, EINVAL,
		"%s: of the tensors that the strategy cuts, all that are here have one value in all ranks (such as %s), as what was not trained yet, so that nothing tells slices from whole tensors: say -o integrated=yes (whole) or -o integrated=no (slices), or give the strategy file in JSON form",
		s->a.dir->path, name);
}

/* ---- the optimizer's shards ---- */

static bool is_shard(const struct look *x, struct ck_audit_piece *row)
{
	return is_laid_out(x) && x->p->like && !is_constant(x) &&
	       shard_if(x, &row->group, &row->part);
}

/* The same, and a shape says that there are such. */
static bool is_shaped_shard(const struct look *x, struct ck_audit_piece *row)
{
	return is_shard(x, row) && x->l->has_shape;
}

static int check_shards(const struct mindspore_set *s, struct ck_err *err)
{
	struct ck_audit_parts f = { .differ = false };
	const struct ck_asm_tensor *of = NULL;
	bool shapes = false;
	int ret = 0;

	for (size_t i = 0; i < s->a.tensors.nr && !ret; i++) {
		ck_auto_audit_pieces struct ck_audit_pieces rows = { 0 };
		ck_auto_audit_pieces struct ck_audit_pieces shaped = { 0 };
		const struct ck_asm_tensor *t = &s->a.tensors.v[i];

		/* gradients are listed as sharded and stored whole */
		if (are_gradients(t))
			continue;
		ret = gather(s, t, is_shard, &rows, err);
		if (!ret && !shapes)
			ret = gather(s, t, is_shaped_shard, &shaped, err);
		ck_audit_parts(&rows, &f);
		shapes = shapes || shaped.v.nr;
		of = f.same && !of ? t : of;
	}
	if (ret || !of)
		return ret;
	if (f.differ || shapes)
		return ck_builder_report_file(
			s->a.b, CK_WARNING, NULL, err,
			"%s: the strategy says that the optimizer's shards of it in %s and %s differ, and they are the same: it may be another run's strategy",
			of->name, s->a.files.v[f.a].name,
			s->a.files.v[f.b].name);
	return ck_fail(
		err, EINVAL,
		"%s: the strategy says that copies are cut further, for the optimizer, and all that should differ so hold the same (such as %s), as of a run without: give that run's strategy file with -o strategy=FILE, or say -o integrated=no if these are its parts",
		s->a.dir->path, of->name);
}

/* A shape tells without them. */
static bool is_shard_or_copy(const struct look *x, struct ck_audit_piece *row)
{
	enum mindspore_how how;

	if (!is_laid_out(x) || x->l->has_shape || !tells(x) ||
	    how_of(x, &how, NULL) || how != MINDSPORE_CUT ||
	    !shard_if(x, &row->group, &row->part))
		return false;
	row->group |= (uint64_t)x->l->stage << 32;
	return true;
}

int ck_mindspore_are_copies(const struct mindspore_set *s,
			    const struct ck_asm_tensor *t, bool *are,
			    struct ck_err *err)
{
	ck_auto_audit_pieces struct ck_audit_pieces rows = { 0 };
	bool decided = s->integrated || are_slices(s);
	int ret = decided ? 0 : gather(s, t, is_shard_or_copy, &rows, err);

	*are = ck_audit_all_twice(&rows);
	return ret;
}

/* ---- another run's strategy ---- */

/* No piece of @t is as its layout says; one that is has a damaged sibling. */
static int contradicts(const struct mindspore_set *s,
		       const struct ck_asm_tensor *t, struct ck_err *why)
{
	const struct ck_asm_piece *p;
	struct mindspore_place at;
	int ret = 0;

	ck_asm_each_piece(p, &s->a, t)
	{
		const struct look x = look_at(s, t, p);

		if (!is_laid_out(&x) || x.h->flags & MINDSPORE_OPAQUE)
			continue;
		ret = place(&x, &at, why);
		if (ret != -ERANGE)
			return ret == -ENOMEM ? ret : 0;
	}
	return ret;
}

/* Of a stage, what should be copies of one slice. */
static bool is_copy(const struct look *x, struct ck_audit_piece *row)
{
	struct mindspore_place at;

	if (!is_laid_out(x) || !tells(x) || place(x, &at, NULL))
		return false;
	row->group = x->l->stage;
	row->part = at.slice;
	return true;
}

/* Parts of something, which the strategy does not know. */
static bool is_unknown(const struct look *x, struct ck_audit_piece *row)
{
	row->group = x->s->a.files.v[x->p->file].user;
	/* programs save numbers of their own with each rank */
	return !x->h->item && tells(x) && x->p->x.rank &&
	       x->h->bytes > ck_dtype_info(x->p->x.dtype)->size;
}

static bool are_cut(struct ck_audit_pieces *rows)
{
	struct ck_audit_parts found = { .differ = false };

	ck_audit_parts(rows, &found);
	return found.differ;
}

/* The parameter itself, or one that what is so called would be a state of. */
static bool is_saved(const struct mindspore_set *s, const char *name,
		     size_t len)
{
	for (;;) {
		const char *dot = memchr(name, '.', len);

		if (ck_strmap_get(&s->a.names, name, len) != CK_STRMAP_NONE)
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

/* The first tensor of whose pieces @is says so; NULL: there is none. */
static int first_that(const struct mindspore_set *s, select_fn select,
		      bool (*is)(struct ck_audit_pieces *rows),
		      const char **name, struct ck_err *err)
{
	int ret = 0;

	*name = NULL;
	for (size_t i = 0; i < s->a.tensors.nr && !*name && !ret; i++) {
		ck_auto_audit_pieces struct ck_audit_pieces rows = { 0 };
		const struct ck_asm_tensor *t = &s->a.tensors.v[i];

		ret = gather(s, t, select, &rows, err);
		*name = is(&rows) ? t->name : NULL;
	}
	return ret;
}

/* Where one tensor contradicts it, others that fit it do so by chance. */
static int check_strategy(struct mindspore_set *s, struct ck_err *err)
{
	const char *name = NULL, *other;
	struct ck_err why;
	int ret = 0;

	for (size_t i = 0; i < s->a.tensors.nr && !ret; i++) {
		name = s->a.tensors.v[i].name;
		ret = contradicts(s, &s->a.tensors.v[i], &why);
	}
	if (ret == -ENOMEM)
		return ck_fail(err, ENOMEM, "%s", why.msg);
	if (ret) {
		snprintf(
			s->against, sizeof(s->against),
			"the strategy contradicts %.200s (%.300s), so its cuts are not those of this run: give that run's strategy file with -o strategy=FILE",
			name, why.msg);
		return 0;
	}
	if (!s->strategy.devices)
		return 0;
	ret = first_that(s, is_copy, ck_audit_none_agree, &name, err);
	if (ret || name) {
		snprintf(
			s->against, sizeof(s->against),
			"of %.200s no copies that the strategy says there are agree: it is of another run, or the ranks' files are of several saves; give this run's strategy file with -o strategy=FILE",
			name ? name : "");
		return ret;
	}
	other = are_slices(s) ? NULL : not_saved(s);
	if (other)
		ret = first_that(s, is_unknown, are_cut, &name, err);
	if (name)
		snprintf(
			s->against, sizeof(s->against),
			"the strategy is of other parameters: it does not know %.200s, which was cut, and %.200s, which it does, was not saved; give this run's strategy file with -o strategy=FILE (-o integrated=no uses this one)",
			name, other);
	return ret;
}

int ck_mindspore_doubt(struct mindspore_set *s, struct ck_err *err)
{
	bool decided;
	int ret = decide_integrated(s, &decided, err);

	if (!ret && !decided)
		ret = check_shards(s, err);
	if (!ret && !s->integrated && !s->smaller)
		ret = check_strategy(s, err);
	return ret;
}
