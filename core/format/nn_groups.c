/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nn_groups.c - an optimizer's param_groups, and its parameters' numbers
 *
 * A merged file has torch.optim's own form: states by number, and groups that
 * list the numbers.  Each rank numbers what it holds, its buckets or slices;
 * of these it is made as nnScaler's merge does, which counts through
 * origin_param_names and keeps the first rank's only group.  So a state's path
 * is optimizer/state/NUMBER/STATE, whatever its name says.
 */
#include "core/format/nn_priv.h"

#include "core/base/auto.h"
#include "core/base/check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define OPTIMIZER "optimizer"
#define GROUPS "param_groups"
#define PARAMS "params"

#define MAX_GROUPS 4096
#define MAX_KEYS 64 /* of a group */
#define MAX_KEY 256 /* bytes */

static struct ck_path_part part(const char *key, size_t len)
{
	return (struct ck_path_part){ key, len, -1 };
}

/* ---- numbers ---- */

/* Whether one parallelised module has all that the optimizer numbers. */
static const struct ck_nn_module *only_module(const struct ck_nn_rank *r)
{
	const struct ck_nn_module *m = r->modules.nr == 1 ? r->modules.v : NULL;

	return m && m->has_states && m->ordered && !m->virtual_one &&
			       r->known_optimizer && !m->offset &&
			       m->count == r->nr_ids ?
		       m :
		       NULL;
}

/* @names: the module's list.  1; 0: it is none; or -ENOMEM. */
static int count_names(struct ck_nn_set *s, const struct ck_nn_file *f,
		       const struct ck_nn_module *m, ck_pv names)
{
	struct ck_piter it;
	ck_pv v;

	ck_piter_init(&it, f->p, names);
	for (uint32_t i = 0; ck_piter_next(&it, &v); i++) {
		const struct ck_strmap_key prefix = s->names.map.v[m->prefix];
		uint32_t name, at;
		const char *text;
		size_t len;

		if (!ck_pv_str(f->p, v, &text, &len))
			return 0;
		name = ck_nn_name2(&s->names, prefix.s, prefix.len, text, len);
		if (name == CK_STRMAP_NONE)
			return -ENOMEM;
		at = ck_strmap_put(&s->numbers, s->names.v.v[name],
				   s->names.map.v[name].len);
		if (at == CK_STRMAP_NONE)
			return -ENOMEM;
		if (at != i) /* twice the same */
			return 0;
	}
	return s->numbers.nr > 0;
}

/* A dict that names its parameters, by keys that can be parts of names. */
static bool is_group(const struct ck_pickle *p, ck_pv group)
{
	struct ck_piter it;
	const char *text;
	size_t len;
	ck_pv key, v;

	if (ck_pv_kind(group) != CK_P_DICT || ck_pv_len(p, group) > MAX_KEYS ||
	    !ck_pv_key(p, group, PARAMS, &v))
		return false;
	ck_piter_init_pairs(&it, p, group);
	while (ck_piter_next2(&it, &key, &v))
		if (!ck_pv_str(p, key, &text, &len) || !len || len > MAX_KEY ||
		    memchr(text, 0, len))
			return false;
	return true;
}

static bool are_groups(const struct ck_pickle *p, ck_pv groups)
{
	struct ck_piter it;
	ck_pv group;

	if (ck_pv_kind(groups) != CK_P_LIST || !ck_pv_len(p, groups) ||
	    ck_pv_len(p, groups) > MAX_GROUPS)
		return false;
	ck_piter_init(&it, p, groups);
	while (ck_piter_next(&it, &group))
		if (!is_group(p, group))
			return false;
	return true;
}

/* 1 where parameters are numbered; 0 or -ENOMEM */
static int read_numbers(struct ck_nn_set *s, const struct ck_nn_file *f,
			ck_pv groups)
{
	const struct ck_nn_module *m;
	ck_pv model, extra, names;

	if (!are_groups(f->p, groups) || s->merged)
		return s->merged && are_groups(f->p, groups);
	m = only_module(&s->ranks.v[s->first]);
	if (!m || ck_pv_len(f->p, groups) != 1 ||
	    !ck_pv_key(f->p, f->root, "model", &model) ||
	    !ck_nn_extra(f->p, model, &extra) ||
	    !ck_nn_field(f->p, extra, "origin_param_names", &names))
		return 0;
	return count_names(s, f, m, names);
}

