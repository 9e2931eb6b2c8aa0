/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tp_rules.c - reads a file of tensor-parallel rules
 *
 * Lines of words; "#" begins a comment.  The file is the user's, or built in.
 */
#include "core/mesh/tp_rules.h"

#include "core/base/check.h"
#include "core/base/match.h"
#include "core/base/limits.h"
#include "core/base/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RULES 4096

static bool number(struct ck_tp_word w, uint64_t *out)
{
	return ck_decimal(w.s, w.len, CK_SIZE_MAX, out);
}

/* A, A|B, A|B|C: false where there are none, or too many. */
static bool words_at(struct ck_tp_word w, char mark, struct ck_tp_word *out,
		     unsigned *nr)
{
	size_t from = 0;

	*nr = 0;
	for (size_t i = 0; i <= w.len; i++) {
		if (i < w.len && w.s[i] != mark)
			continue;
		if (*nr == CK_TP_MAX_PARTS || i == from || i - from > 255)
			return false;
		out[(*nr)++] = (struct ck_tp_word){ w.s + from, i - from };
		from = i + 1;
	}
	return true;
}

static bool read_parts(struct ck_tp_word w, struct ck_tp_rule *r)
{
	struct ck_tp_word text[CK_TP_MAX_PARTS];

	if (!words_at(w, '+', text, &r->nr_parts))
		return false;
	for (unsigned i = 0; i < r->nr_parts; i++)
		if (!number(text[i], &r->parts[i]) || !r->parts[i])
			return false;
	return true;
}

static int read_heads(const struct ck_rules_line *l, unsigned *at,
		      struct ck_tp_rule *r, struct ck_err *err)
{
	if (*at == l->nr_words || !ck_word_is(l->word[*at], "heads"))
		return 0;
	if (*at + 1 == l->nr_words || r->nr_of ||
	    !words_at(l->word[*at + 1], '|', r->heads, &r->nr_heads))
		return ck_rules_bad(
			l, "expected members of config.json after heads", err);
	*at += 2;
	r->copied = *at < l->nr_words && ck_word_is(l->word[*at], "copied");
	*at += r->copied;
	return r->copied && r->how != CK_TP_SPLIT ?
		       ck_rules_bad(l, "parts and gated layers are not copied",
				    err) :
		       0;
}

static int read_split(const struct ck_rules_line *l, unsigned *at,
		      struct ck_tp_rule *r, struct ck_err *err)
{
	uint64_t axis;

	if (*at == l->nr_words || !number(l->word[*at], &axis) ||
	    axis >= CK_MAX_RANK)
		return ck_rules_bad(l, "expected an axis after split", err);
	++*at;
	r->axis = (unsigned)axis;
	r->how = CK_TP_SPLIT;
	if (*at == l->nr_words || ck_word_is(l->word[*at], "if") ||
	    ck_word_is(l->word[*at], "heads"))
		return 0;
	if (ck_word_is(l->word[*at], "gated")) {
		r->how = CK_TP_GATED;
		++*at;
		return 0;
	}
	if (*at + 1 < l->nr_words && ck_word_is(l->word[*at], "parts") &&
	    read_parts(l->word[*at + 1], r)) {
		r->how = CK_TP_PARTS;
		*at += 2;
		return 0;
	}
	if (*at + 1 < l->nr_words && ck_word_is(l->word[*at], "of") &&
	    words_at(l->word[*at + 1], '+', r->of, &r->nr_of)) {
		*at += 2;
		return 0;
	}
	return ck_rules_bad(
		l, "expected gated, parts A+B, of NAME, heads NAME, or if",
		err);
}

static int read_rule(const struct ck_rules_line *l, struct ck_tp_rule *r,
		     struct ck_err *err)
{
	unsigned at = 2;
	int ret = 0;

