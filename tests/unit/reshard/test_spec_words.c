/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes in words: how they read, what the source's own split makes of them. */
#include "core/geom/tiling.h"
#include "tests/unit/reshard/meshkit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

MESH_SUITE(words);

Test(words, seeds)
{
	mk_whole("w", 2, 4);
	mk_whole("v", 8, 8);
	kit_image(&mk.kit);
	mk_make("dim0=2");
	cr_expect_eq(ck_reshard_ranks(mk.rs), 2);
	mk_holds(0, "w", "[0:1, 0:4]");
	mk_holds(1, "w", "[1:2, 0:4]");
	mk_holds(1, "v", "[4:8, 0:8]");
	mk_make("dim0=2,dim1=4");
	cr_expect_eq(ck_reshard_ranks(mk.rs), 8);
	mk_holds(6, "v", "[4:8, 4:6]");
	mk_holds(6, "w", "[1:2, 2:3]");
}

/* FSDP: ceil(n / ranks) rows each, the last ones fewer or none. */
Test(words, rows_left_over)
{
	struct ck_part p = kit_part("scalar", mk.file[0]);

	p.rank = 0;
	p.off = 4096;
	kit_add(&mk.kit, &p);
	mk_whole("w", 64, 2);
	mk_whole("five", 5, 1);
	kit_image(&mk.kit);
	mk_make("dim0=56");
	mk_holds(0, "w", "[0:2, 0:2]");
	mk_holds(31, "w", "[62:64, 0:2]");
	mk_holds(32, "w", "[64:64, 0:2]");
	mk_holds(55, "w", "[64:64, 0:2]");
	mk_make("dim0=4");
	mk_holds(2, "five", "[4:5, 0:1]");
	mk_holds(3, "five", "[5:5, 0:1]");
	mk_holds(3, "scalar", "[]");
	mk_make("dim1=3");
	mk_holds(2, "scalar", "[]");
	mk_make("dim0=1");
	mk_holds(0, "w", "[0:64, 0:2]");
}

Test(words, what_is_no_mesh)
{
	static const char *const bad[] = {
		"",
		"x",
		"dim0",
		"dim0=",
		"dim0=0",
		"dim0=-1",
		"dim0=65537",
		"dim0=2,",
		",dim0=2",
		"dim64=2",
		"dim=2",
		"tp=2,tp=2",
		"pp=2x",
		"dim0=2 ",
		"layers=1",
		"pp=2,layers=1",
		"layers=+1",
		"tp=999,pp=999",
		"dim0=2,dim0=2",
		"=2",
		"dim99999999999999999999=2",
		"dim0=02",
		"dim00=2",
		"tp=08",
		"tp=2,groups=2,groups=2",
	};

	mk_whole("layers.0.w", 8, 8);
	kit_image(&mk.kit);
	for (size_t i = 0; i < CK_ARRAY_LEN(bad); i++)
		mk_malformed(bad[i], "");
}

Test(words, as_the_source_was_split)
{
	mk_split("row", 8, 6, 1, 2);
	mk_split("column", 8, 6, 0, 4);
	mk_whole("norm", 1, 6);
	kit_image(&mk.kit);
	mk_make("tp=2");
	mk_holds(1, "row", "[0:8, 3:6]");
	mk_holds(1, "column", "[4:8, 0:6]");
	mk_holds(1, "norm", "[0:1, 0:6]");
}

Test(words, rows_alone_are_no_tensor_parallelism)
{
	mk_split("matrix", 8, 6, 0, 2);
	for (unsigned i = 0; i < 2; i++) {
		struct ck_part p = kit_part("norm", mk.file[i]);

		p.rank = 1;
		p.shape = DIMS(4);
		p.start = DIMS(i * 2);
		p.len = DIMS(2);
		p.off = 4096;
		kit_add(&mk.kit, &p);
	}
	kit_image(&mk.kit);
	mk_make("tp=2");
	mk_holds(1, "matrix", "[4:8, 0:6]");
	ck_auto_str struct ck_str s = { 0 };
	ck_reshard_note(mk.rs, "m", &s);
	cr_expect_str_eq(s.v, "m: tp= cuts rows alone, norms too, as the "
			      "source was for data parallelism: tp=2,rules=hf "
			      "cuts as tensor parallelism does");
}

Test(words, what_does_not_divide_is_named)
{
	mk_split("row", 8, 6, 1, 2);
	mk_split("column", 8, 6, 0, 4);
	kit_image(&mk.kit);
	mk_refused("tp=3", "column: dimension 0: 8");
	mk_refused("tp=4", "row: dimension 1: 6");
}

