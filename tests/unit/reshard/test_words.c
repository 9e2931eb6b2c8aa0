/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes in words: how they read, what the source's own split makes of them. */
#include "core/geom/tiling.h"
#include "core/reshard/words.h"
#include "tests/unit/catalog/kit.h"
#include "tests/unit/reshard/naive.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct kit kit;
static struct ck_reshard *rs;
static struct ck_err err;
static uint32_t file[4];
static uint64_t at;
static struct ck_opts opts;
static json_t *config;

static void setup(void)
{
	kit = kit_new();
	for (unsigned i = 0; i < 4; i++)
		file[i] = kit_file(&kit,
				   (const char *[]){ "a", "b", "c", "d" }[i],
				   1 << 20);
}

static void teardown(void)
{
	ck_reshard_free(rs);
	rs = NULL;
	ck_opts_free(&opts);
	json_decref(config);
	config = NULL;
	kit_free(&kit);
}
TestSuite(words, .init = setup, .fini = teardown);

/* Rows, or columns, of a float32 [rows, columns] in a file. */
static void part(const char *name, const uint64_t *shape, const uint64_t *start,
		 const uint64_t *len, unsigned in)
{
	struct ck_part p = kit_part(name, file[in]);

	p.shape = shape;
	p.start = start;
	p.len = len;
	p.off = at;
	at += len[0] * len[1] * 4;
	kit_add(&kit, &p);
}

static void whole(const char *name, uint64_t rows, uint64_t columns)
{
	part(name, DIMS(rows, columns), DIMS(0, 0), DIMS(rows, columns), 0);
}

static int try(const char *words)
{
	const struct ck_reshard_in in = { .img = &kit.img,
					  .nr = kit.img.nr_tensors,
					  .name = words,
					  .opts = &opts,
					  .config = config };
	bool of_spec;
	int ret;

	ck_reshard_free(rs);
	rs = NULL;
	ret = ck_reshard_new(&rs, &in, &of_spec, &err);
	return ret && !of_spec ? -1000 : ret;
}

static void make(const char *words)
{
	cr_assert_eq(try(words), 0, "%s: %s", words, err.msg);
}

static void holds(uint32_t rank, const char *name, const char *want)
{
	naive_holds(rs, rank, kit_find(&kit, name), want);
}

Test(words, seeds)
{
	whole("w", 2, 4);
	whole("v", 8, 8);
	kit_image(&kit);
	make("dim0=2");
	cr_expect_eq(ck_reshard_ranks(rs), 2);
	holds(0, "w", "[0:1, 0:4]");
	holds(1, "w", "[1:2, 0:4]");
	holds(1, "v", "[4:8, 0:8]");
	make("dim0=2,dim1=4");
	cr_expect_eq(ck_reshard_ranks(rs), 8);
	holds(6, "v", "[4:8, 4:6]");
	holds(6, "w", "[1:2, 2:3]");
}

/* FSDP: ceil(n / ranks) rows each, the last ones fewer or none. */
Test(words, rows_left_over)
{
	struct ck_part p = kit_part("scalar", file[0]);

	p.rank = 0;
	p.off = 4096;
	kit_add(&kit, &p);
	whole("w", 64, 2);
	whole("five", 5, 1);
	kit_image(&kit);
	make("dim0=56");
	holds(0, "w", "[0:2, 0:2]");
	holds(31, "w", "[62:64, 0:2]");
	holds(32, "w", "[64:64, 0:2]");
	holds(55, "w", "[64:64, 0:2]");
	make("dim0=4");
	holds(2, "five", "[4:5, 0:1]");
	holds(3, "five", "[5:5, 0:1]");
	holds(3, "scalar", "[]");
	make("dim1=3");
	holds(2, "scalar", "[]");
	make("dim0=1");
	holds(0, "w", "[0:64, 0:2]");
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

	whole("layers.0.w", 8, 8);
	kit_image(&kit);
	for (size_t i = 0; i < CK_ARRAY_LEN(bad); i++)
		cr_expect_eq(try(bad[i]), -EINVAL, "\"%s\"", bad[i]);
}

static void split(const char *name, uint64_t rows, uint64_t columns,
		  unsigned axis, unsigned nr)
{
	uint64_t each = (axis ? columns : rows) / nr;

	for (unsigned i = 0; i < nr; i++)
		part(name, DIMS(rows, columns),
		     DIMS(axis ? 0 : i * each, axis ? i * each : 0),
		     DIMS(axis ? rows : each, axis ? each : columns), i);
}

