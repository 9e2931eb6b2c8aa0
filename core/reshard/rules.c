/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.c - tensor parallelism by rules: which one fits a name, what it cuts
 *
 * Half a head is of no use to a rank.  Where there are more ranks than heads of
 * keys and values, loaders give each head to several ranks; config.json counts
 * them.  Whether Megatron's layers are gated follows from their shapes: a gated
 * linear_fc1 has twice the rows that linear_fc2 has columns.
 */
#include "core/reshard/spec.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/match.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which rules ---- */

/* The number of the -o rules= file called @name; SIZE_MAX: there is none. */
static size_t file_called(const struct ck_opts *opts, const char *name)
{
	const char *path;

	for (size_t i = 0;
	     opts && (path = ck_opts_nth(opts, CK_RESHARD_RULES_OPTION, i));
	     i++) {
		size_t len;
		const char *stem = ck_reshard_stem(path, &len);

		if (!name || ck_text_is(stem, len, name))
			return i;
	}
	return SIZE_MAX;
}

static int from_file(struct ck_reshard_rules *r, const struct ck_opts *opts,
		     size_t i, struct ck_err *err)
{
	const char *path = ck_opts_nth(opts, CK_RESHARD_RULES_OPTION, i);
	size_t len = 0;
	const char *bytes =
		ck_opts_bytes(opts, CK_RESHARD_RULES_OPTION, i, &len);

	if (!bytes)
		return ck_fail(err, ENOENT, "-o rules=%s: no such file", path);
	return ck_tp_rules_parse(&r->mg, path, bytes, len, err);
}

static int no_such(const char *name, struct ck_err *err)
{
	ck_auto_str struct ck_str all = { 0 };

	for (const struct ck_rules_builtin *b = ck_tp_builtins; b->name; b++)
		ck_str_fmt(&all, "%s%s", all.len ? ", " : "", b->name);
	return ck_fail(err, EINVAL,
		       "rules=%.60s: expected %s or a file of -o rules=", name,
		       all.v ? all.v : "");
}

int ck_reshard_rules_get(struct ck_reshard_rules *r, const char *name,
			 const struct ck_opts *opts, bool *given,
			 struct ck_err *err)
{
	size_t i = file_called(opts, name);

	*given = true;
	if (i != SIZE_MAX)
		return from_file(r, opts, i, err);
	*given = r->built_in = name != NULL;
	if (!name)
		return 0;
	for (const struct ck_rules_builtin *b = ck_tp_builtins; b->name; b++) {
		char what[64];

		if (strcmp(b->name, name) != 0)
			continue;
		snprintf(what, sizeof(what), "rules %s", name);
		return ck_tp_rules_parse(&r->mg, what, b->text, strlen(b->text),
					 err);
	}
	return no_such(name, err);
}

/* The built-in rules @b, if they are for one of the @nr names from @in on. */
static int fits_builtin(const struct ck_rules_builtin *b,
			const struct ck_reshard_in *in, const char **out,
			struct ck_err *err)
{
	struct ck_tp_rules r = { 0 };
	int ret = ck_tp_rules_parse(&r, b->name, b->text, strlen(b->text), err);

	for (uint32_t i = 0; !ret && r.names.nr && i < in->nr; i++) {
		size_t len;
		const char *name = ck_reshard_name(in, i, &len);

		if (ck_tp_rules_name(&r, name, len)) {
			*out = b->name;
			break;
		}
	}
	if (!ret && !r.names.nr && !*out)
		*out = b->name; /* for anybody's */
	ck_tp_rules_free(&r);
	return ret;
}

int ck_reshard_rules_for(const struct ck_reshard_in *in, const char **out,
			 struct ck_err *err)
{
	int ret = 0;

	*out = NULL;
	for (const struct ck_rules_builtin *b = ck_tp_builtins; b->name && !ret;
	     b++)
		ret = fits_builtin(b, in, out, err);
	if (!ret && !*out)
		*out = ck_tp_builtins->name;
	return ret;
}

void ck_reshard_rules_free(struct ck_reshard_rules *r)
{
	ck_tp_rules_free(&r->mg);
	free(r->truths);
	r->truths = NULL;
}

