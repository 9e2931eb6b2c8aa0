/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c - from a list of groups to an object a value; the header says which */
#include "core/optim/groups.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"
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
	ck_pv v;

	if (ck_pv_kind(group) != CK_P_DICT || ck_pv_len(p, group) > MAX_KEYS ||
	    !ck_pv_key(p, group, CK_OPTIM_PARAMS, &v))
		return false;
	for (struct ck_pq_each e = ck_pq_begin(p, group, "{}"); ck_pq_next(&e);)
		if (!e.name || !e.len || e.len > MAX_KEY ||
		    memchr(e.name, 0, e.len) || ck_torch_is_rebuild(p, e.v))
			return false;
	return true;
}

bool ck_optim_groups_ok(const struct ck_pickle *p, ck_pv groups)
{
	if (ck_pv_kind(groups) != CK_P_LIST || !ck_pv_len(p, groups) ||
	    ck_pv_len(p, groups) > MAX_GROUPS)
		return false;
	for (struct ck_pq_each e = ck_pq_begin(p, groups, "[]");
	     ck_pq_next(&e);)
		if (!is_group(p, e.v))
			return false;
	return true;
}

/* ---- objects ---- */

/* The path to @key of what is at @at of @list; returns how deep it is. */
static unsigned path_to(const struct ck_optim_groups *g, const char *list,
			struct ck_path_part at, const char *key, size_t len,
			struct ck_path_part parts[4])
{
	unsigned depth = 0;

	if (g->dict)
		parts[depth++] = part(g->dict, strlen(g->dict));
	parts[depth++] = part(list, strlen(list));
	parts[depth++] = at;
	parts[depth++] = part(key, len);
	return depth;
}

/* An object of that path, whose name is the path behind the prefix. */
static int add(const struct ck_optim_groups *g, const char *list,
	       struct ck_path_part at, const char *key, size_t len,
	       const struct ck_object_in *in, struct ck_err *err)
{
	ck_auto_str struct ck_str name = { 0 };
	struct ck_object_in o = *in;
	struct ck_path_part parts[4];
	unsigned depth = path_to(g, list, at, key, len, parts);
	int ret;

	if (g->prefix)
		ck_str_puts(&name, g->prefix);
	else if (g->dict)
		ck_str_fmt(&name, "%s.", g->dict);
	ck_str_fmt(&name, "%s.", list);
	if (at.key)
		ck_str_add(&name, at.key, at.key_len);
	else
		ck_str_fmt(&name, "%" PRId64, at.index);
	ck_str_puts(&name, ".");
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

int ck_optim_groups_add(const struct ck_optim_groups *g, int64_t nr,
			const char *key, size_t len,
			const struct ck_object_in *in, struct ck_err *err)
{
	return add(g, CK_OPTIM_GROUPS, (struct ck_path_part){ .index = nr },
		   key, len, in, err);
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

bool ck_optim_is_params(const char *key, size_t len)
{
	return ck_text_is(key, len, CK_OPTIM_PARAMS);
}

int ck_optim_groups_report(const struct ck_optim_groups *g,
			   const struct ck_pickle *p, ck_pv groups,
			   const struct ck_object_in *in, const uint64_t *count,
			   struct ck_err *err)
{
	int ret = 0;

	for (struct ck_pq_each e = ck_pq_begin(p, groups, "[]");
	     !ret && ck_pq_next(&e);) {
		ck_auto_strmap struct ck_strmap keys = { 0 };

		ret = ck_pq_index(&keys, p, e.v, "{}", err);
		for (size_t i = 0; i < keys.nr && !ret; i++) {
			const struct ck_strmap_key *k = &keys.v[i];

			ret = count && ck_optim_is_params(k->s, k->len) ?
				      ck_optim_groups_params(g, e.at[0], 0,
							     *count, err) :
				      ck_optim_groups_add(g, e.at[0], k->s,
							  k->len, in, err);
		}
	}
	return ret;
}

/* In states, parameters are named by their numbers. */
static struct ck_path_part number(uint64_t id, char text[24])
{
	return part(text, (size_t)snprintf(text, 24, "%" PRIu64, id));
}

int ck_optim_state_path(const struct ck_optim_groups *g, const char *name,
			size_t len, uint64_t id, const char *state,
			size_t state_len, struct ck_err *err)
{
	struct ck_path_part parts[4];
	char n[24];
	unsigned depth = path_to(g, CK_OPTIM_STATE, number(id, n), state,
				 state_len, parts);

	return ck_builder_path(g->b, 0, name, len, parts, depth, err);
}

int ck_optim_state_add(const struct ck_optim_groups *g, uint64_t id,
		       const char *state, size_t len,
		       const struct ck_object_in *in, struct ck_err *err)
{
	char n[24];

	return add(g, CK_OPTIM_STATE, number(id, n), state, len, in, err);
}
