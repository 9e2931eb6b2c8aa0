/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c - from a list of groups to an object a value; the header says which */
#include "core/optim/groups.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/str.h"
#include "core/base/strmap.h"
#include "core/container/torch_walk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_GROUPS 4096
#define MAX_KEYS 64 /* of a group */
#define MAX_KEY 256 /* bytes */

static struct ck_path_part part(const char *key, size_t len)
{
	return (struct ck_path_part){ key, len, -1 };
}

/* ---- what they are ---- */

static bool is_group(const struct ck_pickle *p, ck_pv group)
{
	struct ck_piter it;
	const char *text;
	size_t len;
	ck_pv key, v;

	if (ck_pv_kind(group) != CK_P_DICT || ck_pv_len(p, group) > MAX_KEYS ||
	    !ck_pv_key(p, group, CK_OPTIM_PARAMS, &v))
		return false;
	ck_piter_init_pairs(&it, p, group);
	while (ck_piter_next2(&it, &key, &v))
		if (!ck_pv_str(p, key, &text, &len) || !len || len > MAX_KEY ||
		    memchr(text, 0, len) || ck_torch_is_rebuild(p, v))
			return false;
	return true;
}

bool ck_optim_groups_ok(const struct ck_pickle *p, ck_pv groups)
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

int ck_optim_group_each(const struct ck_pickle *p, ck_pv group,
			ck_optim_value_fn fn, void *ctx, struct ck_err *err)
{
	ck_auto_strmap struct ck_strmap seen = { 0 };
	ck_pv last[MAX_KEYS] = { 0 }, key, v;
	struct ck_piter it;
	const char *text;
	size_t len;
	int ret = 0;

	ck_piter_init_pairs(&it, p, group);
	while (ck_piter_next2(&it, &key, &v)) {
		uint32_t at;

		ck_pv_str(p, key, &text, &len);
		at = ck_strmap_put(&seen, text, len);
		if (at == CK_STRMAP_NONE)
			return ck_no_memory(err);
		last[at] = v;
	}
	for (size_t i = 0; i < seen.nr && !ret; i++)
		ret = fn(ctx, seen.v[i].s, seen.v[i].len, last[i], err);
	return ret;
}

/* ---- objects ---- */

static void put_prefix(const struct ck_optim_groups *g, struct ck_str *name)
{
	if (g->prefix)
		ck_str_puts(name, g->prefix);
	else if (g->dict)
		ck_str_fmt(name, "%s.", g->dict);
}

int ck_optim_groups_add(const struct ck_optim_groups *g, int64_t nr,
			const char *key, size_t len,
			const struct ck_object_in *in, struct ck_err *err)
{
	ck_auto_str struct ck_str name = { 0 };
	struct ck_object_in o = *in;
	struct ck_path_part parts[4];
	unsigned depth = 0;
	int ret;

	if (g->dict)
		parts[depth++] = part(g->dict, strlen(g->dict));
	parts[depth++] = part(CK_OPTIM_GROUPS, strlen(CK_OPTIM_GROUPS));
	parts[depth++] = (struct ck_path_part){ .index = nr };
	parts[depth++] = part(key, len);
	put_prefix(g, &name);
	ck_str_fmt(&name, CK_OPTIM_GROUPS ".%" PRId64 ".", nr);
	ck_str_add(&name, key, len);
	if (name.failed)
		return ck_no_memory(err);
	o.name = name.v;
	o.name_len = name.len;
	ret = ck_builder_object(g->b, &o, err);
	return ret ? ret :
		     ck_builder_path(g->b, 0, name.v, name.len, parts, depth,
				     err);
}

int ck_optim_groups_params(const struct ck_optim_groups *g, int64_t nr,
			   uint64_t first, uint64_t count, struct ck_err *err)
{
	static const char begin[] = "\x80\x02}X\x06\0\0\0" CK_OPTIM_PARAMS "](";
	struct ck_object_in o = { .enc = CK_ENC_PICKLE };
	ck_auto_str struct ck_str bytes = { 0 };
	int ret;

	ck_str_add(&bytes, begin, sizeof(begin) - 1);
	for (uint64_t i = first; i < first + count && !bytes.failed; i++)
		ck_str_fmt(&bytes, "I%" PRIu64 "\n", i);
	ck_str_puts(&bytes, "es.");
	if (bytes.failed)
		return ck_no_memory(err);
	o.len = bytes.len;
	ret = ck_builder_mem(g->b, bytes.v, bytes.len, &o.src, err);
	return ret ? ret :
		     ck_optim_groups_add(g, nr, CK_OPTIM_PARAMS,
					 strlen(CK_OPTIM_PARAMS), &o, err);
}

struct saying {
	const struct ck_optim_groups *g;
	const struct ck_object_in *in;
	int64_t nr;
};

static int value_say(void *ctx, const char *key, size_t len, ck_pv value,
		     struct ck_err *err)
{
	const struct saying *s = ctx;

	(void)value;
	return ck_optim_groups_add(s->g, s->nr, key, len, s->in, err);
}

int ck_optim_groups_report(const struct ck_optim_groups *g,
			   const struct ck_pickle *p, ck_pv groups,
			   const struct ck_object_in *in, struct ck_err *err)
{
	struct saying s = { .g = g, .in = in };
	struct ck_piter it;
	ck_pv group;
	int ret = 0;

	ck_piter_init(&it, p, groups);
	for (; !ret && ck_piter_next(&it, &group); s.nr++)
		ret = ck_optim_group_each(p, group, value_say, &s, err);
	return ret;
}

int ck_optim_state_path(const struct ck_optim_groups *g, const char *name,
			size_t len, uint64_t id, const char *state,
			size_t state_len, struct ck_err *err)
{
	struct ck_path_part parts[4];
	unsigned depth = 0;
	char number[24];

	snprintf(number, sizeof(number), "%" PRIu64, id);
	if (g->dict)
		parts[depth++] = part(g->dict, strlen(g->dict));
	parts[depth++] = part(CK_OPTIM_STATE, strlen(CK_OPTIM_STATE));
	parts[depth++] = part(number, strlen(number));
	parts[depth++] = part(state, state_len);
	return ck_builder_path(g->b, 0, name, len, parts, depth, err);
}