/* ---- whole heads ---- */

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

static int cut_heads(const struct ck_reshard_rules *r,
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

/* ---- one tensor ---- */

static bool is_true(const struct ck_reshard_rules *r, struct ck_tp_word w)
{
	const char *at = r->truths;

	while (at && *at) {
		size_t len = strcspn(at, "+");

		if (len == w.len && !memcmp(at, w.s, len))
			return true;
		at += len + (at[len] == '+');
	}
	return false;
}

/* Whether what the rule asks for holds; -EINVAL where nobody said. */
static int holds(const struct ck_reshard_rules *r,
		 const struct ck_tp_rule *rule, bool *yes, struct ck_err *err)
{
	*yes = !rule->nr_conds;
	if (*yes)
		return 0;
	if (!r->asked)
		return ck_fail(err, EINVAL,
			       "a rule for it asks whether %.*s: expected "
			       "if=%.*s or if=no",
			       (int)rule->conds[0].len, rule->conds[0].s,
			       (int)rule->conds[0].len, rule->conds[0].s);
	for (unsigned i = 0; i < rule->nr_conds && !*yes; i++)
		*yes = is_true(r, rule->conds[i]);
	return 0;
}

static int check_groups(const struct ck_reshard_rules *r, const uint64_t *shape,
			uint32_t parts, struct ck_err *err)
{
	if (!r->groups)
		return 0;
	if (shape[0] % r->groups)
		return ck_fail(err, EINVAL,
			       "dimension 0: %" PRIu64 " does not make %" PRIu32
			       " groups",
			       shape[0], r->groups);
	if (r->groups % parts)
		return ck_fail(err, EINVAL,
			       "dimension 0: %" PRIu32
			       " groups are no multiple of %" PRIu32,
			       r->groups, parts);
	return 0;
}

static int apply(const struct ck_reshard_rules *r,
		 const struct ck_tp_rule *rule, const char *name,
		 const uint64_t *shape, unsigned rank, unsigned axis,
		 struct ck_placement *out, struct ck_err *err)
{
	struct ck_mesh_step *s;

	if (rule->nr_of)
		return ck_fail(err, EINVAL,
			       "whether it is split depends on arguments that "
			       "only Megatron's files have");
	s = ck_tp_step(rule, out, axis);
	if (!s)
		return ck_fail(err, EINVAL, "over %d steps", CK_MESH_STEPS);
	if (rule->how == CK_TP_QKV)
		return check_groups(r, shape, (uint32_t)s->split.nr, err);
	return s->dim < rank ? cut_heads(r, rule, name, shape, s, out, err) :
			       0; /* refused later */
}

/* The first rule that fits and holds; NULL with 0: there is none. */
static int rule_for(const struct ck_reshard_rules *r, const char *tensor_name,
		    size_t len, const struct ck_tp_rule **out,
		    struct ck_err *err)
{
	*out = NULL;
	for (size_t i = 0; i < r->mg.v.nr; i++) {
		const struct ck_tp_rule *rule = &r->mg.v.v[i];
		bool yes;
		int ret;

		if (!ck_glob(rule->pattern.s, rule->pattern.len, tensor_name,
			     len))
			continue;
		ret = holds(r, rule, &yes, err);
		if (ret)
			return ret;
		if (!yes)
			continue;
		*out = rule;
		return 0;
	}
	return 0;
}

int ck_reshard_rules_cut(const struct ck_reshard_rules *r,
			 const char *tensor_name, size_t len,
			 const uint64_t *shape, unsigned rank, unsigned axis,
			 struct ck_placement *out, struct ck_err *err)
{
	const struct ck_tp_rule *rule;
	int ret;

	if (!rank)
		return 0; /* one number: whole */
	ret = rule_for(r, tensor_name, len, &rule, err);
	if (ret)
		return ret;
	if (!rule)
		return ck_fail(err, EINVAL,
			       "no rule says how tp= would cut it (rules=NAME, "
			       "or -o rules=FILE, do)");
	return rule->how == CK_TP_SAME ?
		       0 :
		       apply(r, rule, tensor_name, shape, rank, axis, out, err);
}

int ck_reshard_rules_heads(const struct ck_reshard_rules *r,
			   const char *tensor_name, size_t len,
			   const uint64_t *shape, struct ck_mesh_step *s,
			   struct ck_placement *out, struct ck_err *err)
{
	const struct ck_tp_rule *rule;
	int ret = rule_for(r, tensor_name, len, &rule, err);

	if (ret || !rule || rule->how != CK_TP_SPLIT || rule->axis != s->dim)
		return ret;
	return cut_heads(r, rule, tensor_name, shape, s, out, err);
}

/* ---- gated layers ---- */

#define TRUTH "swiglu"

static const struct {
	const char *first, *second;
} pairs[] = {
	{ ".linear_fc1.weight", ".linear_fc2.weight" },
	{ ".dense_h_to_4h.weight", ".dense_4h_to_h.weight" },
};

static bool ends_in(const char *s, size_t len, const char *end)
{
	size_t n = strlen(end);

	return len > n && !memcmp(s + len - n, end, n);
}

/* What is behind "linear_fc2" is of no matter: ".weight" ends both. */
struct seen {
	struct ck_strmap names; /* before the second's */
	CK_VEC(uint64_t) columns;
};

static int take_second(struct seen *s, const char *name, size_t len,
		       uint64_t columns, struct ck_err *err)
{
	uint32_t at;

	for (size_t i = 0; i < CK_ARRAY_LEN(pairs); i++) {
		if (!ends_in(name, len, pairs[i].second))
			continue;
		at = ck_strmap_put(&s->names, name,
				   len - strlen(pairs[i].second));
		if (at == CK_STRMAP_NONE || !ck_vec_reserve(&s->columns, 1))
			return ck_no_memory(err);
		if (at == s->columns.nr)
			s->columns.v[s->columns.nr++] = columns;
	}
	return 0;
}

enum gate { UNSEEN, GATED, PLAIN, UNCLEAR };

static void take_first(const struct seen *s, const char *name, size_t len,
		       uint64_t rows, enum gate *gate)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(pairs); i++) {
		enum gate one = UNCLEAR;
		uint32_t at;

		if (!ends_in(name, len, pairs[i].first))
			continue;
		at = s->names.nr ? ck_strmap_get(&s->names, name,
						 len - strlen(pairs[i].first)) :
				   CK_STRMAP_NONE;
		if (at != CK_STRMAP_NONE && rows == s->columns.v[at])
			one = PLAIN;
		else if (at != CK_STRMAP_NONE && !(rows & 1) &&
			 rows / 2 == s->columns.v[at])
			one = GATED;
		*gate = *gate == UNSEEN || *gate == one ? one : UNCLEAR;
	}
}

