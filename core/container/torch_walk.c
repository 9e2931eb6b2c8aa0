/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_walk.c - the leaves of a saved object, in the order of the file
 */
#include "core/container/torch_walk.h"

#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_LEAVES (UINT64_C(1) << 26)

struct frame {
	struct ck_piter it;
	bool pairs;
	uint64_t next; /* position in a list or tuple */
	size_t name_len; /* of the path down to here */
};

struct walk {
	const struct ck_pickle *p;
	struct frame frame[CK_TORCH_MAX_DEPTH];
	unsigned depth;
	struct ck_str name;
	struct ck_torch_leaf leaf;
	uint64_t seen;
	ck_torch_key_fn lost; /* or NULL */
};

static bool is_dict(const struct ck_pickle *p, ck_pv v)
{
	ck_pv callee;

	if (ck_pv_kind(v) == CK_P_DICT)
		return true;
	if (ck_pv_kind(v) != CK_P_CALL)
		return false;
	callee = ck_pv_callee(p, v);
	return ck_pv_is_global(p, callee, "collections", "OrderedDict") ||
	       ck_pv_is_global(p, callee, "collections", "defaultdict");
}

static bool is_sequence(ck_pv v)
{
	return ck_pv_kind(v) == CK_P_LIST || ck_pv_kind(v) == CK_P_TUPLE;
}

/*
 * A list of numbers or strings (betas, shapes) is one leaf: only sequences
 * that hold containers or tensors are structure.
 */
static bool is_structure(const struct ck_pickle *p, ck_pv v)
{
	struct ck_piter it;
	ck_pv item;

	if (is_dict(p, v))
		return true;
	if (!is_sequence(v))
		return false;
	ck_piter_init(&it, p, v);
	while (ck_piter_next(&it, &item))
		if (is_dict(p, item) || is_sequence(item) ||
		    ck_pv_kind(item) == CK_P_CALL)
			return true;
	return false;
}

static void push_part(struct walk *w, const char *text, size_t len,
		      int64_t index)
{
	struct frame *top = &w->frame[w->depth - 1];
	struct ck_path_part *part = &w->leaf.path[w->depth - 1];

	w->name.len = top->name_len;
	if (w->depth > 1)
		ck_str_puts(&w->name, ".");
	if (index >= 0)
		ck_str_fmt(&w->name, "%" PRId64, index);
	else
		ck_str_add(&w->name, text, len);
	*part = (struct ck_path_part){ .key = text,
				       .key_len = len,
				       .index = index };
}

/* The next child of the innermost container; false: there is none. */
static bool next_child(struct walk *w, ck_pv *value, ck_pv *key)
{
	struct frame *top = &w->frame[w->depth - 1];

	if (top->pairs)
		return ck_piter_next2(&top->it, key, value);
	return ck_piter_next(&top->it, value);
}

static int enter(struct walk *w, ck_pv v, struct ck_err *err)
{
	struct frame *f = &w->frame[w->depth];

	if (w->depth == CK_TORCH_MAX_DEPTH)
		return ck_fail(err, E2BIG, "%.*s: nested more than %d deep",
			       (int)CK_MIN(w->name.len, 200), w->name.v,
			       CK_TORCH_MAX_DEPTH);
	*f = (struct frame){ .pairs = is_dict(w->p, v),
			     .name_len = w->name.len };
	if (f->pairs)
		ck_piter_init_pairs(&f->it, w->p, v);
	else
		ck_piter_init(&f->it, w->p, v);
	w->depth++;
	return 0;
}

static int give(struct walk *w, ck_pv v, ck_torch_leaf_fn fn, void *ctx,
		struct ck_err *err)
{
	if (w->name.failed)
		return ck_no_memory(err);
	if (++w->seen > MAX_LEAVES)
		return ck_fail(err, E2BIG, "over 2^26 leaves");
	w->leaf.value = v;
	w->leaf.name = w->name.v ? w->name.v : "";
	w->leaf.name_len = w->name.len;
	w->leaf.depth = w->depth;
	return fn(ctx, &w->leaf, err);
}

static int visit(struct walk *w, ck_pv v, ck_torch_leaf_fn fn, void *ctx,
		 struct ck_err *err)
{
	return is_structure(w->p, v) ? enter(w, v, err) :
				       give(w, v, fn, ctx, err);
}

/* A key that is no name leads to no tensor's name: the dict's is given. */
static int give_lost(struct walk *w, ck_pv key, ck_pv v, void *ctx,
		     struct ck_err *err)
{
	if (!w->lost)
		return 0;
	w->leaf.value = v;
	w->leaf.name = w->name.v ? w->name.v : "";
	w->leaf.name_len = w->frame[w->depth - 1].name_len;
	w->leaf.depth = w->depth - 1;
	return w->lost(ctx, &w->leaf, key, err);
}

