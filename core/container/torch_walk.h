/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_walk.h - the leaves of an object that torch.save wrote
 *
 * Dicts, lists and tuples are walked, OrderedDict and defaultdict too; all
 * else is a leaf: a tensor, or something that is shown as an object.  Names
 * are the parts of the path joined by dots.  Iterative; shared containers are
 * walked each time they are met, within a budget.
 */
#ifndef CK_TORCH_WALK_H
#define CK_TORCH_WALK_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/base/str.h"
#include "core/base/strmap.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"
#include "core/parse/pickle.h"

#define CK_TORCH_MAX_DEPTH 32

struct ck_torch_leaf {
	ck_pv value;
	const char *name; /* valid during the call */
	size_t name_len;
	struct ck_path_part path[CK_TORCH_MAX_DEPTH];
	unsigned depth;
};

typedef int (*ck_torch_leaf_fn)(void *ctx, const struct ck_torch_leaf *leaf,
				struct ck_err *err);

/* Stops at the first that does not return 0, and returns that. */
int ck_torch_walk(const struct ck_pickle *p, ck_pv root, ck_torch_leaf_fn fn,
		  void *ctx, struct ck_err *err);

/* Likewise; and what is below a key that is no name is given to @lost. */
typedef int (*ck_torch_key_fn)(void *ctx, const struct ck_torch_leaf *dict,
			       ck_pv key, struct ck_err *err);
int ck_torch_walk_keys(const struct ck_pickle *p, ck_pv root,
		       ck_torch_leaf_fn fn, ck_torch_key_fn lost, void *ctx,
		       struct ck_err *err);

/*
 * All that a value is made of, at any depth, each once, for what is stored may
 * contain itself: keys and elements, what is called with what, and its state.
 *
 *	struct ck_torch_below w = { .p = p };
 *	ret = ck_torch_below_add(&w, v);
 *	while (!ret && ck_torch_below_next(&w, &v))
 *		ret = ck_torch_below_enter(&w, v);   (unless that was all)
 *
 * Only values that are made of others are given.
 */
struct ck_torch_below {
	const struct ck_pickle *p;
	/* private */
	struct ck_strmap seen;
	struct ck_arena mem;
	CK_VEC(ck_pv) todo;
};
int ck_torch_below_add(struct ck_torch_below *w, ck_pv v); /* -ENOMEM */
bool ck_torch_below_next(struct ck_torch_below *w, ck_pv *v);
int ck_torch_below_enter(struct ck_torch_below *w, ck_pv v); /* -ENOMEM */
void ck_torch_below_free(struct ck_torch_below *w);
#define ck_auto_torch_below __attribute__((cleanup(ck_torch_below_free)))

/* Whether @v calls torch.@name, whatever submodule it is in. */
bool ck_torch_is_rebuild(const struct ck_pickle *p, ck_pv v);

#endif
