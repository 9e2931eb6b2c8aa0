/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names.c - a module saved as an object: its names as state_dict gives them
 *
 * The state of a module has _parameters, _buffers and _modules; what is in
 * them is walked under the module's own name.  Modules wait in a queue: their
 * nesting is the file's, not ours.
 */
#include "core/format/oneflow/file_priv.h"

#include "core/base/auto.h"
#include "core/base/str.h"
#include "core/base/vec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_MODULES 65536
#define MAX_PREFIX 4096

struct module {
	ck_pv value;
	char *prefix; /* of its names, with its dot */
};

struct walk {
	const struct ck_pickle *p;
	ck_torch_leaf_fn fn;
	void *ctx;
	const char *prefix; /* of the module walked now; NULL: none */
	CK_VEC(struct module) queue;
};

static int later(struct walk *w, const struct ck_torch_leaf *leaf,
		 struct ck_err *err)
{
	ck_auto_str struct ck_str s = { 0 };
	struct module *m;

	ck_str_puts(&s, w->prefix ? w->prefix : "");
	ck_str_add(&s, leaf->name, leaf->name_len);
	if (leaf->name_len)
		ck_str_puts(&s, ".");
	if (s.len > MAX_PREFIX || w->queue.nr == MAX_MODULES)
		return ck_fail(err, E2BIG,
			       "over %d modules, or names over %d bytes",
			       MAX_MODULES, MAX_PREFIX);
	m = s.failed ? NULL : ck_vec_push(&w->queue);
	if (!m)
		return ck_fail(err, ENOMEM, "no memory for modules");
	*m = (struct module){ .value = leaf->value };
	m->prefix = ck_steal(s.v);
	return m->prefix || (m->prefix = strdup("")) ?
		       0 :
		       ck_fail(err, ENOMEM, "no memory for modules");
}

static int take(void *ctx, const struct ck_torch_leaf *leaf, struct ck_err *err)
{
	ck_auto_str struct ck_str s = { 0 };
	struct walk *w = ctx;
	struct ck_torch_leaf full = *leaf;

	if (ck_of_is_module(w->p, leaf->value))
		return later(w, leaf, err);
	if (!w->prefix)
		return w->fn(w->ctx, leaf, err);
	if (ck_pv_kind(leaf->value) == CK_P_NONE)
		return 0; /* a parameter that is switched off */
	ck_str_puts(&s, w->prefix);
	ck_str_add(&s, leaf->name, leaf->name_len);
	if (s.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	full.name = s.v;
	full.name_len = s.len;
	full.depth = 0;
	return w->fn(w->ctx, &full, err);
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
	if (!ck_piter_next2(&it, &a, &b))
		return 0;
	return ck_torch_walk(w->p, part, take, w, err);
}

static int walk_module(struct walk *w, const struct module *m,
		       struct ck_err *err)
{
	static const char *const parts[] = { "_parameters", "_buffers",
					     "_modules" };
	int ret = 0;

	w->prefix = m->prefix;
	for (unsigned i = 0; !ret && i < 3; i++)
		ret = walk_part(w, m->value, parts[i], err);
	return ret;
}

int ck_of_walk(const struct ck_pickle *p, ck_pv root, ck_torch_leaf_fn fn,
	       void *ctx, struct ck_err *err)
{
	struct walk w = { .p = p, .fn = fn, .ctx = ctx };
	int ret = ck_torch_walk(p, root, take, &w, err);

	for (size_t i = 0; !ret && i < w.queue.nr; i++) {
		struct module m = w.queue.v[i]; /* the queue may move */

		ret = walk_module(&w, &m, err);
	}
	for (size_t i = 0; i < w.queue.nr; i++)
		free(w.queue.v[i].prefix);
	free(w.queue.v);
	return ret;
}