static int step(struct walk *w, ck_torch_leaf_fn fn, void *ctx,
		struct ck_err *err)
{
	struct frame *top = &w->frame[w->depth - 1];
	/* a number's text must live as long as the path that points at it */
	static _Thread_local char number[CK_TORCH_MAX_DEPTH][24];
	ck_pv key = 0, value;
	const char *text;
	size_t len;

	if (!next_child(w, &value, &key)) {
		w->depth--;
		return 0;
	}
	if (++w->seen > MAX_LEAVES)
		return ck_fail(err, E2BIG, "over 2^26 entries");
	if (!top->pairs)
		push_part(w, NULL, 0, (int64_t)top->next++);
	else if (ck_pv_key_text(w->p, key, number[w->depth - 1], &text, &len))
		push_part(w, text, len, -1);
	else
		return give_lost(w, key, value, ctx, err);
	return visit(w, value, fn, ctx, err);
}

int ck_torch_walk_keys(const struct ck_pickle *p, ck_pv root,
		       ck_torch_leaf_fn fn, ck_torch_key_fn lost, void *ctx,
		       struct ck_err *err)
{
	struct walk w = { .p = p, .lost = lost };
	int ret = visit(&w, root, fn, ctx, err);

	while (!ret && w.depth)
		ret = step(&w, fn, ctx, err);
	ck_str_free(&w.name);
	return ret;
}

int ck_torch_walk(const struct ck_pickle *p, ck_pv root, ck_torch_leaf_fn fn,
		  void *ctx, struct ck_err *err)
{
	return ck_torch_walk_keys(p, root, fn, NULL, ctx, err);
}

int ck_torch_below_add(struct ck_torch_below *w, ck_pv v)
{
	enum ck_pkind kind = ck_pv_kind(v);
	size_t before = w->seen.nr;
	ck_pv *to;

	if (kind != CK_P_TUPLE && kind != CK_P_LIST && kind != CK_P_SET &&
	    kind != CK_P_DICT && kind != CK_P_CALL && kind != CK_P_PERSID)
		return 0;
	if (ck_strmap_keep(&w->seen, &w->mem, (const char *)&v, sizeof(v)) ==
	    CK_STRMAP_NONE)
		return -ENOMEM;
	to = w->seen.nr > before ? ck_vec_push(&w->todo) : NULL;
	if (to)
		*to = v;
	return to || w->seen.nr == before ? 0 : -ENOMEM;
}

bool ck_torch_below_next(struct ck_torch_below *w, ck_pv *v)
{
	if (!w->todo.nr)
		return false;
	*v = w->todo.v[--w->todo.nr];
	return true;
}

int ck_torch_below_enter(struct ck_torch_below *w, ck_pv v)
{
	struct ck_piter it;
	ck_pv key, item;
	int ret = 0;

	ck_piter_init_pairs(&it, w->p, v);
	while (!ret && ck_piter_next2(&it, &key, &item))
		ret = ck_torch_below_add(w, key) ?: ck_torch_below_add(w, item);
	if (ck_pv_kind(v) == CK_P_DICT)
		return ret;
	ck_piter_init(&it, w->p, v);
	while (!ret && ck_piter_next(&it, &item))
		ret = ck_torch_below_add(w, item);
	if (ret || ck_pv_kind(v) != CK_P_CALL)
		return ret;
	ret = ck_torch_below_add(w, ck_pv_callee(w->p, v)) ?:
		      ck_torch_below_add(w, ck_pv_args(w->p, v));
	if (!ret && ck_pv_state(w->p, v, &item))
		ret = ck_torch_below_add(w, item);
	if (!ret && ck_pv_kwargs(w->p, v, &item))
		ret = ck_torch_below_add(w, item);
	return ret;
}

void ck_torch_below_free(struct ck_torch_below *w)
{
	ck_strmap_free(&w->seen);
	ck_arena_free(&w->mem);
	free(w->todo.v);
}

bool ck_torch_is_rebuild(const struct ck_pickle *p, ck_pv v)
{
	const char *module, *name;
	size_t module_len, len;

	return ck_pv_kind(v) == CK_P_CALL &&
	       ck_pv_global(p, ck_pv_callee(p, v), &module, &module_len, &name,
			    &len) &&
	       module_len >= 5 && !memcmp(module, "torch", 5) && len > 8 &&
	       !memcmp(name, "_rebuild", 8);
}
