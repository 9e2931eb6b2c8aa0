/* SPDX-License-Identifier: Apache-2.0 */
/* torch_tree.c - levels of dicts and lists, opened and closed; see the header */
#include "core/view/torch/torch_tree.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/base/number.h"
#include "core/base/vec.h"
#include "core/emit/pickle_out.h"
#include "core/emit/torch_blob.h"
#include "core/parse/pickle.h"

#include <stdlib.h>
#include <string.h>

#define STATE "state"
#define GROUPS "param_groups"

/* A parameter as param_groups call it. */
struct param {
	const char *name;
	size_t len;
	uint64_t id;
};

/* The dict of an optimizer: its keys are parts number @level. */
struct optimizer {
	uint32_t leaf; /* of its first list of parameters */
	unsigned level;
	bool numbers; /* it was saved by numbers */
	bool has_state;
	uint64_t nr_ids;
	CK_VEC(struct param) param; /* sorted once all are there */
};

/* A list of parameters, and the number of its first. */
struct group {
	uint32_t leaf;
	uint64_t first, nr;
};

struct tree {
	const struct ck_torch_tree *in;
	const struct ck_catalog *img;
	struct ck_str *out;
	bool list[CK_TREE_DEPTH]; /* of the levels that are open */
	CK_VEC(struct optimizer) optimizer;
	CK_VEC(struct group) group;
};

static bool is_key(const struct ck_nest_part *part, const char *key)
{
	return part->key && ck_text_is(part->key, part->len, key);
}

static struct ck_nest_part part_of(const struct tree *t, uint32_t i,
				   unsigned level)
{
	return ck_leaf_part(t->img, &t->in->v[i], level);
}

static unsigned common(const struct tree *t, uint32_t a, uint32_t b)
{
	return ck_leaf_common(t->img, &t->in->v[a], &t->in->v[b]);
}

/* ---- optimizers ---- */

/* Whether leaf @i is the "params" of a group of an optimizer at *level. */
static bool is_params(const struct tree *t, uint32_t i, unsigned *level)
{
	unsigned depth = ck_leaf_depth(t->img, &t->in->v[i]);
	struct ck_nest_part groups, nr, params;

	if (depth < 3 || t->in->v[i].ref < t->img->nr_tensors)
		return false;
	*level = depth - 3;
	groups = part_of(t, i, depth - 3);
	nr = part_of(t, i, depth - 2);
	params = part_of(t, i, depth - 1);
	return is_key(&groups, GROUPS) && !nr.key && is_key(&params, "params");
}

static bool has_state(const struct tree *t, uint32_t leaf, unsigned level)
{
	for (uint32_t i = leaf + 1;
	     i < t->in->nr && common(t, leaf, i) >= level; i++) {
		struct ck_nest_part part = part_of(t, i, level);

		if (is_key(&part, STATE))
			return true;
	}
	return false;
}

static struct optimizer *optimizer_of(struct tree *t, uint32_t leaf,
				      unsigned level)
{
	size_t nr = t->optimizer.nr;
	struct optimizer *o = nr ? &t->optimizer.v[nr - 1] : NULL;

	if (o && o->level == level && common(t, o->leaf, leaf) >= level)
		return o;
	o = ck_vec_push(&t->optimizer);
	if (!o) {
		t->out->failed = true;
		return NULL;
	}
	*o = (struct optimizer){ .leaf = leaf,
				 .level = level,
				 .has_state = has_state(t, leaf, level) };
	return o;
}

static void take_params(struct tree *t, struct optimizer *o, uint32_t leaf,
			const struct ck_pickle *p)
{
	ck_pv root = ck_pickle_root(p), v;
	struct group *g = ck_vec_push(&t->group);
	struct ck_piter it;

	if (!g) {
		t->out->failed = true;
		return;
	}
	*g = (struct group){ .leaf = leaf, .first = o->nr_ids };
	ck_piter_init(&it, p, root);
	while (ck_piter_next(&it, &v)) {
		struct param one = { .id = o->nr_ids++ }, *to;
		int64_t n;

		g->nr++;
		if (ck_pv_int(p, v, &n))
			o->numbers = true;
		if (!ck_pv_str(p, v, &one.name, &one.len))
			continue;
		to = ck_vec_push(&o->param);
		if (to)
			*to = one;
		else
			t->out->failed = true;
	}
	if (o->numbers) /* the list stays as it is */
		t->group.nr--;
}

static int by_name(const void *pa, const void *pb)
{
	const struct param *a = pa, *b = pb;

	return ck_text_order(a->name, a->len, b->name, b->len);
}

static void find_optimizers(struct tree *t)
{
	for (uint32_t i = 0; i < t->in->nr; i++) {
		const struct ck_tree_leaf *leaf = &t->in->v[i];
		ck_auto_pickle struct ck_pickle *p = NULL;
		struct optimizer *o;
		unsigned level;

		if (!is_params(t, i, &level) ||
		    ck_pickle_parse(&p, t->in->values + leaf->at, leaf->len,
				    NULL, NULL, NULL))
			continue;
		o = optimizer_of(t, i, level);
		if (o)
			take_params(t, o, i, p);
	}
	for (size_t i = 0; i < t->optimizer.nr; i++) {
		struct optimizer *o = &t->optimizer.v[i];

		if (o->param.nr)
			qsort(o->param.v, o->param.nr, sizeof(*o->param.v),
			      by_name);
	}
}

/* The optimizer whose dict leaf @i is in, as its part number @level. */
static const struct optimizer *find_optimizer(const struct tree *t, uint32_t i,
					      unsigned level)
{
	for (size_t k = 0; k < t->optimizer.nr; k++) {
		const struct optimizer *o = &t->optimizer.v[k];

		if (o->level == level && common(t, o->leaf, i) >= level)
			return o;
	}
	return NULL;
}

