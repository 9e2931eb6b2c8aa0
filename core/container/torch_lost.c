/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_lost.c - looks for tensors inside of what the walk takes for a leaf
 */
#include "core/container/torch_lost.h"

#include "core/container/torch_walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_SAID 16 /* lines of each sort; the others are counted */

struct lost {
	const struct ck_torch_lost_in *in;
	const struct ck_pickle *p;
	struct ck_torch_below inside; /* what was looked into */
	uint64_t keys, objects; /* found so far */
	uint64_t below; /* tensors below those keys */
};

static bool is_tensor(const struct lost *l, ck_pv v)
{
	return l->in->is_tensor ? l->in->is_tensor(l->in->ctx, l->p, v) :
				  ck_torch_is_rebuild(l->p, v);
}

/* How many tensors are in @v that were not counted before. */
static int count(struct lost *l, ck_pv v, uint64_t *nr, struct ck_err *err)
{
	int ret = ck_torch_below_add(&l->inside, v);

	while (!ret && ck_torch_below_next(&l->inside, &v))
		if (is_tensor(l, v))
			++*nr;
		else
			ret = ck_torch_below_enter(&l->inside, v);
	return ret ? ck_fail(err, -ret, "no memory to look for tensors") : 0;
}

/*
 * What was called: the class, also by way of copyreg, and of the legacy form's
 * ("module", class, source).
 */
static ck_pv class_of(const struct ck_pickle *p, ck_pv v)
{
	ck_pv callee = ck_pv_callee(p, v), cls;

	if ((ck_pv_is_global(p, callee, "copy_reg", "_reconstructor") ||
	     ck_pv_is_global(p, callee, "copyreg", "_reconstructor")) &&
	    ck_pv_at(p, ck_pv_args(p, v), 0, &cls))
		return cls;
	if (ck_pv_kind(callee) == CK_P_PERSID &&
	    ck_pv_at(p, ck_pv_persid(p, callee), 1, &cls))
		return cls;
	return callee;
}

static const char *describe(const struct lost *l, ck_pv v, char *buf,
			    size_t len)
{
	static const char *const kind[] = {
		[CK_P_NONE] = "None",
		[CK_P_INT] = "an integer",
		[CK_P_BIGINT] = "an integer over 64 bits",
		[CK_P_FLOAT] = "a float",
		[CK_P_TUPLE] = "a tuple",
		[CK_P_LIST] = "a list",
		[CK_P_DICT] = "a dict",
		[CK_P_SET] = "a set",
		[CK_P_CALL] = "an object",
		[CK_P_PERSID] = "a storage",
	};
	const struct ck_pickle *p = l->p;
	ck_pv cls = ck_pv_kind(v) == CK_P_CALL ? class_of(p, v) : v;
	const char *module, *name, *text = NULL;
	size_t module_len, name_len;

	if (is_tensor(l, v))
		return "a tensor";
	if (!ck_pv_global(p, cls, &module, &module_len, &name, &name_len)) {
		if (ck_pv_kind(v) <= CK_P_PERSID)
			text = kind[ck_pv_kind(v)];
		return text ? text : "a value";
	}
	snprintf(buf, len, "%s%.*s.%.*s", cls == v ? "" : "an object of ",
		 (int)(module_len < 80 ? module_len : 80), module,
		 (int)(name_len < 80 ? name_len : 80), name);
	return buf;
}

/* The place in the file, for people: a long one is cut. */
static const char *place(const struct ck_torch_leaf *leaf, char *buf,
			 size_t len)
{
	if (!leaf->name_len)
		return "the object at the top";
	snprintf(buf, len, "%.*s%s",
		 (int)(leaf->name_len < 200 ? leaf->name_len : 200), leaf->name,
		 leaf->name_len < 200 ? "" : "...");
	return buf;
}

static int say_key(void *ctx, const struct ck_torch_leaf *leaf, ck_pv key,
		   struct ck_err *err)
{
	struct lost *l = ctx;
	char where[256], what[256];
	uint64_t nr = is_tensor(l, leaf->value);
	int ret = nr ? 0 : count(l, leaf->value, &nr, err);

	if (!ret)
		ret = count(l, key, &nr, err);
	l->below += nr;
	if (ret || !nr || ++l->keys > MAX_SAID)
		return ret;
	return ck_builder_report_file(
		l->in->b, CK_ERROR, l->in->file, err,
		"%s: expected keys that are texts%s, found %s; left out: tensors below it, %" PRIu64
		" (%" PRIu64 " in all so far)",
		place(leaf, where, sizeof(where)),
		l->in->integers ? "" : " or integers",
		describe(l, key, what, sizeof(what)), nr, l->below);
}

static int report_object(void *ctx, const struct ck_torch_leaf *leaf,
			 struct ck_err *err)
{
	struct lost *l = ctx;
	char where[256], what[256];
	uint64_t nr = 0;
	int ret;

	if (l->in->keys_only || is_tensor(l, leaf->value))
		return 0;
	ret = count(l, leaf->value, &nr, err);
	if (ret || !nr || ++l->objects > MAX_SAID)
		return ret;
	return ck_builder_report_file(
		l->in->b, l->in->any ? CK_WARNING : CK_ERROR, l->in->file, err,
		"%s: %s; tensors inside, not shown: %" PRIu64
		"; torch.load it and save its state_dict",
		place(leaf, where, sizeof(where)),
		describe(l, leaf->value, what, sizeof(what)), nr);
}

static int report_more(struct lost *l, uint64_t found,
		       enum ck_severity severity, const char *what,
		       struct ck_err *err)
{

	if (found <= MAX_SAID)
		return 0;
	return ck_builder_report_file(l->in->b, severity, l->in->file, err,
				      "%" PRIu64
				      " more %s hold tensors that are "
				      "not shown",
				      found - MAX_SAID, what);
}

static int report_integers(struct lost *l, struct ck_err *err)
{
	struct ck_torch_leaf leaf = { .name = "" };
	struct ck_piter it;
	int64_t n;
	ck_pv key;
	int ret = 0;

	ck_piter_init_pairs(&it, l->p, l->in->from);
	while (!ret && ck_piter_next2(&it, &key, &leaf.value))
		if (ck_pv_int(l->p, key, &n))
			ret = say_key(l, &leaf, key, err);
	return ret;
}

int ck_torch_lost_report(const struct ck_torch_lost_in *in, struct ck_err *err)
{
	struct lost l = { .in = in, .p = in->p, .inside = { .p = in->p } };
	int ret = in->integers ?
			  report_integers(&l, err) :
			  ck_torch_walk_keys(in->p, in->from, report_object,
					     say_key, &l, err);

	if (!ret)
		ret = report_more(&l, l.keys, CK_ERROR, "keys", err);
	if (!ret)
		ret = report_more(&l, l.objects,
				  in->any ? CK_WARNING : CK_ERROR, "objects",
				  err);
	ck_torch_below_free(&l.inside);
	return ret;
}