static void expect_note(const char *want)
{
	ck_auto_str struct ck_str s = { 0 };

	ck_reshard_note(mk.rs, "m", &s);
	cr_expect_str_eq(s.v ? s.v : "", want);
}

Test(words, a_dimension_that_no_tensor_has_is_said)
{
	mk_whole("w", 64, 2);
	mk_whole("b", 4, 1);
	kit_image(&mk.kit);
	mk_make("dim2=3,dim1=1,dim9=2");
	mk_holds(5, "w", "[0:64, 0:2]");
	expect_note("m: dim2= cuts nothing: no tensor has a dimension 2; dim9= "
		    "cuts nothing: no tensor has a dimension 9");
	mk_make("dim1=2");
	expect_note("");
}

static void heads(void)
{
	mk_whole("layers.0.self_attn.q_proj.weight", 16, 4);
	mk_whole("layers.0.self_attn.k_proj.weight", 4, 4);
	mk_whole("layers.0.self_attn.v_proj.weight", 4, 4);
	mk_whole("layers.0.self_attn.o_proj.weight", 4, 16);
	kit_image(&mk.kit);
}

/* Of fewer heads than ranks each rank has a whole one. */
Test(words, whole_heads)
{
	heads();
	mk.config = json_loads("{\"text_config\": {\"num_attention_heads\": 8, "
			       "\"num_key_value_heads\": 2}}",
			       0, NULL);
	mk_make("tp=2");
	expect_note("");
	mk_make("pp=1,dim1=2,tp=4,rules=hf");
	mk_holds(0, "layers.0.self_attn.k_proj.weight", "[0:2, 0:2]");
	mk_holds(1, "layers.0.self_attn.k_proj.weight", "[0:2, 0:2]");
	mk_holds(2, "layers.0.self_attn.k_proj.weight", "[2:4, 0:2]");
	mk_holds(7, "layers.0.self_attn.v_proj.weight", "[2:4, 2:4]");
	mk_holds(7, "layers.0.self_attn.q_proj.weight", "[12:16, 2:4]");
	mk_holds(3, "layers.0.self_attn.o_proj.weight", "[0:4, 12:14]");
	expect_note("m: 2 heads for 4 ranks, so that each is whole on 2: "
		    "layers.0.self_attn.k_proj.weight and 1 more");
	mk_refused("tp=16", "_proj.weight: dimension 1: 8 heads");
	mk_refused("tp=3", "k_proj.weight: dimension 0: 2 heads");
}

Test(words, unknown_heads_are_cut_through_and_named)
{
	heads();
	mk_make("tp=4");
	mk_holds(1, "layers.0.self_attn.k_proj.weight", "[1:2, 0:4]");
	expect_note("m: cut in equal parts, for no config.json (-o "
		    "config=DIR) says how many heads they have: "
		    "layers.0.self_attn.k_proj.weight and 3 more");
}

/* The source's own split says where to cut, not how many heads there are. */
Test(words, whole_heads_of_what_was_split)
{
	mk_split("layers.0.self_attn.k_proj.weight", 4, 4, 0, 2);
	kit_image(&mk.kit);
	mk.config = json_loads("{\"num_attention_heads\": 2}", 0, NULL);
	mk_make("tp=4");
	mk_holds(1, "layers.0.self_attn.k_proj.weight", "[0:2, 0:4]");
	mk_holds(2, "layers.0.self_attn.k_proj.weight", "[2:4, 0:4]");
}

Test(words, nothing_to_go_by)
{
	mk_whole("w", 8, 8);
	kit_image(&mk.kit);
	mk_refused("tp=2", "w: no rule says");
	mk_make("tp=1");
	mk_refused("pp=2", "layer");
}

/* Two ranks, each with its rows of q, of k and of v: three blocks. */
Test(words, fused_rows_are_found_by_the_files_they_are_in)
{
	static const uint64_t start[] = { 0, 4, 8, 10, 12, 14 };
	static const uint64_t len[] = { 4, 4, 2, 2, 2, 2 };

	for (unsigned i = 0; i < 6; i++)
		mk_part("qkv", 2, DIMS(16, 3), DIMS(start[i], 0),
			DIMS(len[i], 3), i % 2);
	kit_image(&mk.kit);
	mk_make("tp=2");
	mk_holds(0, "qkv", "[0:4+8:10+12:14, 0:3]");
	mk_holds(1, "qkv", "[4:8+10:12+14:16, 0:3]");
	mk_make("tp=1");
	mk_holds(0, "qkv", "[0:16, 0:3]");
	mk_make("tp=4");
	mk_holds(3, "qkv", "[6:8+11:12+15:16, 0:3]");
	mk_refused("tp=8", "");
}

