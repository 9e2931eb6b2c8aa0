/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of layers that no name numbers; tensors that go with others. */
#include "core/reshard/words.h"
#include "tests/unit/catalog/kit.h"
#include "tests/unit/reshard/naive.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct kit kit;
static struct ck_reshard *rs;
static struct ck_err err;
static uint32_t file[2];
static uint64_t at;

static void setup(void)
{
	kit = kit_new();
	file[0] = kit_file(&kit, "a", 1 << 20);
	file[1] = kit_file(&kit, "b", 1 << 20);
}

static void teardown(void)
{
	ck_reshard_free(rs);
	kit_free(&kit);
}
TestSuite(drafts, .init = setup, .fini = teardown);

static void whole(const char *name, uint64_t rows, uint64_t columns)
{
	struct ck_part p = kit_part(name, file[0]);

	p.shape = DIMS(rows, columns);
	p.off = at;
	at += rows * columns * 4;
	kit_add(&kit, &p);
}

static int try(const char *words)
{
	const struct ck_reshard_in in = { .img = &kit.img,
					  .nr = kit.img.nr_tensors,
					  .name = words };
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

static void stacked(const char *name, uint64_t layers, uint64_t rows,
		    uint64_t columns)
{
	struct ck_part p = kit_part(name, file[0]);

	p.shape = columns ? DIMS(layers, rows, columns) : DIMS(layers, rows);
	p.rank = columns ? 3 : 2;
	p.off = at;
	at += layers * rows * (columns ? columns : 1) * 4;
	kit_add(&kit, &p);
}

/* As Megatron saves them: dimension 0 is the layers, and stages share those. */
Test(drafts, of_stacked_layers)
{
	stacked("decoder.layers.self_attention.linear_qkv.weight", 3, 12, 2);
	stacked("decoder.layers.mlp.linear_fc1.weight", 3, 16, 2);
	stacked("decoder.layers.mlp.linear_fc2.weight", 3, 2, 8);
	stacked("decoder.layers.input_layernorm.weight", 3, 2, 0);
	stacked("m.exp_avg.decoder.layers.mlp.linear_fc2.weight", 3, 2, 8);
	whole("decoder.final_layernorm.weight", 2, 1);
	whole("embedding.word_embeddings.weight", 4, 2);
	kit_image(&kit);
	make("pp=2,layers=1+2");
	holds(0, "decoder.layers.input_layernorm.weight", "[0:1, 0:2]");
	holds(1, "decoder.layers.input_layernorm.weight", "[1:3, 0:2]");
	holds(1, "m.exp_avg.decoder.layers.mlp.linear_fc2.weight",
	      "[1:3, 0:2, 0:8]");
	holds(0, "decoder.final_layernorm.weight", NULL);
	holds(1, "embedding.word_embeddings.weight", NULL);
	cr_expect_eq(try("pp=2,layers=2+2"), -1000);
	cr_expect(strstr(err.msg, "make 4, the checkpoint has 3"), "%s",
		  err.msg);

	/* the rules know one layer; the shapes say that they are gated */
	make("tp=2,pp=3");
	holds(3, "decoder.layers.mlp.linear_fc1.weight",
	      "[1:2, 4:8+12:16, 0:2]");
	holds(2, "decoder.layers.mlp.linear_fc2.weight", "[1:2, 0:2, 0:4]");
	holds(0, "m.exp_avg.decoder.layers.mlp.linear_fc2.weight",
	      "[0:1, 0:2, 0:4]");
	holds(5, "decoder.layers.self_attention.linear_qkv.weight",
	      "[2:3, 6:12, 0:2]");
	holds(5, "decoder.layers.input_layernorm.weight", "[2:3, 0:2]");
	holds(1, "embedding.word_embeddings.weight", "[2:4, 0:2]");
	make("tp=2,if=no");
	holds(1, "decoder.layers.mlp.linear_fc1.weight", "[0:3, 8:16, 0:2]");
}

Test(drafts, what_is_called_a_stack_and_is_none)
{
	whole("decoder.layers.mlp.weight", 4, 4);
	kit_image(&kit);
	cr_expect_eq(try("pp=2"), -1000);
	cr_expect(strstr(err.msg, "no name says a layer"), "%s", err.msg);
	cr_expect(strstr(err.msg, "OneFlow's rules"), "%s", err.msg);
}

Test(drafts, stacks_of_two_are_not_ordered)
{
	stacked("encoder.layers.mlp.linear_fc2.weight", 2, 2, 8);
	stacked("decoder.layers.mlp.linear_fc2.weight", 4, 2, 8);
	kit_image(&kit);
	cr_expect_eq(try("pp=2"), -1000);
	cr_expect(strstr(err.msg, "stacked in decoder and in encoder"), "%s",
		  err.msg);
	make("tp=2,rules=megatron");
	holds(1, "decoder.layers.mlp.linear_fc2.weight", "[0:4, 0:2, 4:8]");
}

/* nn.Sequential's names, and an optimizer that has its parameters by them. */
Test(drafts, of_numbers_alone)
{
	whole("0.weight", 4, 2);
	whole("2.weight", 4, 2);
	whole("4.weight", 4, 2);
	whole("optimizer.state.2.weight.exp_avg", 4, 2);
	whole("optimizer.state.7.exp_avg", 4, 2);
	whole("lm_head.weight", 4, 2);
	kit_image(&kit);
	make("pp=2,layers=2+3");
	holds(0, "0.weight", "[0:4, 0:2]");
	holds(1, "0.weight", NULL);
	holds(0, "2.weight", NULL);
	holds(1, "4.weight", "[0:4, 0:2]");
	holds(0, "optimizer.state.2.weight.exp_avg", NULL);
	holds(1, "optimizer.state.2.weight.exp_avg", "[0:4, 0:2]");
	holds(0, "optimizer.state.7.exp_avg", "[0:4, 0:2]");
	holds(0, "lm_head.weight", NULL);
}

Test(drafts, of_numbers_below_a_name)
{
	whole("module.1.weight", 4, 2);
	whole("module.2.norm.0.weight", 4, 2);
	kit_image(&kit);
	make("pp=2");
	holds(0, "module.1.weight", "[0:4, 0:2]");
	holds(1, "module.1.weight", NULL);
	holds(1, "module.2.norm.0.weight", "[0:4, 0:2]");
}

Test(drafts, numbers_of_two_sequences_are_not_ordered)
{
	whole("encoder.0.weight", 4, 2);
	whole("encoder.1.weight", 4, 2);
	whole("decoder.0.weight", 4, 2);
	kit_image(&kit);
	cr_expect_eq(try("pp=2"), -1000);
	cr_expect(strstr(err.msg, "behind \"decoder.\" and \"encoder.\""), "%s",
		  err.msg);
}

/* Layers that lie in files of their own are no split of tensor parallelism. */
Test(drafts, a_stack_that_lies_layer_by_layer)
{
	static const char name[] = "decoder.layers.mlp.linear_fc2.weight";

	for (unsigned i = 0; i < 4; i++) {
		struct ck_part p = kit_part(name, file[i % 2]);

		p.shape = DIMS(2, 2, 8);
		p.start = DIMS(i / 2, 0, i % 2 * 4);
		p.len = DIMS(1, 2, 4);
		p.rank = 3;
		p.off = at;
		at += 32;
		kit_add(&kit, &p);
	}
	kit_image(&kit);
	make("tp=4");
	holds(3, name, "[0:2, 0:2, 6:8]");
	make("tp=2,pp=2");
	holds(3, name, "[1:2, 0:2, 4:8]");
}

/* A quarter of a [4, 8] each, which is no one's tensor parallelism. */
static void quarters(const char *name)
{
	for (unsigned i = 0; i < 4; i++) {
		struct ck_part p = kit_part(name, file[i % 2]);

		p.shape = DIMS(4, 8);
		p.start = DIMS(i / 2 * 2, i % 2 * 4);
		p.len = DIMS(2, 4);
		p.off = at;
		at += 32;
		kit_add(&kit, &p);
	}
}

/* Optimizers are spread otherwise, and named after their parameters. */
Test(drafts, optimizers_go_with_their_parameters)
{
	for (unsigned i = 0; i < 2; i++) {
		struct ck_part p = kit_part("module.layers.0.w", file[i]);

		p.shape = DIMS(4, 8);
		p.start = DIMS(0, i * 4);
		p.len = DIMS(4, 4);
		p.off = at;
		at += 64;
		kit_add(&kit, &p);
	}
	whole("module.layers.1.norm", 4, 1);
	quarters("exp_avg.layers.0.w");
	quarters("optimizer.state.layers.0.w.exp_avg_sq");
	whole("fp32.layers.0.w", 4, 8);
	whole("exp_avg.layers.1.norm", 4, 1);
	kit_image(&kit);
	make("tp=2,pp=2");
	holds(1, "module.layers.0.w", "[0:4, 4:8]");
	holds(1, "exp_avg.layers.0.w", "[0:4, 4:8]");
	holds(1, "optimizer.state.layers.0.w.exp_avg_sq", "[0:4, 4:8]");
	holds(0, "fp32.layers.0.w", "[0:4, 0:4]");
	holds(2, "fp32.layers.0.w", NULL);
	holds(2, "exp_avg.layers.1.norm", "[0:4, 0:1]");
	make("tp=2,dim0=2");
	holds(3, "exp_avg.layers.0.w", "[2:4, 4:8]");
	holds(3, "module.layers.0.w", "[2:4, 4:8]");
}

/* What is in flat pieces is no reason to have no rules. */
Test(drafts, optimizers_by_the_rules_of_their_parameters)
{
	whole("model.layers.0.mlp.down_proj.weight", 4, 8);
	quarters("optim.state.layers.0.mlp.down_proj.weight.exp_avg");
	kit_image(&kit);
	make("tp=4");
	holds(3, "optim.state.layers.0.mlp.down_proj.weight.exp_avg",
	      "[0:4, 6:8]");
	holds(3, "model.layers.0.mlp.down_proj.weight", "[0:4, 6:8]");
}

/* Another shape, or several of that name: it stands for itself. */
Test(drafts, whose_optimizer_it_is_may_be_unknown)
{
	whole("a.b.c.w", 4, 8);
	whole("x.y.c.w", 4, 8);
	whole("layers.0.v", 8, 8);
	quarters("exp_avg.c.w");
	kit_image(&kit);
	cr_expect_eq(try("tp=2"), -1000);
	cr_expect(strstr(err.msg, "exp_avg.c.w: tp=: it is stored split"), "%s",
		  err.msg);
}
