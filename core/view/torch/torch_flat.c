/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_flat.c - the last keys of paths, taken apart at their dots
 *
 * Works on the leaves of one dict after the other, which are neighbours.
 * Nothing is changed before all of a dict is known to fit.
 */
#include "core/view/torch/torch_flat.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/emit/pickle_out.h"
#include "core/view/torch/torch_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STATE "state"
#define GROUPS "param_groups"
#define PARAMS "params"

#define MAX_VALUE 64 /* bytes of a tensor that is a group's value */
#define DROPPED CK_NONE /* as a leaf's storage */

struct text {
	const char *s;
	size_t len;
};

/* What one param_groups.PARAM.KEY says. */
struct entry {
	struct text param, key;
	uint32_t leaf, order;
};

struct param {
	struct text name;
	size_t first, nr; /* entries, sorted by key */
	uint32_t order; /* of the first of them */
	uint32_t group;
};

/* The leaves [lo, hi) are below a dict; its keys are parts number @level. */
struct dict {
	struct ck_torch_flat *f;
	uint32_t lo, hi;
	unsigned level;
	CK_VEC(struct entry) entry; /* by parameter, then key */
	CK_VEC(struct param) param; /* by name */
	CK_VEC(uint32_t) saved; /* parameters in the order of the save */
	CK_VEC(uint32_t) state; /* leaves */
	uint32_t nr_groups;
	struct ck_nest_part *paths; /* the next that is free */
};

static const struct ck_tree_leaf *leaf_of(const struct dict *d, uint32_t i)
{
	return &d->f->leaves->v[i];
}

static struct ck_nest_part key_of(const struct dict *d, uint32_t i)
{
	return ck_leaf_part(d->f->img, leaf_of(d, i), d->level);
}

static uint32_t order_of(const struct ck_catalog *img, uint32_t ref)
{
	return ref < img->nr_tensors ?
		       img->tensors[ref].order :
		       img->objects[ref - img->nr_tensors].order;
}

/* What follows "WORD." in @part. */
static bool after(const struct ck_nest_part *part, const char *word,
		  struct text *rest)
{
	size_t len = strlen(word);

	if (!part->key || part->len <= len || part->key[len] != '.' ||
	    memcmp(part->key, word, len) != 0)
		return false;
	*rest = (struct text){ part->key + len + 1, part->len - len - 1 };
	return true;
}

static bool is(const struct ck_nest_part *part, const char *word)
{
	return part->key && ck_text_is(part->key, part->len, word);
}

static int cmp_text(const struct text *a, const struct text *b)
{
	return ck_text_order(a->s, a->len, b->s, b->len);
}

static int by_param(const void *pa, const void *pb)
{
	const struct entry *a = pa, *b = pb;
	int cmp = cmp_text(&a->param, &b->param);

	return cmp ? cmp : cmp_text(&a->key, &b->key);
}

static int by_name(const void *a, const void *b)
{
	return cmp_text(&((const struct param *)a)->name,
			&((const struct param *)b)->name);
}

static int by_order(const void *pa, const void *pb, void *params)
{
	const struct param *v = params;
	uint32_t a = v[*(const uint32_t *)pa].order;
	uint32_t b = v[*(const uint32_t *)pb].order;

	return (a > b) - (a < b);
}

/* ---- what there is: 0, 1 where *why the dict stays flat, -ENOMEM ---- */

static int stays(struct dict *d, const char *why)
{
	if (!d->f->why)
		d->f->why = why;
	return 1;
}