/* A gate and what it gates as a grid: halves that ranks have shares of. */
Test(words, gated_rows_are_found_by_the_grid)
{
	struct ck_part p = kit_part("fc1", mk.file[0]);

	p.shape = DIMS(8, 3);
	p.grid = DIMS(2, 4, 3);
	p.grid_rank = 3;
	p.start = DIMS(0, 0, 0);
	p.len = DIMS(2, 2, 3);
	kit_add(&mk.kit, &p);
	p.start = DIMS(0, 2, 0);
	p.src = mk.file[1];
	kit_add(&mk.kit, &p);
	kit_image(&mk.kit);
	mk_make("tp=4");
	mk_holds(0, "fc1", "[0:1+4:5, 0:3]");
	mk_holds(3, "fc1", "[3:4+7:8, 0:3]");
}

Test(words, rules_that_are_built_in)
{
	mk_whole("model.layers.0.self_attn.q_proj.weight", 8, 6);
	mk_whole("model.layers.0.self_attn.o_proj.weight", 6, 8);
	mk_whole("model.layers.0.mlp.gate_up_proj.weight", 8, 6);
	mk_whole("model.layers.0.input_layernorm.weight", 1, 6);
	mk_whole("h.0.attn.c_attn.weight", 2, 12);
	kit_image(&mk.kit);
	for (unsigned i = 0; i < 2; i++) {
		/* the source is not split: they apply unasked */
		mk_make(i ? "tp=2" : "tp=2,rules=hf");
		mk_holds(1, "model.layers.0.self_attn.q_proj.weight",
			 "[4:8, 0:6]");
		mk_holds(1, "model.layers.0.self_attn.o_proj.weight",
			 "[0:6, 4:8]");
		mk_holds(1, "model.layers.0.mlp.gate_up_proj.weight",
			 "[2:4+6:8, 0:6]");
		mk_holds(1, "model.layers.0.input_layernorm.weight",
			 "[0:1, 0:6]");
		mk_holds(0, "h.0.attn.c_attn.weight", "[0:2, 0:2+4:6+8:10]");
	}
	mk_make("tp=4,rules=hf");
	mk_refused("tp=2,rules=megatron", "no rule says");
	mk_malformed("tp=2,rules=none", "");
	mk_malformed("tp=2,rules=", "");
}

Test(words, rules_that_ask)
{
	mk_whole("decoder.layers.0.mlp.linear_fc1.weight", 8, 6);
	mk_whole("decoder.layers.0.self_attention.linear_qkv.weight", 12, 6);
	mk_whole("rng_state.mp_rank_00.0.cuda_rng_state", 1, 16);
	kit_image(&mk.kit);
	mk_refused("tp=2,rules=megatron", "if=swiglu or if=no");
	mk_make("tp=2,rules=megatron,if=no");
	mk_holds(0, "decoder.layers.0.mlp.linear_fc1.weight", "[0:4, 0:6]");
	mk_holds(1, "rng_state.mp_rank_00.0.cuda_rng_state", "[0:1, 0:16]");
	mk_make("tp=2,rules=megatron,if=x+swiglu,groups=4");
	mk_holds(0, "decoder.layers.0.mlp.linear_fc1.weight", "[0:2+4:6, 0:6]");
	mk_holds(1, "decoder.layers.0.self_attention.linear_qkv.weight",
		 "[6:12, 0:6]");
	mk_refused("tp=2,rules=megatron,if=no,groups=3", "3 groups");
	mk_refused("tp=2,rules=megatron,if=no,groups=5", "");
}

