/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modules.c - a module saved as an object: its names as state_dict gives them
 *
 * The state of a module has _parameters, _buffers and _modules; what is in
 * them is walked under the module's own name.  Modules wait in a queue: their
 * nesting is the file's, not ours.
 */
#include "core/format/oneflow/oneflow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MODULES 65536
#define MAX_PREFIX 4096

struct module {
	ck_pv value;
	const char *prefix; /* of its names, with its dot */
};

struct walk {
	const struct ck_pickle *p;
	ck_torch_leaf_fn fn;
	void *ctx;
	const char *prefix; /* of the module walked now; NULL: none */
	CK_VEC(struct module) queue;
	struct ck_arena mem;
};

static bool is_module(const struct ck_pickle *p, ck_pv v)
{
	ck_pv part;

	return ck_pv_kind(v) == CK_P_CALL &&
	       ck_pv_attr(p, v, "_parameters", &part) &&
	       ck_pv_attr(p, v, "_buffers", &part) &&
	       ck_pv_attr(p, v, "_modules", &part);
}

static int later(struct walk *w, const struct ck_torch_leaf *leaf,
		 struct ck_err *err)
{
	const char *before = w->prefix ? w->prefix : "";
	struct ck_str s = { 0 };
	struct module *m;

	ck_str_puts(&s, before);
	ck_str_add(&s, leaf->name, leaf->name_len);
	if (leaf->name_len)
		ck_str_puts(&s, ".");
	if (s.len > MAX_PREFIX || w->queue.nr == MAX_MODULES) {
		ck_str_free(&s);
		return ck_fail(err, E2BIG,
			       "over %d modules, or names over %d bytes",
			       MAX_MODULES, MAX_PREFIX);
	}
	m = s.failed ? NULL : ck_vec_push(&w->queue);
	if (m)
		*m = (struct module){ leaf->value,
				      ck_arena_copy(&w->mem, s.v, s.len) };
	ck_str_free(&s);
	return m && m->prefix ? 0 : ck_no_memory(err);
}

static int take(void *ctx, const struct ck_torch_leaf *leaf, struct ck_err *err)
{
	struct ck_str s = { 0 };
	struct walk *w = ctx;
	struct ck_torch_leaf full = *leaf;
	int ret;

	if (is_module(w->p, leaf->value))
		return later(w, leaf, err);
	if (!w->prefix)
		return w->fn(w->ctx, leaf, err);
	if (ck_pv_kind(leaf->value) == CK_P_NONE)
		return 0; /* a parameter that is switched off */
	ck_str_puts(&s, w->prefix);
	ck_str_add(&s, leaf->name, leaf->name_len);
	full.name = s.v;
	full.name_len = s.len;
	full.depth = 0;
	ret = s.failed ? ck_no_memory(err) : w->fn(w->ctx, &full, err);
	ck_str_free(&s);
	return ret;
}

/* An empty dict is a leaf of no meaning here. */
static int walk_part(struct walk *w, ck_pv module, const char *key,
		     struct ck_err *err)
{
	struct ck_piter it;
	ck_pv part, a, b;

	if (!ck_pv_attr(w->p, module, key, &part))
		return 0;
	ck_piter_init_pairs(&it, w->p, part);
	return ck_piter_next2(&it, &a, &b) ?
		       ck_torch_walk(w->p, part, take, w, err) :
		       0;
}

int ck_oneflow_walk(const struct ck_pickle *p, ck_pv root, ck_torch_leaf_fn fn,
		    void *ctx, struct ck_err *err)
{
	static const char *const parts[] = { "_parameters", "_buffers",
					     "_modules" };
	struct walk w = { .p = p, .fn = fn, .ctx = ctx };
	int ret = ck_torch_walk(p, root, take, &w, err);

	for (size_t i = 0; !ret && i < w.queue.nr; i++) {
		struct module m = w.queue.v[i]; /* the queue may move */

		w.prefix = m.prefix;
		for (unsigned k = 0; !ret && k < 3; k++)
			ret = walk_part(&w, m.value, parts[k], err);
	}
	free(w.queue.v);
	ck_arena_free(&w.mem);
	return ret;
}