static int take_entry(struct dict *d, uint32_t i, struct text rest)
{
	const char *dot = memrchr(rest.s, '.', rest.len);
	struct entry *e;

	if (!dot || dot == rest.s || dot + 1 == rest.s + rest.len)
		return stays(d, "a key of its param_groups has no NAME.VALUE");
	e = ck_vec_push(&d->entry);
	if (!e)
		return -ENOMEM;
	*e = (struct entry){ .param = { rest.s, (size_t)(dot - rest.s) },
			     .leaf = i,
			     .order = order_of(d->f->img, leaf_of(d, i)->ref) };
	e->key.s = dot + 1;
	e->key.len = rest.len - e->param.len - 1;
	if (ck_text_is(e->key.s, e->key.len, PARAMS))
		return stays(d, "its param_groups have lists of parameters");
	return e->order ? 0 : stays(d, "no order of its keys is known");
}

static int take_leaf(struct dict *d, uint32_t i)
{
	unsigned depth = ck_leaf_depth(d->f->img, leaf_of(d, i));
	struct ck_nest_part part = key_of(d, i);
	struct text rest;
	uint32_t *state;

	if (is(&part, STATE) || is(&part, GROUPS))
		return stays(d, "a part of it is not flattened");
	if (after(&part, GROUPS, &rest)) {
		if (depth != d->level + 1)
			return stays(d, "a value of its param_groups holds "
					"tensors");
		return take_entry(d, i, rest);
	}
	if (!after(&part, STATE, &rest))
		return 0;
	if (depth != d->level + 1)
		return stays(d, "a part of its state is not flattened");
	state = ck_vec_push(&d->state);
	if (!state)
		return -ENOMEM;
	*state = i;
	return 0;
}

static int take_params(struct dict *d)
{
	struct param *p = NULL;

	qsort(d->entry.v, d->entry.nr, sizeof(*d->entry.v), by_param);
	if (!ck_vec_reserve(&d->param, d->entry.nr) ||
	    !ck_vec_reserve(&d->saved, d->entry.nr))
		return -ENOMEM;
	for (size_t i = 0; i < d->entry.nr; i++) {
		const struct entry *e = &d->entry.v[i];

		if (!p || cmp_text(&p->name, &e->param)) {
			d->saved.v[d->saved.nr++] = (uint32_t)d->param.nr;
			p = &d->param.v[d->param.nr++];
			*p = (struct param){ .name = e->param,
					     .first = i,
					     .order = e->order };
		}
		p->nr++;
		p->order = CK_MIN(p->order, e->order);
	}
	qsort_r(d->saved.v, d->saved.nr, sizeof(*d->saved.v), by_order,
		d->param.v);
	return 0;
}

/* Whether one optimizer gave them, each parameter's after another's. */
static int check_order(struct dict *d)
{
	uint64_t next = d->param.v[d->saved.v[0]].order;

	for (size_t i = 0; i < d->saved.nr; i++) {
		const struct param *p = &d->param.v[d->saved.v[i]];
		uint64_t last = p->order;

		for (size_t k = 0; k < p->nr; k++)
			last = CK_MAX(last, d->entry.v[p->first + k].order);
		if (p->order != next || last + 1 - next != p->nr)
			return stays(d, "the keys of its param_groups do not "
					"follow each other, as where several "
					"ranks or optimizers gave some each: "
					"no order of all is known");
		next = last + 1;
	}
	return 0;
}

/* ---- groups ---- */

/* 1: equal, 0: not, -1: not known */
static int same_tensor(const struct dict *d, uint32_t ta, uint32_t tb)
{
	const struct ck_tensor *a = &d->f->img->tensors[ta];
	const struct ck_tensor *b = &d->f->img->tensors[tb];
	unsigned char va[MAX_VALUE], vb[MAX_VALUE];

	if (a->dtype != b->dtype || a->rank != b->rank || a->size != b->size ||
	    memcmp(d->f->img->dims + a->shape, d->f->img->dims + b->shape,
		   a->rank * sizeof(uint64_t)) != 0)
		return 0;
	if (a->size > MAX_VALUE || !d->f->read(d->f->ctx, ta, va, a->size) ||
	    !d->f->read(d->f->ctx, tb, vb, b->size))
		return -1;
	return !memcmp(va, vb, a->size);
}