Test(words, rules_of_a_file)
{
	static const char text[] = "w split 1 parts 2+1\n* same\n";

	mk_whole("w", 6, 12);
	mk_whole("v", 6, 12);
	kit_image(&mk.kit);
	ck_opts_add(&mk.opts, "rules", "/x/mine.txt");
	ck_opts_keep(&mk.opts, strdup(text), strlen(text));
	mk_make("tp=2"); /* the first file there is */
	mk_holds(1, "w", "[0:6, 4:8+10:12]");
	mk_holds(1, "v", "[0:6, 0:12]");
	mk_make("tp=4,rules=mine");
	mk_holds(3, "w", "[0:6, 6:8+11:12]");
	mk_refused("tp=8,rules=mine", "w: dimension 1");
	ck_opts_add(&mk.opts, "rules", "not-there");
	cr_expect_eq(mk_try("tp=2,rules=not-there"), -ENOENT);
	ck_opts_add(&mk.opts, "rules", "bad");
	ck_opts_keep(&mk.opts, strdup("w split"), 7);
	mk_malformed("tp=2,rules=bad", "bad: line 1");
}

Test(words, two_dimensions_are_not_guessed)
{
	for (unsigned i = 0; i < 4; i++)
		mk_part("w", 2, DIMS(8, 6), DIMS(i / 2 * 4, i % 2 * 3),
			DIMS(4, 3), i);
	kit_image(&mk.kit);
	mk_refused("tp=2", "w: tp=");
	mk_make("dim0=2");
}

Test(words, stages)
{
	mk_whole("model.embed_tokens.weight", 4, 2);
	mk_whole("model.layers.0.w", 4, 2);
	mk_whole("model.layers.1.w", 4, 2);
	mk_whole("model.layers.2.w", 4, 2);
	mk_whole("model.norm.weight", 4, 2);
	mk_whole("step", 4, 2);
	mk_split("lm_head.weight", 4, 2, 0, 2);
	kit_image(&mk.kit);
	mk_make("tp=2,pp=2");
	mk_holds(0, "model.embed_tokens.weight", "[0:4, 0:2]");
	mk_holds(1, "model.embed_tokens.weight", "[0:4, 0:2]");
	mk_holds(2, "model.embed_tokens.weight", NULL);
	mk_holds(1, "model.layers.0.w", "[0:4, 0:2]");
	mk_holds(1, "model.layers.1.w", NULL);
	mk_holds(2, "model.layers.1.w", "[0:4, 0:2]");
	mk_holds(3, "model.norm.weight", "[0:4, 0:2]");
	mk_holds(1, "lm_head.weight", NULL);
	mk_holds(3, "lm_head.weight", "[2:4, 0:2]");
	for (uint32_t r = 0; r < 4; r++)
		mk_holds(r, "step", "[0:4, 0:2]");
	mk_make("pp=2,layers=2+1,dim0=2");
	mk_holds(1, "model.layers.1.w", "[2:4, 0:2]");
	mk_holds(2, "model.layers.1.w", NULL);
	mk_refused("pp=2,layers=2+2", "make 4, the checkpoint has 3");
}

static void tied_as(const char *text, bool tied)
{
	json_decref(mk.config);
	mk.config = text ? json_loads(text, 0, NULL) : NULL;
	mk_make("pp=3,tp=2");
	mk_holds(1, "model.embed_tokens.weight", "[2:4, 0:2]");
	mk_holds(2, "model.embed_tokens.weight", NULL);
	mk_holds(4, "model.embed_tokens.weight", tied ? "[0:2, 0:2]" : NULL);
	mk_holds(5, "model.embed_tokens.weight", tied ? "[2:4, 0:2]" : NULL);
}

Test(words, a_head_that_is_the_table_of_words)
{
	mk_split("model.embed_tokens.weight", 4, 2, 0, 2);
	for (unsigned i = 0; i < 3; i++) {
		char name[24];

		snprintf(name, sizeof(name), "model.layers.%u.w", i);
		mk_whole(name, 4, 2);
	}
	kit_image(&mk.kit);
	tied_as(NULL, false);
	tied_as("{}", false);
	tied_as("{\"tie_word_embeddings\": true}", true);
	tied_as("{\"text_config\": {\"tie_word_embeddings\": true}}", true);
	tied_as("{\"architectures\": [\"GPT2LMHeadModel\"]}", true);
	tied_as("{\"architectures\": [\"LlamaModel\"]}", false);
	tied_as("{\"architectures\": [\"XForCausalLM\"], "
		"\"tie_word_embeddings\": false}",
		false);
}

Test(words, a_head_of_its_own)
{
	mk_whole("model.embed_tokens.weight", 4, 2);
	mk_whole("model.layers.0.w", 4, 2);
	mk_whole("model.layers.1.w", 4, 2);
	mk_whole("lm_head.weight", 4, 2);
	kit_image(&mk.kit);
	mk.config = json_loads("{\"tie_word_embeddings\": true}", 0, NULL);
	mk_make("pp=2");
	mk_holds(1, "model.embed_tokens.weight", NULL);
	mk_holds(1, "lm_head.weight", "[0:4, 0:2]");
}