	r->pattern = l->word[0];
	if (l->nr_words < 2)
		return ck_rules_bad(
			l, "expected a pattern and same, split or qkv", err);
	if (ck_word_is(l->word[1], "same"))
		r->how = CK_TP_SAME;
	else if (ck_word_is(l->word[1], "qkv"))
		r->how = CK_TP_QKV;
	else if (ck_word_is(l->word[1], "split"))
		ret = read_split(l, &at, r, err) ?: read_heads(l, &at, r, err);
	else
		return ck_rules_bad(l, "expected same, split or qkv", err);
	if (!ret && at < l->nr_words && ck_word_is(l->word[at], "if")) {
		if (at + 2 != l->nr_words ||
		    !words_at(l->word[at + 1], '|', r->conds, &r->nr_conds))
			return ck_rules_bad(l, "expected arguments after if",
					    err);
		return 0;
	}
	return ret || at == l->nr_words ?
		       ret :
		       ck_rules_bad(l, "too many words", err);
}

const char *ck_tp_builtin(const char *name)
{
	for (const struct ck_rules_builtin *b = ck_tp_builtins; b->name; b++)
		if (!strcmp(b->name, name))
			return b->text;
	return NULL;
}

/* "names PATTERN ...", which is no rule for what is called "names". */
static bool is_names(const struct ck_rules_line *l)
{
	return l->nr_words > 1 && ck_word_is(l->word[0], "names") &&
	       !ck_word_is(l->word[1], "same") &&
	       !ck_word_is(l->word[1], "split") &&
	       !ck_word_is(l->word[1], "qkv");
}

static int add_names(struct ck_tp_rules *r, const struct ck_rules_line *l,
		     struct ck_err *err)
{
	for (unsigned i = 1; i < l->nr_words; i++) {
		struct ck_tp_word *to = ck_vec_push(&r->names);

		if (!to)
			return ck_no_memory(err);
		*to = l->word[i];
	}
	return 0;
}

bool ck_tp_rules_name(const struct ck_tp_rules *r, const char *name, size_t len)
{
	for (size_t i = 0; i < r->names.nr; i++)
		if (ck_glob(r->names.v[i].s, r->names.v[i].len, name, len))
			return true;
	return false;
}

/* The first built-in file that says whose models it is for. */
static int add_default(struct ck_tp_rules *r, struct ck_err *err)
{
	size_t before = r->names.nr, rules = r->v.nr;
	int ret = 0;

	for (const struct ck_rules_builtin *b = ck_tp_builtins; b->name; b++) {
		ret = ck_tp_rules_parse(r, "the built-in rules", b->text,
					strlen(b->text), err);
		if (ret || r->names.nr > before)
			break;
		r->v.nr = rules;
	}
	return ret;
}

static int take_line(void *ctx, const struct ck_rules_line *l,
		     struct ck_err *err)
{
	struct ck_tp_rule rule = { 0 }, *to;
	struct ck_tp_rules *r = ctx;
	int ret;

	if (l->nr_words == 1 && ck_word_is(l->word[0], "default")) {
		if (r->has_default)
			return ck_rules_bad(
				l, "default stands here for a second time",
				err);
		r->has_default = true;
		return add_default(r, err);
	}
	if (is_names(l))
		return add_names(r, l, err);
	ret = read_rule(l, &rule, err);
	if (ret)
		return ret;
	if (r->v.nr == MAX_RULES)
		return ck_rules_bad(l, "over 4096 rules", err);
	to = ck_vec_push(&r->v);
	if (!to)
		return ck_no_memory(err);
	*to = rule;
	return 0;
}

int ck_tp_rules_parse(struct ck_tp_rules *r, const char *name,
		      const char *bytes, size_t len, struct ck_err *err)
{
	return ck_rules_lines(name, bytes, len, take_line, r, err);
}

struct ck_mesh_step *ck_tp_step(const struct ck_tp_rule *rule,
				struct ck_placement *p, unsigned axis)
{
	_Static_assert(CK_TP_MAX_PARTS <= CK_MESH_BLOCKS, "parts fit");
	struct ck_mesh_step *s =
		ck_placement_shard(p, rule->how == CK_TP_QKV ? 0 : rule->axis,
				   axis, CK_SIZES_EVEN);

	if (s && rule->how == CK_TP_GATED)
		s->blocks = 2;
	if (s && rule->how == CK_TP_PARTS) {
		s->blocks = rule->nr_parts;
		memcpy(s->weight, rule->parts,
		       rule->nr_parts * sizeof(*s->weight));
	}
	return s;
}

void ck_tp_rules_free(struct ck_tp_rules *r)
{
	free(r->v.v);
	free(r->names.v);
	*r = (struct ck_tp_rules){ 0 };
}