static int look(const struct ck_reshard_in *in, struct seen *s, enum gate *gate,
		struct ck_err *err)
{
	int ret = 0;

	for (unsigned second = 2; second-- > 0;)
		for (uint32_t i = 0; i < in->nr && !ret; i++) {
			const struct ck_tensor *t =
				&in->img->tensors[in->first + i];
			const uint64_t *shape = in->img->dims + t->shape;
			size_t len;
			const char *name = ck_reshard_name(in, i, &len);

			if (t->rank < 2)
				continue;
			if (second)
				ret = take_second(s, name, len,
						  shape[t->rank - 1], err);
			else
				take_first(s, name, len, shape[t->rank - 2],
					   gate);
		}
	return ret;
}

int ck_reshard_rules_infer(struct ck_reshard_rules *r,
			   const struct ck_reshard_in *in, struct ck_err *err)
{
	struct seen s = { 0 };
	enum gate gate = UNSEEN;
	int ret = look(in, &s, &gate, err);

	ck_strmap_free(&s.names);
	free(s.columns.v);
	if (ret || (gate != GATED && gate != PLAIN))
		return ret;
	if (gate == GATED)
		r->truths = strdup(TRUTH);
	if (gate == GATED && !r->truths)
		return ck_no_memory(err);
	r->asked = true;
	return 0;
}
