/* SPDX-License-Identifier: Apache-2.0 */
/* Whose names tensors have, and whether hf/ shows them. */
#include "core/base/check.h"
#include "core/view/translate/translate.h"
#include "tests/unit/view/viewkit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct viewkit k;
static struct ck_model_names n;
static struct ck_translation t;
static struct ck_opts opts;
static struct ck_err err;

static void setup(void)
{
	n = (struct ck_model_names){ 0 };
	t = (struct ck_translation){ 0 };
	opts = (struct ck_opts){ 0 };
	vk_init(&k);
}

static void teardown(void)
{
	ck_translation_free(&t);
	ck_model_names_free(&n);
	ck_opts_free(&opts);
	vk_free(&k);
}
TestSuite(translate, .init = setup, .fini = teardown);

/* Of the tensors that @k has. */
static int make(const char *config)
{
	const struct ck_catalog *img = vk_image(&k);
	ck_auto_json json_t *j = NULL;

	cr_assert_eq(
		ck_model_names_make(&n, img, 0, img->nr_tensors, &opts, &err),
		0);
	if (config)
		cr_assert_eq(ck_json_parse(&j, config, strlen(config), &err), 0,
			     "%s", err.msg);
	return ck_translate(&t, img, &n, j, &opts, &err);
}

static void translate(const char *name)
{
	uint64_t len = 2;

	vk_tensor(&k, name, CK_DT_F32, 1, &len);
	cr_assert_eq(make(NULL), 0, "%s", err.msg);
}

static void others(const char *name, const char *whose)
{
	translate(name);
	cr_assert(t.why.len, "%s is shown", name);
	cr_assert(strstr(t.why.v, whose), "%s: %s", name, t.why.v);
	cr_assert(strstr(t.why.v, name), "%s: %s", name, t.why.v);
	teardown();
	setup();
}

Test(translate, says_whose_names_these_are)
{
	others("decoder.layers.0.self_attention.linear_qkv.weight",
	       "Megatron's");
	others("decoder.layers.self_attention.linear_qkv.weight", "Megatron's");
	others("language_model.encoder.layers.3.self_attention."
	       "query_key_value.weight",
	       "Megatron's");
	others("decoder.layers.3.mlp.experts.experts.linear_fc1.weight",
	       "Megatron's");
	others("layers.11.attention.wq.weight", "torchtitan's or Meta's");
	others("layers.1.attention.qkv_linear.wk.weight",
	       "torchtitan's or Meta's");
}

/* Those that only look like it: each is of a model in Hugging Face's code. */
Test(translate, leaves_what_loaders_know)
{
	static const char *const own[] = {
		"model.layers.0.self_attn.q_proj.weight",
		"transformer.h.0.self_attention.query_key_value.weight",
		"gpt_neox.layers.0.attention.query_key_value.weight",
		"bert.embeddings.word_embeddings.weight",
		"model.layers.0.feed_forward.w1.weight",
		"model.tok_embeddings.weight",
		"0.weight",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(own); i++) {
		translate(own[i]);
		cr_assert_eq(t.why.len, 0, "%s: %s", own[i], t.why.v);
		teardown();
		setup();
	}
}

Test(translate, shows_them_where_asked_to)
{
	ck_opts_add(&opts, "names", "asis");
	translate("decoder.layers.0.self_attention.linear_qkv.weight");
	cr_assert_eq(t.why.len, 0);
}

/* ---- with a config.json ---- */

/* The smallest model: two queries of two numbers to a key, one layer. */
#define LLAMA                                                              \
	"{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 4, " \
	"\"num_hidden_layers\": 1, \"num_attention_heads\": 2, "           \
	"\"num_key_value_heads\": 1, \"intermediate_size\": 3, "           \
	"\"vocab_size\": 5, \"tie_word_embeddings\": true}"

static void add(const char *name, uint64_t rows, uint64_t columns)
{
	const uint64_t shape[] = { rows, columns };

	vk_tensor(&k, name, CK_DT_F32, columns ? 2 : 1, shape);
}

#define LAYER "decoder.layers.0."

static void add_megatron(uint64_t qkv_rows)
{
	add("embedding.word_embeddings.weight", 8, 4);
	add("decoder.final_layernorm.weight", 4, 0);
	add(LAYER "self_attention.linear_qkv.layer_norm_weight", 4, 0);
	add(LAYER "self_attention.linear_qkv.weight", qkv_rows, 4);
	add(LAYER "self_attention.linear_proj.weight", 4, 4);
	add(LAYER "mlp.linear_fc1.layer_norm_weight", 4, 0);
	add(LAYER "mlp.linear_fc1.weight", 6, 4);
	add(LAYER "mlp.linear_fc2.weight", 4, 3);
}

static const struct ck_derived *find(const char *name)
{
	for (size_t i = 0; i < t.d.v.nr; i++)
		if (!strcmp(t.d.v.v[i].name, name))
			return &t.d.v.v[i];
	cr_assert(false, "%s is not there", name);
	abort();
}