int64_t ck_nn_number(const struct ck_nn_set *s, const struct ck_nn_piece *p,
		     const char *param, size_t len)
{
	uint32_t at;

	if (!s->numbered || p->state == CK_STRMAP_NONE)
		return -1;
	if (s->merged)
		return p->id;
	at = ck_strmap_get(&s->numbers, param, len);
	return at == CK_STRMAP_NONE ? -1 : (int64_t)at;
}

/* ---- groups ---- */

/* {"optimizer": {"param_groups": [{"params": [0, 1, ...]}]}} as a pickle */
static void put_params(struct ck_str *s, size_t nr)
{
	static const char begin[] =
		"\x80\x02}X\x09\0\0\0" OPTIMIZER "}X\x0c\0\0\0" GROUPS
		"](}X\x06\0\0\0" PARAMS "](";

	ck_str_add(s, begin, sizeof(begin) - 1);
	for (size_t i = 0; i < nr; i++)
		ck_str_fmt(s, "I%zu\n", i);
	ck_str_puts(s, "esess.");
}

static int add_object(struct ck_nn_set *s, struct ck_object_in *o, int64_t nr,
		      const char *key, size_t len, struct ck_err *err)
{
	const struct ck_path_part parts[] = {
		part(OPTIMIZER, strlen(OPTIMIZER)),
		part(GROUPS, strlen(GROUPS)),
		{ .index = nr },
		part(key, len),
	};
	ck_auto_str struct ck_str name = { 0 };
	int ret;

	ck_str_fmt(&name, OPTIMIZER "." GROUPS ".%" PRId64 ".", nr);
	ck_str_add(&name, key, len);
	if (name.failed)
		return ck_fail(err, ENOMEM, "no memory for a name");
	o->name = name.v;
	o->name_len = name.len;
	ret = ck_builder_object(s->b, o, err);
	return ret ? ret :
		     ck_builder_path(s->b, 0, name.v, name.len, parts,
				     CK_ARRAY_LEN(parts), err);
}

static int add_params(struct ck_nn_set *s, struct ck_err *err)
{
	struct ck_object_in o = { .enc = CK_ENC_PICKLE };
	ck_auto_str struct ck_str bytes = { 0 };
	int ret;

	put_params(&bytes, s->numbers.nr);
	if (bytes.failed)
		return ck_fail(err, ENOMEM, "no memory for param_groups");
	o.len = bytes.len;
	ret = ck_builder_mem(s->b, bytes.v, bytes.len, &o.src, err);
	return ret ? ret : add_object(s, &o, 0, PARAMS, strlen(PARAMS), err);
}

/* A key that is there twice is said once: the last one counts in any case. */
static int group_say(struct ck_nn_set *s, const struct ck_pickle *p,
		     ck_pv group, int64_t nr, const struct ck_object_in *in,
		     struct ck_err *err)
{
	ck_auto_strmap struct ck_strmap seen = { 0 };
	struct ck_piter it;
	ck_pv key, v;
	int ret = 0;

	ck_piter_init_pairs(&it, p, group);
	while (!ret && ck_piter_next2(&it, &key, &v)) {
		struct ck_object_in o = *in;
		size_t before = seen.nr, len;
		const char *text;

		ck_pv_str(p, key, &text, &len);
		if (ck_strmap_put(&seen, text, len) == CK_STRMAP_NONE)
			return ck_fail(err, ENOMEM, "no memory for a name");
		if (seen.nr == before)
			continue;
		if (!s->merged && len == strlen(PARAMS) &&
		    !memcmp(text, PARAMS, len))
			ret = add_params(s, err);
		else
			ret = add_object(s, &o, nr, text, len, err);
	}
	return ret;
}

int ck_nn_groups_say(struct ck_nn_set *s, const struct ck_nn_file *f,
		     const struct ck_object_in *in, struct ck_err *err)
{
	struct ck_piter it;
	ck_pv optimizer, groups, group;
	int64_t nr = 0;
	int ret;

	if (!ck_pv_key(f->p, f->root, OPTIMIZER, &optimizer) ||
	    !ck_pv_key(f->p, optimizer, GROUPS, &groups))
		return 0;
	ret = read_numbers(s, f, groups);
	if (ret < 0)
		return ck_fail(err, ENOMEM, "no memory for names");
	s->numbered = ret;
	if (!ret)
		return 0;
	ret = 0;
	ck_piter_init(&it, f->p, groups);
	while (!ret && ck_piter_next(&it, &group))
		ret = group_say(s, f->p, group, nr++, in, err);
	return ret;
}
