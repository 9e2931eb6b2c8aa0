/* SPDX-License-Identifier: Apache-2.0 */
/* rules.c - which rule fits a name, and what it cuts */
#include "core/reshard/rules.h"

#include "core/base/glob.h"
#include "core/base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number of the -o rules= file called @name; SIZE_MAX: there is none. */
static size_t file_called(const struct ck_opts *opts, const char *name)
{
	const char *path;

	for (size_t i = 0;
	     opts && (path = ck_opts_nth(opts, CK_RESHARD_RULES_OPTION, i));
	     i++) {
		size_t len;
		const char *stem = ck_reshard_stem(path, &len);

		if (!name || (strlen(name) == len && !memcmp(name, stem, len)))
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

	for (const struct ck_tp_builtin *b = ck_tp_builtins; b->name; b++)
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
	for (const struct ck_tp_builtin *b = ck_tp_builtins; b->name; b++) {
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
static int fits_builtin(const struct ck_tp_builtin *b,
			const struct ck_reshard_in *in, const char **out,
			struct ck_err *err)
{
	struct ck_tp_rules r = { 0 };
	int ret = ck_tp_rules_parse(&r, b->name, b->text, strlen(b->text), err);

	for (uint32_t i = 0; !ret && r.names.nr && i < in->nr; i++) {
		size_t len;
		const char *name = ck_catalog_str(
			in->img, in->img->tensors[in->first + i].name, &len);

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
	for (const struct ck_tp_builtin *b = ck_tp_builtins; b->name && !ret;
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
	s = ck_placement_shard(out, rule->how == CK_TP_QKV ? 0 : rule->axis,
			       axis, CK_SIZES_EVEN);
	if (!s)
		return ck_fail(err, EINVAL, "over %d steps", CK_MESH_STEPS);
	if (rule->how == CK_TP_GATED)
		s->blocks = 2;
	if (rule->how == CK_TP_PARTS) {
		s->blocks = rule->nr_parts;
		memcpy(s->weight, rule->parts,
		       rule->nr_parts * sizeof(*s->weight));
	}
	if (rule->how == CK_TP_QKV)
		return check_groups(r, shape, (uint32_t)s->split.nr, err);
	return s->dim < rank ?
		       ck_reshard_heads_cut(r, rule, name, shape, s, out, err) :
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
	_Static_assert(CK_TP_MAX_PARTS <= CK_MESH_BLOCKS, "parts fit");
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
	return ck_reshard_heads_cut(r, rule, tensor_name, shape, s, out, err);
}