static int same_value(const struct dict *d, const struct entry *ea,
		      const struct entry *eb)
{
	const struct ck_tree_leaf *a = leaf_of(d, ea->leaf);
	const struct ck_tree_leaf *b = leaf_of(d, eb->leaf);
	bool tensor = a->ref < d->f->img->nr_tensors;

	if (cmp_text(&ea->key, &eb->key) ||
	    tensor != (b->ref < d->f->img->nr_tensors))
		return 0;
	if (tensor)
		return same_tensor(d, a->ref, b->ref);
	return a->len == b->len && !memcmp(d->f->values->v + a->at,
					   d->f->values->v + b->at, a->len);
}

static int same_values(const struct dict *d, const struct param *a,
		       const struct param *b)
{
	int same = a->nr == b->nr;

	for (size_t k = 0; k < a->nr && same > 0; k++)
		same = same_value(d, &d->entry.v[a->first + k],
				  &d->entry.v[b->first + k]);
	return same;
}

static int find_groups(struct dict *d)
{
	for (size_t i = 0; i < d->saved.nr; i++) {
		struct param *p = &d->param.v[d->saved.v[i]];
		int same =
			i ? same_values(d, &d->param.v[d->saved.v[i - 1]], p) :
			    0;

		if (same < 0)
			return stays(d, "a tensor of its param_groups cannot "
					"be read, or is large");
		d->nr_groups += !same;
		p->group = d->nr_groups - 1;
	}
	return 0;
}

/* ---- paths ---- */

static size_t nr_dots(struct ck_nest_part key)
{
	size_t nr = 0;

	for (size_t i = 0; i < key.len && nr < CK_TREE_DEPTH; i++)
		nr += key.key[i] == '.';
	return nr;
}

/* Room for the paths of all that is nested. */
static int reserve_paths(struct dict *d)
{
	size_t own = (size_t)d->level + 3;
	size_t nr = own * (d->entry.nr + d->param.nr + d->state.nr);
	struct ck_nest_part **block;

	for (size_t i = 0; i < d->state.nr; i++)
		nr += nr_dots(key_of(d, d->state.v[i]));
	block = ck_vec_push(&d->f->paths);
	if (!block)
		return -ENOMEM;
	*block = d->paths = calloc(nr + 1, sizeof(*d->paths));
	return d->paths ? 0 : -ENOMEM;
}

/* Begins the path of what is below the dict as leaf @i is. */
static struct ck_nest_part *begin_path(struct dict *d, uint32_t i,
				       const char *word)
{
	struct ck_nest_part *at = d->paths;

	for (unsigned l = 0; l < d->level; l++)
		*at++ = ck_leaf_part(d->f->img, leaf_of(d, i), l);
	*at++ = (struct ck_nest_part){ .key = word, .len = strlen(word) };
	return at;
}

static void end_path(struct dict *d, struct ck_tree_leaf *leaf,
		     struct ck_nest_part *end)
{
	leaf->path = d->paths;
	leaf->depth = (unsigned)(end - d->paths);
	d->paths = end;
}

/* The parameter that @rest begins with, the longest; NULL: none. */
static const struct param *owner_of(const struct dict *d, struct text rest)
{
	struct param key = { .name = rest };

	for (unsigned n = 0; n < CK_TREE_DEPTH; n++) {
		const char *dot = memrchr(rest.s, '.', key.name.len);
		const struct param *p;

		if (!dot)
			return NULL;
		key.name.len = (size_t)(dot - rest.s);
		p = bsearch(&key, d->param.v, d->param.nr, sizeof(key),
			    by_name);
		if (p)
			return p;
	}
	return NULL;
}