Test(words, as_the_source_was_split)
{
	split("row", 8, 6, 1, 2);
	split("column", 8, 6, 0, 4);
	whole("norm", 1, 6);
	kit_image(&kit);
	make("tp=2");
	holds(1, "row", "[0:8, 3:6]");
	holds(1, "column", "[4:8, 0:6]");
	holds(1, "norm", "[0:1, 0:6]");
}

Test(words, rows_alone_are_no_tensor_parallelism)
{
	split("matrix", 8, 6, 0, 2);
	for (unsigned i = 0; i < 2; i++) {
		struct ck_part p = kit_part("norm", file[i]);

		p.rank = 1;
		p.shape = DIMS(4);
		p.start = DIMS(i * 2);
		p.len = DIMS(2);
		p.off = 4096;
		kit_add(&kit, &p);
	}
	kit_image(&kit);
	make("tp=2");
	holds(1, "matrix", "[4:8, 0:6]");
	ck_auto_str struct ck_str s = { 0 };
	ck_reshard_note(rs, "m", &s);
	cr_expect_str_eq(s.v, "m: tp= cuts rows alone, norms too, as the "
			      "source was for data parallelism: tp=2,rules=hf "
			      "cuts as tensor parallelism does");
}

Test(words, what_does_not_divide_is_named)
{
	split("row", 8, 6, 1, 2);
	split("column", 8, 6, 0, 4);
	kit_image(&kit);
	cr_expect_eq(try("tp=3"), -1000);
	cr_expect(strstr(err.msg, "column: dimension 0: 8"), "%s", err.msg);
	cr_expect_eq(try("tp=4"), -1000);
	cr_expect(strstr(err.msg, "row: dimension 1: 6"), "%s", err.msg);
}

static void expect_note(const char *want)
{
	ck_auto_str struct ck_str s = { 0 };

	ck_reshard_note(rs, "m", &s);
	cr_expect_str_eq(s.v ? s.v : "", want);
}

Test(words, a_dimension_that_no_tensor_has_is_said)
{
	whole("w", 64, 2);
	whole("b", 4, 1);
	kit_image(&kit);
	make("dim2=3,dim1=1,dim9=2");
	holds(5, "w", "[0:64, 0:2]");
	expect_note("m: dim2= cuts nothing: no tensor has a dimension 2; dim9= "
		    "cuts nothing: no tensor has a dimension 9");
	make("dim1=2");
	expect_note("");
}

static void heads(void)
{
	whole("layers.0.self_attn.q_proj.weight", 16, 4);
	whole("layers.0.self_attn.k_proj.weight", 4, 4);
	whole("layers.0.self_attn.v_proj.weight", 4, 4);
	whole("layers.0.self_attn.o_proj.weight", 4, 16);
	kit_image(&kit);
}

/* Of fewer heads than ranks each rank has a whole one. */
Test(words, whole_heads)
{
	heads();
	config = json_loads("{\"text_config\": {\"num_attention_heads\": 8, "
			    "\"num_key_value_heads\": 2}}",
			    0, NULL);
	make("tp=2");
	expect_note("");
	make("pp=1,dim1=2,tp=4,rules=hf");
	holds(0, "layers.0.self_attn.k_proj.weight", "[0:2, 0:2]");
	holds(1, "layers.0.self_attn.k_proj.weight", "[0:2, 0:2]");
	holds(2, "layers.0.self_attn.k_proj.weight", "[2:4, 0:2]");
	holds(7, "layers.0.self_attn.v_proj.weight", "[2:4, 2:4]");
	holds(7, "layers.0.self_attn.q_proj.weight", "[12:16, 2:4]");
	holds(3, "layers.0.self_attn.o_proj.weight", "[0:4, 12:14]");
	expect_note("m: 2 heads for 4 ranks, so that each is whole on 2: "
		    "layers.0.self_attn.k_proj.weight and 1 more");
	cr_expect_eq(try("tp=16"), -1000);
	cr_expect(strstr(err.msg, "_proj.weight: dimension 1: 8 heads"), "%s",
		  err.msg);
	cr_expect_eq(try("tp=3"), -1000);
	cr_expect(strstr(err.msg, "k_proj.weight: dimension 0: 2 heads"), "%s",
		  err.msg);
}