/* Its only range is rows [from, to) of 16 bytes. */
static void is_rows(const char *name, uint64_t from, uint64_t to)
{
	const struct ck_derived *d = find(name);
	const struct ck_derived_range *r = &t.d.range.v[d->first];

	cr_assert_eq(d->shape[0], to - from, "%s", name);
	cr_assert_eq(d->nr, 1, "%s", name);
	cr_assert_eq(r->at, 16 * from, "%s", name);
	cr_assert_eq(r->len, 16 * (to - from), "%s", name);
}

Test(translate, takes_fused_tensors_apart)
{
	add_megatron(8);
	cr_assert_eq(make(LLAMA), 0, "%s", err.msg);
	cr_assert_eq(t.why.len, 0, "%s", t.why.v);
	cr_assert_eq(t.d.v.nr, 11);
	cr_assert_not(t.unproven);
	is_rows("model.embed_tokens.weight", 0, 5);
	is_rows("model.layers.0.self_attn.q_proj.weight", 0, 4);
	is_rows("model.layers.0.self_attn.k_proj.weight", 4, 6);
	is_rows("model.layers.0.self_attn.v_proj.weight", 6, 8);
	is_rows("model.layers.0.mlp.gate_proj.weight", 0, 3);
	is_rows("model.layers.0.mlp.up_proj.weight", 3, 6);
}

static void is_refused(const char *config, const char *why)
{
	cr_assert_eq(make(config), 0, "%s", err.msg);
	cr_assert_eq(t.rule.len, 0);
	cr_assert(t.why.len && strstr(t.why.v, why), "expected %s, found %s",
		  why, t.why.v ? t.why.v : "nothing");
}

Test(translate, compares_with_what_the_config_says)
{
	add_megatron(12);
	is_refused(LLAMA, "linear_qkv.weight has 12 rows, and by config.json "
			  "it should have 8");
}

Test(translate, wants_all_of_the_model)
{
	add(LAYER "self_attention.linear_proj.weight", 4, 4);
	is_refused(LLAMA, "of 11 tensors that LlamaForCausalLM has");
}

Test(translate, wants_a_rule_for_each)
{
	add_megatron(8);
	add(LAYER "mlp.linear_fc3.weight", 4, 4);
	is_refused(LLAMA, "of 1 of its 9 tensors no rule says");
}

Test(translate, knows_no_other_architecture)
{
	add_megatron(8);
	is_refused("{\"architectures\": [\"Nobody\"]}", "no rule is for");
}

Test(translate, says_that_none_of_the_names_is_known)
{
	add("blocks.0.q", 4, 4);
	is_refused(LLAMA, "none of the names of its 1 tensors, such as "
			  "blocks.0.q, is one of LlamaForCausalLM");
}

Test(translate, leaves_names_with_or_without_the_front)
{
	add("layers.0.self_attn.q_proj.weight", 4, 4);
	cr_assert_eq(make(LLAMA), 0);
	cr_assert_eq(t.why.len + t.rule.len, 0);
}

/* What others put around a model, or in place of a weight. */
Test(translate, leaves_adapters_and_quantized_weights)
{
	add("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", 4,
	    4);
	cr_assert_eq(make(LLAMA), 0);
	cr_assert_eq(t.why.len + t.rule.len, 0, "%s", t.why.v);
}

/* ---- tensors that are made of many ---- */

#define OSS                                                    \
	"{\"architectures\": [\"Oss\"], \"hidden_size\": 2, "  \
	"\"num_hidden_layers\": 1, \"intermediate_size\": 3, " \
	"\"num_experts\": 2}"
#define OSS_HAS "model Oss\nhas l.{l}.up 2,2,6\nhas l.{l}.bias 2,6\nsource my\n"
#define OSS_TAKES                                                     \
	OSS_HAS "take x.{l}.{e}.w l.{l}.up stack rows 2,3 order 1,0 " \
		"turned\ntake x.{l}.{e}.b l.{l}.bias stack rows 2,3 order 1,0\n"

static void give(const char *rules);

static void add_expert(const char *name, uint64_t rows)
{
	char text[32];

	snprintf(text, sizeof(text), "x.0.%s.w", name);
	add(text, rows, 2);
	snprintf(text, sizeof(text), "x.0.%s.b", name);
	add(text, rows, 0);
}

/* Range @i of @d: rows of @row bytes from @first on, columns @to, @to + 2, ... */
static void is_apart(const struct ck_derived *d, uint32_t i, uint64_t row,
		     uint64_t first, uint64_t to)
{
	const struct ck_derived_range *r = &t.d.range.v[d->first + i];

	cr_expect_eq(r->at, first * row, "%u: at %" PRIu64, i, r->at);
	cr_expect_eq(r->len, 3 * row, "%u: %" PRIu64 " bytes", i, r->len);
	cr_expect_eq(r->to, to, "%u: to %" PRIu64, i, r->to);
	cr_expect_eq(r->step, 2, "%u: step %" PRIu64, i, r->step);
}