static int nest_state(struct dict *d, uint32_t i)
{
	struct ck_nest_part part = key_of(d, i), *at;
	const struct param *p;
	struct text rest;

	after(&part, STATE, &rest);
	p = owner_of(d, rest);
	if (!p)
		return stays(d, "a state is of no parameter that is in its "
				"param_groups");
	at = begin_path(d, i, STATE);
	*at++ = (struct ck_nest_part){ .key = p->name.s, .len = p->name.len };
	rest.s += p->name.len + 1;
	rest.len -= p->name.len + 1;
	for (const char *dot = rest.s; dot; at++) {
		dot = memchr(rest.s, '.', rest.len);
		at->key = rest.s;
		at->len = dot ? (size_t)(dot - rest.s) : rest.len;
		rest.s += at->len + 1;
		rest.len -= dot ? at->len + 1 : 0;
	}
	if (at - d->paths > CK_TREE_DEPTH)
		return stays(d, "its state is nested too deeply");
	end_path(d, &d->f->leaves->v[i], at);
	return 0;
}

/* A key cannot be a value and a dict at once. */
static int check_clashes(struct dict *d)
{
	ck_auto_free struct ck_tree_leaf *copy =
		calloc(d->state.nr + 1, sizeof(*copy));
	struct ck_tree_leaves all = { .v = copy, .nr = d->state.nr };

	if (!copy)
		return -ENOMEM;
	for (size_t i = 0; i < all.nr; i++)
		copy[i] = *leaf_of(d, d->state.v[i]);
	ck_leaves_sort(d->f->img, &all);
	for (size_t i = 1; i < all.nr; i++)
		if (ck_leaf_common(d->f->img, &copy[i - 1], &copy[i]) ==
		    copy[i - 1].depth)
			return stays(d, "a key of its state is a value and a "
					"dict");
	return 0;
}

static int nest_states(struct dict *d)
{
	int ret = 0;

	for (size_t i = 0; i < d->state.nr && !ret; i++)
		ret = nest_state(d, d->state.v[i]);
	if (!ret)
		ret = check_clashes(d);
	for (size_t i = 0; ret && i < d->state.nr; i++)
		d->f->leaves->v[d->state.v[i]].path = NULL;
	return ret;
}

static struct ck_nest_part *group_path(struct dict *d, uint32_t i,
				       uint32_t group)
{
	struct ck_nest_part *at = begin_path(d, i, GROUPS);

	*at++ = (struct ck_nest_part){ .index = group };
	return at;
}

/* The group's values are those of its first parameter, others' are no more. */
static void nest_values(struct dict *d, const struct param *p, bool first)
{
	for (size_t k = 0; k < p->nr; k++) {
		const struct entry *e = &d->entry.v[p->first + k];
		struct ck_tree_leaf *leaf = &d->f->leaves->v[e->leaf];
		struct ck_nest_part *at;

		if (!first) {
			leaf->storage = DROPPED;
			continue;
		}
		at = group_path(d, e->leaf, p->group);
		*at++ = (struct ck_nest_part){ .key = e->key.s,
					       .len = e->key.len };
		end_path(d, leaf, at);
	}
}

static void add_names(struct dict *d, size_t from, size_t to)
{
	struct ck_str *s = d->f->values;

	ck_po_begin(s);
	ck_po_op(s, CK_PO_EMPTY_LIST);
	ck_po_op(s, CK_PO_MARK);
	for (size_t i = from; i < to; i++) {
		const struct text *name = &d->param.v[d->saved.v[i]].name;

		ck_po_str(s, name->s, name->len);
	}
	ck_po_op(s, CK_PO_APPENDS);
	ck_po_end(s);
}

/* The parameters [from, to) in the order of the save are a group. */
static void nest_group(struct dict *d, size_t from, size_t to)
{
	const struct param *p = &d->param.v[d->saved.v[from]];
	uint32_t like = d->entry.v[p->first].leaf;
	struct ck_tree_leaf leaf = { .ref = CK_NONE, .at = d->f->values->len };
	struct ck_nest_part *at = group_path(d, like, p->group);

	*at++ = (struct ck_nest_part){ .key = PARAMS, .len = strlen(PARAMS) };
	end_path(d, &leaf, at);
	add_names(d, from, to);
	leaf.len = d->f->values->len - leaf.at;
	for (size_t i = from; i < to; i++)
		nest_values(d, &d->param.v[d->saved.v[i]], i == from);
	d->f->leaves->v[d->f->leaves->nr++] = leaf;
}