Test(words, unknown_heads_are_cut_through_and_named)
{
	heads();
	make("tp=4");
	holds(1, "layers.0.self_attn.k_proj.weight", "[1:2, 0:4]");
	expect_note("m: cut in equal parts, for no config.json (-o "
		    "config=DIR) says how many heads they have: "
		    "layers.0.self_attn.k_proj.weight and 3 more");
}

/* The source's own split says where to cut, not how many heads there are. */
Test(words, whole_heads_of_what_was_split)
{
	split("layers.0.self_attn.k_proj.weight", 4, 4, 0, 2);
	kit_image(&kit);
	config = json_loads("{\"num_attention_heads\": 2}", 0, NULL);
	make("tp=4");
	holds(1, "layers.0.self_attn.k_proj.weight", "[0:2, 0:4]");
	holds(2, "layers.0.self_attn.k_proj.weight", "[2:4, 0:4]");
}

Test(words, nothing_to_go_by)
{
	whole("w", 8, 8);
	kit_image(&kit);
	cr_expect_eq(try("tp=2"), -1000);
	cr_expect(strstr(err.msg, "w: no rule says"), "%s", err.msg);
	make("tp=1");
	cr_expect_eq(try("pp=2"), -1000);
	cr_expect(strstr(err.msg, "layer"), "%s", err.msg);
}

/* Two ranks, each with its rows of q, of k and of v: three blocks. */
Test(words, fused_rows_are_found_by_the_files_they_are_in)
{
	static const uint64_t start[] = { 0, 4, 8, 10, 12, 14 };
	static const uint64_t len[] = { 4, 4, 2, 2, 2, 2 };

	for (unsigned i = 0; i < 6; i++)
		part("qkv", DIMS(16, 3), DIMS(start[i], 0), DIMS(len[i], 3),
		     i % 2);
	kit_image(&kit);
	make("tp=2");
	holds(0, "qkv", "[0:4+8:10+12:14, 0:3]");
	holds(1, "qkv", "[4:8+10:12+14:16, 0:3]");
	make("tp=1");
	holds(0, "qkv", "[0:16, 0:3]");
	cr_expect_eq(try("tp=4"), 0);
	holds(3, "qkv", "[6:8+11:12+15:16, 0:3]");
	cr_expect_eq(try("tp=8"), -1000);
}

/* A gate and what it gates as a grid: halves that ranks have shares of. */
Test(words, gated_rows_are_found_by_the_grid)
{
	struct ck_part p = kit_part("fc1", file[0]);

	p.shape = DIMS(8, 3);
	p.grid = DIMS(2, 4, 3);
	p.grid_rank = 3;
	p.start = DIMS(0, 0, 0);
	p.len = DIMS(2, 2, 3);
	kit_add(&kit, &p);
	p.start = DIMS(0, 2, 0);
	p.src = file[1];
	kit_add(&kit, &p);
	kit_image(&kit);
	make("tp=4");
	holds(0, "fc1", "[0:1+4:5, 0:3]");
	holds(3, "fc1", "[3:4+7:8, 0:3]");
}

Test(words, rules_that_are_built_in)
{
	whole("model.layers.0.self_attn.q_proj.weight", 8, 6);
	whole("model.layers.0.self_attn.o_proj.weight", 6, 8);
	whole("model.layers.0.mlp.gate_up_proj.weight", 8, 6);
	whole("model.layers.0.input_layernorm.weight", 1, 6);
	whole("h.0.attn.c_attn.weight", 2, 12);
	kit_image(&kit);
	for (unsigned i = 0; i < 2; i++) {
		/* the source is not split: they apply unasked */
		make(i ? "tp=2" : "tp=2,rules=hf");
		holds(1, "model.layers.0.self_attn.q_proj.weight",
		      "[4:8, 0:6]");
		holds(1, "model.layers.0.self_attn.o_proj.weight",
		      "[0:6, 4:8]");
		holds(1, "model.layers.0.mlp.gate_up_proj.weight",
		      "[2:4+6:8, 0:6]");
		holds(1, "model.layers.0.input_layernorm.weight", "[0:1, 0:6]");
		holds(0, "h.0.attn.c_attn.weight", "[0:2, 0:2+4:6+8:10]");
	}
	cr_expect_eq(try("tp=4,rules=hf"), 0, "%s", err.msg);
	cr_expect_eq(try("tp=2,rules=megatron"), -1000);
	cr_expect(strstr(err.msg, "no rule says"), "%s", err.msg);
	cr_expect_eq(try("tp=2,rules=none"), -EINVAL);
	cr_expect_eq(try("tp=2,rules="), -EINVAL);
}

