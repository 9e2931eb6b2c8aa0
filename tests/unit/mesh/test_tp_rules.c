/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/check.h"
#include "core/base/match.h"
#include "core/mesh/tp_rules.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static int parse(struct ck_tp_rules *r, const char *text, struct ck_err *err)
{
	*r = (struct ck_tp_rules){ 0 };
	return ck_tp_rules_parse(r, "f", text, strlen(text), err);
}

/* The first rule for @name whose condition, if any, is not "no". */
static const struct ck_tp_rule *rule_of(const struct ck_tp_rules *r,
					const char *name)
{
	for (size_t i = 0; i < r->v.nr; i++)
		if (ck_glob(r->v.v[i].pattern.s, r->v.v[i].pattern.len, name,
			    strlen(name)))
			return &r->v.v[i];
	return NULL;
}

Test(tp_rules, the_built_in_ones_know_the_layers)
{
	static const struct {
		const char *name;
		enum ck_tp_how how;
		unsigned axis;
	} t[] = {
		{ "embedding.word_embeddings.weight", CK_TP_SPLIT, 0 },
		{ "output_layer.weight", CK_TP_SPLIT, 0 },
		{ "decoder.layers.3.self_attention.linear_qkv.bias", CK_TP_QKV,
		  0 },
		{ "decoder.layers.3.self_attention.linear_proj.weight",
		  CK_TP_SPLIT, 1 },
		{ "decoder.layers.3.self_attention.linear_proj.bias",
		  CK_TP_SAME, 0 },
		{ "decoder.layers.3.mlp.linear_fc1.weight", CK_TP_GATED, 0 },
		{ "decoder.layers.3.mlp.experts.linear_fc2.weight12",
		  CK_TP_SPLIT, 1 },
		{ "decoder.layers.3.mlp.linear_fc1.layer_norm_weight",
		  CK_TP_SAME, 0 },
		{ "decoder.layers.3.mlp.router.expert_bias", CK_TP_SAME, 0 },
		{ "decoder.final_layernorm.weight", CK_TP_SAME, 0 },
	};
	struct ck_tp_rules r;

	cr_assert_eq(parse(&r, "default", NULL), 0);
	for (size_t i = 0; i < CK_ARRAY_LEN(t); i++) {
		const struct ck_tp_rule *rule = rule_of(&r, t[i].name);

		cr_assert(rule, "%s", t[i].name);
		cr_expect_eq(rule->how, t[i].how, "%s", t[i].name);
		cr_expect_eq(rule->axis, t[i].axis, "%s", t[i].name);
	}
	cr_expect_null(rule_of(&r, "decoder.layers.3.mixer.in_proj.weight"));
	cr_expect_null(rule_of(&r, "decoder.layers.3.mixer.norm.weight"));
	ck_tp_rules_free(&r);
}

Test(tp_rules, patterns)
{
	static const struct {
		const char *pattern, *name;
		bool fits;
	} t[] = {
		{ "a", "a", true },	     { "a", "ab", false },
		{ "*", "", true },	     { "*b", "aab", true },
		{ "a*c*e", "abcde", true },  { "a*c*e", "abcd", false },
		{ "*ab", "aab", true },	     { "*.b", "b", false },
		{ "a**b", "ab", true },	     { "", "a", false },
		{ "*a*a*b", "aaaa", false },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(t); i++) {
		cr_expect_eq(ck_glob(t[i].pattern, strlen(t[i].pattern),
				     t[i].name, strlen(t[i].name)),
			     t[i].fits, "%s %s", t[i].pattern, t[i].name);
	}
}

Test(tp_rules, what_a_line_may_say)
{
	struct ck_tp_rules r;
	const struct ck_tp_rule *v;

	cr_assert_eq(parse(&r,
			   "# c\n\n a split 1 parts 12+3 if x|yy # d\r\n"
			   "b split 0 of p+q\nc qkv\n"
			   "d split 0 heads k|n copied if z\n"
			   "e split 1 parts 1+1 heads n",
			   NULL),
		     0);
	cr_assert_eq(r.v.nr, 5);
	v = r.v.v;
	cr_expect(v[0].how == CK_TP_PARTS && v[0].axis == 1 &&
		  v[0].nr_parts == 2 && v[0].parts[0] == 12 &&
		  v[0].parts[1] == 3);
	cr_expect(v[0].nr_conds == 2 && v[0].conds[1].len == 2 &&
		  !memcmp(v[0].conds[1].s, "yy", 2));
	cr_expect(v[1].how == CK_TP_SPLIT && v[1].nr_of == 2);
	cr_expect(v[2].how == CK_TP_QKV);
	cr_expect(v[3].nr_heads == 2 && v[3].copied && v[3].nr_conds == 1 &&
		  !memcmp(v[3].heads[1].s, "n", v[3].heads[1].len));
	cr_expect(v[4].nr_parts == 2 && v[4].nr_heads == 1 && !v[4].copied);
	ck_tp_rules_free(&r);
}

Test(tp_rules, what_it_may_not_say)
{
	static const char *const t[] = {
		"a",
		"a b",
		"a split",
		"a split 64",
		"a split x",
		"a split 0 parts 1+",
		"a split 0 parts 0",
		"a split 0 of",
		"a same 1",
		"a same if",
		"a same if x y",
		"a split 0 gated 2",
		"default\ndefault",
		"a b c d e f g h i",
		"a split 0 of x++y",
		"a split 0 heads",
		"a split 0 heads x|",
		"a split 0 gated heads x copied",
		"a split 0 of x heads y",
		"a same heads y",
		"a split 0 copied",
		"a split 0 parts 99999999999999999999",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(t); i++) {
		struct ck_tp_rules r;
		struct ck_err err = { 0 };

		cr_expect_eq(parse(&r, t[i], &err), -EINVAL, "%s", t[i]);
		cr_expect_eq(strncmp(err.msg, "f: line ", 8), 0, "%s: %s", t[i],
			     err.msg);
		ck_tp_rules_free(&r);
	}
}

Test(tp_rules, say_whose_models_they_are_for)
{
	struct ck_tp_rules r;

	cr_expect(!parse(&r, "names *.a.* b\nnames split 0\n", NULL));
	cr_expect_eq(r.v.nr, 1, "one of these lines is a rule");
	cr_expect(ck_tp_rules_name(&r, "x.a.y", 5));
	cr_expect(ck_tp_rules_name(&r, "b", 1));
	cr_expect(!ck_tp_rules_name(&r, "a", 1));
	ck_tp_rules_free(&r);
	cr_expect(!parse(&r, "default\n", NULL));
	cr_expect(r.v.nr && r.names.nr, "of a file that says so");
	ck_tp_rules_free(&r);
	for (const struct ck_rules_builtin *b = ck_tp_builtins; b->name; b++) {
		cr_expect(!parse(&r, b->text, NULL), "%s", b->name);
		cr_expect_eq(ck_tp_builtin(b->name), b->text);
		ck_tp_rules_free(&r);
	}
}