static int nest_groups(struct dict *d)
{
	size_t end;

	if (!ck_vec_reserve(d->f->leaves, d->nr_groups))
		return -ENOMEM;
	for (size_t i = 0; i < d->saved.nr; i = end) {
		uint32_t group = d->param.v[d->saved.v[i]].group;

		for (end = i; end < d->saved.nr &&
			      d->param.v[d->saved.v[end]].group == group;)
			end++;
		nest_group(d, i, end);
	}
	d->f->nr++;
	d->f->nr_groups += d->nr_groups;
	return 0;
}

/* ---- dicts ---- */

static int nest_dict(struct dict *d)
{
	int ret = 0;

	for (uint32_t i = d->lo; i < d->hi && !ret; i++)
		ret = take_leaf(d, i);
	if (!ret)
		ret = take_params(d);
	if (!ret)
		ret = check_order(d);
	if (!ret)
		ret = find_groups(d);
	if (!ret)
		ret = reserve_paths(d);
	if (!ret)
		ret = nest_states(d);
	return ret ? ret : nest_groups(d);
}

static int nest_below(struct ck_torch_flat *f, uint32_t lo, uint32_t hi,
		      unsigned level)
{
	struct dict d = { .f = f, .lo = lo, .hi = hi, .level = level };
	int ret = nest_dict(&d);

	free(d.entry.v);
	free(d.param.v);
	free(d.saved.v);
	free(d.state.v);
	return CK_MIN(ret, 0);
}

/* Whether a key of the dict that the leaf is in is of a flattened one. */
static bool is_flat(const struct ck_torch_flat *f, uint32_t i, unsigned *level)
{
	const struct ck_tree_leaf *leaf = &f->leaves->v[i];
	unsigned depth = leaf->path ? 0 : ck_leaf_depth(f->img, leaf);
	struct ck_nest_part part;
	struct text rest;

	if (!depth || leaf->storage == DROPPED)
		return false;
	*level = depth - 1;
	part = ck_leaf_part(f->img, leaf, *level);
	return after(&part, GROUPS, &rest);
}

static void drop(struct ck_torch_flat *f)
{
	struct ck_tree_leaves *l = f->leaves;
	size_t kept = 0;

	for (size_t i = 0; i < l->nr; i++)
		if (l->v[i].storage != DROPPED)
			l->v[kept++] = l->v[i];
	l->nr = kept;
}

int ck_torch_flat_nest(struct ck_torch_flat *f, struct ck_err *err)
{
	const struct ck_tree_leaf *v = f->leaves->v;
	uint32_t nr = (uint32_t)f->leaves->nr, done[CK_TREE_DEPTH] = { 0 };
	unsigned level;
	int ret = 0;

	for (uint32_t i = 0; i < nr && !ret; i++, v = f->leaves->v) {
		uint32_t lo = i, hi = i + 1;

		if (!is_flat(f, i, &level) || i < done[level])
			continue;
		while (lo && ck_leaf_common(f->img, &v[lo - 1], &v[i]) >= level)
			lo--;
		while (hi < nr &&
		       ck_leaf_common(f->img, &v[hi], &v[i]) >= level)
			hi++;
		done[level] = hi;
		ret = nest_below(f, lo, hi, level);
	}
	drop(f);
	ck_leaves_sort(f->img, f->leaves);
	if (!ret && f->values->failed)
		ret = -ENOMEM;
	return ret ? ck_no_memory(err) : 0;
}

void ck_torch_flat_free(struct ck_torch_flat *f)
{
	for (size_t i = 0; i < f->paths.nr; i++)
		free(f->paths.v[i]);
	free(f->paths.v);
}