Test(words, rules_that_ask)
{
	whole("decoder.layers.0.mlp.linear_fc1.weight", 8, 6);
	whole("decoder.layers.0.self_attention.linear_qkv.weight", 12, 6);
	whole("rng_state.mp_rank_00.0.cuda_rng_state", 1, 16);
	kit_image(&kit);
	cr_expect_eq(try("tp=2,rules=megatron"), -1000);
	cr_expect(strstr(err.msg, "if=swiglu or if=no"), "%s", err.msg);
	make("tp=2,rules=megatron,if=no");
	holds(0, "decoder.layers.0.mlp.linear_fc1.weight", "[0:4, 0:6]");
	holds(1, "rng_state.mp_rank_00.0.cuda_rng_state", "[0:1, 0:16]");
	make("tp=2,rules=megatron,if=x+swiglu,groups=4");
	holds(0, "decoder.layers.0.mlp.linear_fc1.weight", "[0:2+4:6, 0:6]");
	holds(1, "decoder.layers.0.self_attention.linear_qkv.weight",
	      "[6:12, 0:6]");
	cr_expect_eq(try("tp=2,rules=megatron,if=no,groups=3"), -1000);
	cr_expect(strstr(err.msg, "3 groups"), "%s", err.msg);
	cr_expect_eq(try("tp=2,rules=megatron,if=no,groups=5"), -1000);
}

Test(words, rules_of_a_file)
{
	static const char text[] = "w split 1 parts 2+1\n* same\n";

	whole("w", 6, 12);
	whole("v", 6, 12);
	kit_image(&kit);
	ck_opts_add(&opts, "rules", "/x/mine.txt");
	ck_opts_keep(&opts, strdup(text), strlen(text));
	make("tp=2"); /* the first file there is */
	holds(1, "w", "[0:6, 4:8+10:12]");
	holds(1, "v", "[0:6, 0:12]");
	make("tp=4,rules=mine");
	holds(3, "w", "[0:6, 6:8+11:12]");
	cr_expect_eq(try("tp=8,rules=mine"), -1000);
	cr_expect(strstr(err.msg, "w: dimension 1"), "%s", err.msg);
	ck_opts_add(&opts, "rules", "not-there");
	cr_expect_eq(try("tp=2,rules=not-there"), -ENOENT);
	ck_opts_add(&opts, "rules", "bad");
	ck_opts_keep(&opts, strdup("w split"), 7);
	cr_expect_eq(try("tp=2,rules=bad"), -EINVAL);
	cr_expect(strstr(err.msg, "bad: line 1"), "%s", err.msg);
}

Test(words, two_dimensions_are_not_guessed)
{
	for (unsigned i = 0; i < 4; i++)
		part("w", DIMS(8, 6), DIMS(i / 2 * 4, i % 2 * 3), DIMS(4, 3),
		     i);
	kit_image(&kit);
	cr_expect_eq(try("tp=2"), -1000);
	cr_expect(strstr(err.msg, "w: tp="), "%s", err.msg);
	make("dim0=2");
}

Test(words, stages)
{
	whole("model.embed_tokens.weight", 4, 2);
	whole("model.layers.0.w", 4, 2);
	whole("model.layers.1.w", 4, 2);
	whole("model.layers.2.w", 4, 2);
	whole("model.norm.weight", 4, 2);
	whole("step", 4, 2);
	split("lm_head.weight", 4, 2, 0, 2);
	kit_image(&kit);
	make("tp=2,pp=2");
	holds(0, "model.embed_tokens.weight", "[0:4, 0:2]");
	holds(1, "model.embed_tokens.weight", "[0:4, 0:2]");
	holds(2, "model.embed_tokens.weight", NULL);
	holds(1, "model.layers.0.w", "[0:4, 0:2]");
	holds(1, "model.layers.1.w", NULL);
	holds(2, "model.layers.1.w", "[0:4, 0:2]");
	holds(3, "model.norm.weight", "[0:4, 0:2]");
	holds(1, "lm_head.weight", NULL);
	holds(3, "lm_head.weight", "[2:4, 0:2]");
	for (uint32_t r = 0; r < 4; r++)
		holds(r, "step", "[0:4, 0:2]");
	make("pp=2,layers=2+1,dim0=2");
	holds(1, "model.layers.1.w", "[2:4, 0:2]");
	holds(2, "model.layers.1.w", NULL);
	cr_expect_eq(try("pp=2,layers=2+2"), -1000);
	cr_expect(strstr(err.msg, "make 4, the checkpoint has 3"), "%s",
		  err.msg);
}