Test(translate, stacks_experts_whose_rows_go_by_turns)
{
	const struct ck_derived *d;

	add_expert("1", 6);
	add_expert("0", 6);
	give(OSS_TAKES);
	cr_assert_eq(make(OSS), 0, "%s", err.msg);
	cr_assert_eq(t.why.len, 0, "%s", t.why.v);
	cr_assert_eq(t.d.v.nr, 2);
	d = find("l.0.up");
	cr_assert_eq(d->rank, 3);
	cr_assert_eq(d->turned, 2);
	cr_assert_eq(d->nr, 4);
	for (uint32_t i = 0; i < 4; i++) {
		is_apart(d, i, 8, i % 2 * 3, i % 2);
		cr_expect_eq(t.d.range.v[d->first + i].tensor, i < 2 ? 1 : 3);
	}
	d = find("l.0.bias");
	cr_assert_eq(d->rank, 2);
	cr_assert_eq(d->turned, 1);
	cr_assert_eq(d->nr, 4);
	is_apart(d, 3, 4, 3, 1);
}

Test(translate, wants_every_part)
{
	add_expert("0", 6);
	give(OSS_TAKES);
	is_refused(OSS, "the 1 parts of l.0.bias that are there are not all");
}

Test(translate, wants_no_expert_more)
{
	add_expert("2", 6);
	give(OSS_TAKES);
	is_refused(OSS, "of expert 2, and by config.json there are 2");
}

#define HALVES                                                          \
	"model Oss\nhas up 2,6\nsource my\ntake a up turned part 0:2\n" \
	"take b up turned part 1:2\n"

static void halves(uint64_t first, uint64_t second)
{
	add("a", first, 2);
	add("b", second, 2);
	give(HALVES);
}

Test(translate, joins_what_is_turned)
{
	const struct ck_derived *d;

	halves(4, 2);
	cr_assert_eq(make(OSS), 0, "%s", err.msg);
	cr_assert_eq(t.why.len, 0, "%s", t.why.v);
	d = find("up");
	cr_assert_eq(d->nr, 2);
	cr_assert_eq(t.d.range.v[d->first].tensor, 0);
	cr_assert_eq(t.d.range.v[d->first + 1].tensor, 1);
}

Test(translate, wants_parts_that_fill_it)
{
	halves(4, 1);
	is_refused(OSS, "the 2 parts of up that are there are not all");
	teardown();
	setup();
	halves(4, 3);
	is_refused(OSS, "the 2 parts of up that are there are not all");
	teardown();
	setup();
	add("a", 2, 2); /* 2^64 bytes and as many as are there */
	add("b", 1, 2);
	give("model Oss\nhas up 2,32768*32768*32768*65536+3\nsource my\n"
	     "take a up turned part 0:2\ntake b up turned part 1:2\n");
	is_refused(OSS, "the 2 parts of up that are there are not all");
	teardown();
	setup();
	halves(7, 2);
	is_refused(OSS, "a part of up would be [2, 7], from a");
}

static void give(const char *rules)
{
	ck_opts_add(&opts, "names", "my.rules");
	ck_opts_keep(&opts, strdup(rules), strlen(rules));
}

Test(translate, reads_a_file_first)
{
	add_megatron(8);
	give("take embedding.word_embeddings.weight model.norm.weight cut 5\n");
	is_refused(LLAMA, "model.norm.weight would be [5, 4], from embedding."
			  "word_embeddings.weight, and by config.json it is");
}

/* The names that add_megatron() has are Megatron's. */
Test(translate, says_what_nobody_has_compared)
{
	const struct {
		const char *rules;
		bool unproven;
	} cases[] = {
		{ "model LlamaForCausalLM\nunproven\n", true },
		{ "model LlamaForCausalLM\nunproven x Megatron's\n", true },
		{ "model LlamaForCausalLM\nunproven torchtitan's\n", false },
		{ "model Phi3ForCausalLM\nunproven\n", false }
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		add_megatron(8);
		give(cases[i].rules);
		cr_assert_eq(make(LLAMA), 0, "%s", err.msg);
		cr_expect_eq(t.unproven, cases[i].unproven, "%s",
			     cases[i].rules);
		teardown();
		setup();
	}
}

static void is_bad(const char *rules, const char *why)
{
	add_megatron(8);
	give(rules);
	cr_assert_eq(make(LLAMA), -EINVAL);
	cr_assert(strstr(err.msg, why), "expected %s, found %s", why, err.msg);
	teardown();
	setup();
}

Test(translate, says_which_line_is_wrong)
{
	is_bad("\nshow x\n", "my.rules: line 2: expected model, number");
	is_bad("take x\n", "my.rules: line 1: expected take NAME NAME");
	is_bad("take x y rows 2,2 at 1:1:2\n",
	       "my.rules: line 1: expected rows");
	is_bad("take x y rows 2,2 order 0,0\n",
	       "my.rules: line 1: expected rows");
	is_bad("take x y rows 1,1,1,1,1\n", "my.rules: line 1: expected rows");
	is_bad("take x y part 2:2\n", "my.rules: line 1: expected rows");
	is_bad("take x y part 0:65\n", "my.rules: line 1: expected rows");
	is_bad("take x y part\n", "my.rules: line 1: expected rows");
	is_bad("has x 1,1,1,1,1\n", "my.rules: line 1: over 4 dimensions");
	is_bad("number x\n", "my.rules: line 1: expected number NAME");
}