/* FSDP over tensor parallelism cuts what the latter left. */
Test(words, rows_of_what_tp_left)
{
	mk_split("column", 8, 6, 0, 2);
	mk_split("row", 8, 6, 1, 2);
	kit_image(&mk.kit);
	mk_make("dim0=2,tp=2");
	mk_holds(0, "column", "[0:2, 0:6]");
	mk_holds(1, "column", "[4:6, 0:6]");
	mk_holds(2, "column", "[2:4, 0:6]");
	mk_holds(3, "row", "[4:8, 3:6]");
}

/* As MindSpore's and torchvision's: without dots, and some from 1 on. */
Test(words, stages_of_layers_without_dots)
{
	mk_whole("layer0.weight", 4, 2);
	mk_whole("layer1.weight", 4, 2);
	mk_whole("moments.layer1.weight", 4, 2);
	kit_image(&mk.kit);
	mk_make("pp=2");
	mk_holds(0, "layer0.weight", "[0:4, 0:2]");
	mk_holds(1, "layer0.weight", NULL);
	mk_holds(0, "moments.layer1.weight", NULL);
	mk_holds(1, "moments.layer1.weight", "[0:4, 0:2]");
}

Test(words, stages_of_layers_from_1_on)
{
	mk_whole("layer1.0.conv1.weight", 4, 2);
	mk_whole("layer2.0.conv1.weight", 4, 2);
	mk_whole("layer3.0.conv1.weight", 4, 2);
	mk_whole("layer4.1.conv1.weight", 4, 2);
	kit_image(&mk.kit);
	mk_make("pp=2");
	mk_holds(0, "layer2.0.conv1.weight", "[0:4, 0:2]");
	mk_holds(0, "layer3.0.conv1.weight", NULL);
	mk_holds(1, "layer3.0.conv1.weight", "[0:4, 0:2]");
	mk_make("pp=2,layers=3+1");
	mk_holds(0, "layer3.0.conv1.weight", "[0:4, 0:2]");
	mk_holds(1, "layer4.1.conv1.weight", "[0:4, 0:2]");
	mk_refused("pp=2,layers=3+2", "");
}

/* A weight of @nr rows that is stored in as many parts. */
static void rows_apart(uint32_t nr)
{
	for (uint64_t i = 0; i < nr; i++)
		mk_part("w", 2, DIMS(nr, 2), DIMS(i, 0), DIMS(1, 2), i % 4);
	kit_image(&mk.kit);
}

/* What finding the stored parts of every rank's looks mk.at; *meet: finds. */
static uint64_t work(const char *words, uint64_t *meet)
{
	uint32_t t = kit_find(&mk.kit, "w");
	struct ck_reshard_part p;
	struct ck_tiling walk;
	uint64_t looked = 0;

	mk_make(words);
	*meet = 0;
	for (uint32_t r = 0; r < ck_reshard_ranks(mk.rs); r++) {
		cr_assert(ck_reshard_part(mk.rs, r, t, &p));
		ck_tiling_init(&walk, &mk.kit.img, &mk.kit.img.tensors[t],
			       &p.shard.box);
		while (ck_tiling_next(&walk) != CK_NONE)
			++*meet;
		looked += walk.looked;
	}
	return looked;
}

/* 1,024 stored into 1,024 loaded: with the pairs that meet, not all pairs. */
Test(words, planning_grows_with_the_overlaps)
{
	uint64_t few, many, some, meet;

	rows_apart(256);
	few = work("dim0=256", &meet);
	cr_expect_eq(meet, 256);
	mk_free();
	mk_init();
	rows_apart(1024);
	many = work("dim0=1024", &meet);
	cr_expect_eq(meet, 1024);
	cr_expect_leq(many, 64 * meet, "%lu for %lu", many, meet);
	cr_expect_leq(many, 5 * few, "%lu, %lu for a quarter", many, few);
	some = work("dim0=64", &meet);
	cr_expect_eq(meet, 1024);
	cr_expect_leq(some, 8 * meet, "%lu for %lu", some, meet);
	some = work("dim0=1024,dim1=2", &meet);
	cr_expect_eq(meet, 2048);
	cr_expect_leq(some, 64 * meet, "%lu for %lu", some, meet);
}