static void tied_as(const char *text, bool tied)
{
	json_decref(config);
	config = text ? json_loads(text, 0, NULL) : NULL;
	make("pp=3,tp=2");
	holds(1, "model.embed_tokens.weight", "[2:4, 0:2]");
	holds(2, "model.embed_tokens.weight", NULL);
	holds(4, "model.embed_tokens.weight", tied ? "[0:2, 0:2]" : NULL);
	holds(5, "model.embed_tokens.weight", tied ? "[2:4, 0:2]" : NULL);
}

Test(words, a_head_that_is_the_table_of_words)
{
	split("model.embed_tokens.weight", 4, 2, 0, 2);
	for (unsigned i = 0; i < 3; i++) {
		char name[24];

		snprintf(name, sizeof(name), "model.layers.%u.w", i);
		whole(name, 4, 2);
	}
	kit_image(&kit);
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
	whole("model.embed_tokens.weight", 4, 2);
	whole("model.layers.0.w", 4, 2);
	whole("model.layers.1.w", 4, 2);
	whole("lm_head.weight", 4, 2);
	kit_image(&kit);
	config = json_loads("{\"tie_word_embeddings\": true}", 0, NULL);
	make("pp=2");
	holds(1, "model.embed_tokens.weight", NULL);
	holds(1, "lm_head.weight", "[0:4, 0:2]");
}

/* FSDP over tensor parallelism cuts what the latter left. */
Test(words, rows_of_what_tp_left)
{
	split("column", 8, 6, 0, 2);
	split("row", 8, 6, 1, 2);
	kit_image(&kit);
	make("dim0=2,tp=2");
	holds(0, "column", "[0:2, 0:6]");
	holds(1, "column", "[4:6, 0:6]");
	holds(2, "column", "[2:4, 0:6]");
	holds(3, "row", "[4:8, 3:6]");
}

/* As MindSpore's and torchvision's: without dots, and some from 1 on. */
Test(words, stages_of_layers_without_dots)
{
	whole("layer0.weight", 4, 2);
	whole("layer1.weight", 4, 2);
	whole("moments.layer1.weight", 4, 2);
	kit_image(&kit);
	make("pp=2");
	holds(0, "layer0.weight", "[0:4, 0:2]");
	holds(1, "layer0.weight", NULL);
	holds(0, "moments.layer1.weight", NULL);
	holds(1, "moments.layer1.weight", "[0:4, 0:2]");
}

Test(words, stages_of_layers_from_1_on)
{
	whole("layer1.0.conv1.weight", 4, 2);
	whole("layer2.0.conv1.weight", 4, 2);
	whole("layer3.0.conv1.weight", 4, 2);
	whole("layer4.1.conv1.weight", 4, 2);
	kit_image(&kit);
	make("pp=2");
	holds(0, "layer2.0.conv1.weight", "[0:4, 0:2]");
	holds(0, "layer3.0.conv1.weight", NULL);
	holds(1, "layer3.0.conv1.weight", "[0:4, 0:2]");
	make("pp=2,layers=3+1");
	holds(0, "layer3.0.conv1.weight", "[0:4, 0:2]");
	holds(1, "layer4.1.conv1.weight", "[0:4, 0:2]");
	cr_expect_eq(try("pp=2,layers=3+2"), -1000);
}

/* A weight of @nr rows that is stored in as many parts. */
static void rows_apart(uint32_t nr)
{
	for (uint64_t i = 0; i < nr; i++)
		part("w", DIMS(nr, 2), DIMS(i, 0), DIMS(1, 2), i % 4);
	kit_image(&kit);
}

/* What finding the stored parts of every rank's looks at; *meet: finds. */
static uint64_t work(const char *words, uint64_t *meet)
{
	uint32_t t = kit_find(&kit, "w");
	struct ck_reshard_part p;
	struct ck_tiling walk;
	uint64_t looked = 0;

	make(words);
	*meet = 0;
	for (uint32_t r = 0; r < ck_reshard_ranks(rs); r++) {
		cr_assert(ck_reshard_part(rs, r, t, &p));
		ck_tiling_init(&walk, &kit.img, &kit.img.tensors[t],
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
	teardown();
	setup();
	at = 0;
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
