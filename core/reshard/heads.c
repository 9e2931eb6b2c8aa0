/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heads.c - whole attention heads for each rank, as config.json counts them
 *
 * Half a head is of no use to a rank.  Where there are more ranks than heads of
 * keys and values, loaders give each head to several ranks.
 */
#include "core/reshard/rules.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static bool member(const json_t *config, struct ck_tp_word name, uint64_t *out)
{
	char key[256];

	snprintf(key, sizeof(key), "%.*s", (int)name.len, name.s);
	return ck_json_u64(json_object_get(config, key), out) && *out;
}

/* Models of more than text keep that part's numbers one level below. */
static const struct ck_tp_word *count(const struct ck_reshard_rules *r,
				      const struct ck_tp_rule *rule,
				      uint64_t *out)
{
	const json_t *text = json_object_get(r->config, "text_config");

	for (unsigned i = 0; i < rule->nr_heads; i++)
		if (member(text, rule->heads[i], out) ||
		    member(r->config, rule->heads[i], out))
			return &rule->heads[i];
	return NULL;
}

static void note(struct ck_reshard_heads_said *s, const char *name)
{
	if (!s->nr++)
		s->first = name;
}

int ck_reshard_heads_cut(const struct ck_reshard_rules *r,
			 const struct ck_tp_rule *rule, const char *tensor_name,
			 const uint64_t *shape, struct ck_mesh_step *s,
			 struct ck_placement *out, struct ck_err *err)
{
	const struct ck_tp_word *word;
	uint32_t ranks = (uint32_t)s->split.nr;
	uint64_t nr = 0;

	if (!rule->nr_heads || ranks == 1)
		return 0;
	word = count(r, rule, &nr);
	if (!word)
		note(&r->heads->unknown, tensor_name);
	if (!word || nr % ranks == 0)
		return 0;
	if (!rule->copied || ranks % nr || shape[s->dim] % nr)
		return ck_fail(err, EINVAL,
			       "dimension %u: %" PRIu64
			       " heads (config.json, %.*s) are no multiple of "
			       "%" PRIu32,
			       s->dim, nr, (int)word->len, word->s, ranks);
	if (!r->heads->copied.nr) {
		r->heads->nr = nr;
		r->heads->ranks = ranks;
	}
	note(&r->heads->copied, tensor_name);
	out->mesh.ranks /= ranks / (uint32_t)nr;
	s->split.nr = out->mesh.size[out->mesh.nr - 1] = (uint32_t)nr;
	ck_mesh_add_axis(&out->mesh, ranks / (uint32_t)nr,
			 CK_RESHARD_MAX_RANKS);
	return 0;
}

static void names(const struct ck_reshard_heads_said *s, struct ck_str *out)
{
	ck_str_fmt(out, "%.200s", s->first);
	if (s->nr > 1)
		ck_str_fmt(out, " and %" PRIu32 " more", s->nr - 1);
}

void ck_reshard_heads_report(const struct ck_reshard_heads *h,
			     struct ck_str *out)
{
	if (h->copied.nr) {
		ck_str_fmt(out,
			   "%" PRIu64 " heads for %" PRIu64
			   " ranks, so that each is whole on %" PRIu64 ": ",
			   h->nr, h->ranks, h->ranks / h->nr);
		names(&h->copied, out);
	}
	if (h->unknown.nr) {
		ck_str_puts(out, h->copied.nr ? "; " : "");
		ck_str_puts(out, "cut in equal parts, for no config.json (-o "
				 "config=DIR) says how many heads they have: ");
		names(&h->unknown, out);
	}
}