static const struct group *group_of(const struct tree *t, uint32_t leaf)
{
	for (size_t k = 0; k < t->group.nr; k++)
		if (t->group.v[k].leaf == leaf)
			return &t->group.v[k];
	return NULL;
}

/* The number of the parameter that @part of leaf @i is called by. */
static bool param_id(const struct tree *t, uint32_t i, unsigned level,
		     const struct ck_nest_part *part, uint64_t *id)
{
	struct param key = { .name = part->key, .len = part->len }, *found;
	const struct optimizer *o;
	struct ck_nest_part above;

	if (!level)
		return false;
	above = part_of(t, i, level - 1);
	o = is_key(&above, STATE) ? find_optimizer(t, i, level - 1) : NULL;
	if (!o)
		return false;
	if (o->numbers)
		return part->len <= 18 &&
		       ck_decimal(part->key, part->len, UINT64_MAX, id);
	if (!t->in->ids || !o->param.nr)
		return false;
	found = bsearch(&key, o->param.v, o->param.nr, sizeof(key), by_name);
	if (found)
		*id = found->id;
	return found != NULL;
}

/* ---- levels ---- */

/*
 * Whether the level @level that begins at leaf @i is a list without holes:
 * positions 0, 1, 2 ... of everything below the same parent.
 */
static bool is_list(const struct tree *t, uint32_t i, unsigned level)
{
	uint64_t want = 0;

	for (uint32_t k = i; k < t->in->nr; k++) {
		struct ck_nest_part part;

		if (common(t, i, k) < level)
			break;
		part = part_of(t, k, level);
		if (part.key || (part.index != want && part.index + 1 != want))
			return false;
		want = part.index + 1;
	}
	return want != 0;
}

static void open_level(struct tree *t, uint32_t i, unsigned level)
{
	t->list[level] = is_list(t, i, level);
	ck_po_op(t->out, t->list[level] ? CK_PO_EMPTY_LIST : CK_PO_EMPTY_DICT);
	ck_po_op(t->out, CK_PO_MARK);
}

/* Closes levels down to @to, which then is the number that are open. */
static void close_levels(struct tree *t, unsigned from, unsigned to)
{
	while (from > to)
		ck_po_op(t->out,
			 t->list[--from] ? CK_PO_APPENDS : CK_PO_SETITEMS);
}

/* torch.optim wants a state, even where it has nothing (SGD) */
static void add_empty_state(struct tree *t, uint32_t i, unsigned level)
{
	const struct optimizer *o = find_optimizer(t, i, level);

	if (!o || o->has_state)
		return;
	ck_po_str(t->out, STATE, strlen(STATE));
	ck_po_op(t->out, CK_PO_EMPTY_DICT);
}

static void add_key(struct tree *t, uint32_t i, unsigned level)
{
	struct ck_nest_part part = part_of(t, i, level);
	uint64_t id;

	if (t->list[level])
		return;
	if (is_key(&part, GROUPS))
		add_empty_state(t, i, level);
	if (!part.key)
		ck_po_int(t->out, part.index);
	else if (param_id(t, i, level, &part, &id))
		ck_po_int(t->out, id);
	else
		ck_po_str(t->out, part.key, part.len);
}

/* ---- leaves ---- */

static void add_ids(struct ck_str *out, const struct group *g)
{
	ck_po_op(out, CK_PO_EMPTY_LIST);
	ck_po_op(out, CK_PO_MARK);
	for (uint64_t k = 0; k < g->nr; k++)
		ck_po_int(out, g->first + k);
	ck_po_op(out, CK_PO_APPENDS);
}

static void add_leaf(struct tree *t, uint32_t i)
{
	const struct ck_tree_leaf *leaf = &t->in->v[i];
	const struct ck_tensor *tensor;
	const struct group *g;

	if (leaf->ref < t->img->nr_tensors) {
		tensor = &t->img->tensors[leaf->ref];
		ck_po_tensor(t->out, tensor->dtype,
			     t->img->dims + tensor->shape, tensor->rank,
			     leaf->storage);
		return;
	}
	g = t->in->ids ? group_of(t, i) : NULL;
	if (g)
		add_ids(t->out, g);
	else /* without what says that a pickle begins, and ends */
		ck_str_add(t->out, t->in->values + leaf->at + 2, leaf->len - 3);
}

static void add_leaves(struct tree *t)
{
	unsigned open = 1;

	open_level(t, 0, 0);
	for (uint32_t i = 0; i < t->in->nr; i++) {
		unsigned depth = ck_leaf_depth(t->img, &t->in->v[i]);
		unsigned same = i ? common(t, i - 1, i) : 0;

		close_levels(t, open, same + 1);
		for (open = same + 1; open < depth; open++) {
			add_key(t, i, open - 1);
			open_level(t, i, open);
		}
		add_key(t, i, depth - 1);
		add_leaf(t, i);
	}
	close_levels(t, open, 0);
}

bool ck_torch_tree_pickle(const struct ck_torch_tree *in, struct ck_str *out)
{
	struct tree t = { .in = in, .img = in->img, .out = out };
	bool numbered = false;

	ck_po_begin(out);
	/* what was saved by itself, in nothing, is the only one */
	if (in->nr && !ck_leaf_depth(in->img, &in->v[0])) {
		add_leaf(&t, 0);
	} else {
		find_optimizers(&t);
		add_leaves(&t);
	}
	ck_po_end(out);
	for (size_t i = 0; i < t.optimizer.nr; i++) {
		const struct optimizer *o = &t.optimizer.v[i];

		numbered |= o->numbers || (in->ids && o->param.nr);
		free(o->param.v);
	}
	free(t.optimizer.v);
	free(t.group.v);
	return numbered;
}
