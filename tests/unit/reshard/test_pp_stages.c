/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of layers that no name numbers; tensors that go with others. */
#include "tests/unit/reshard/meshkit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

MESH_SUITE(pp_stages);

static void stacked(const char *name, uint64_t layers, uint64_t rows,
		    uint64_t columns)
{
	mk_part(name, columns ? 3 : 2, DIMS(layers, rows, columns), NULL, NULL,
		0);
}

/* As Megatron saves them: dimension 0 is the layers, and stages share those. */
Test(pp_stages, of_stacked_layers)
{
	stacked("decoder.layers.self_attention.linear_qkv.weight", 3, 12, 2);
	stacked("decoder.layers.mlp.linear_fc1.weight", 3, 16, 2);
	stacked("decoder.layers.mlp.linear_fc2.weight", 3, 2, 8);
	stacked("decoder.layers.input_layernorm.weight", 3, 2, 0);
	stacked("m.exp_avg.decoder.layers.mlp.linear_fc2.weight", 3, 2, 8);
	mk_whole("decoder.final_layernorm.weight", 2, 1);
	mk_whole("embedding.word_embeddings.weight", 4, 2);
	kit_image(&mk.kit);
	mk_make("pp=2,layers=1+2");
	mk_holds(0, "decoder.layers.input_layernorm.weight", "[0:1, 0:2]");
	mk_holds(1, "decoder.layers.input_layernorm.weight", "[1:3, 0:2]");
	mk_holds(1, "m.exp_avg.decoder.layers.mlp.linear_fc2.weight",
		 "[1:3, 0:2, 0:8]");
	mk_holds(0, "decoder.final_layernorm.weight", NULL);
	mk_holds(1, "embedding.word_embeddings.weight", NULL);
	mk_refused("pp=2,layers=2+2", "make 4, the checkpoint has 3");

	/* the rules know one layer; the shapes say that they are gated */
	mk_make("tp=2,pp=3");
	mk_holds(3, "decoder.layers.mlp.linear_fc1.weight",
		 "[1:2, 4:8+12:16, 0:2]");
	mk_holds(2, "decoder.layers.mlp.linear_fc2.weight", "[1:2, 0:2, 0:4]");
	mk_holds(0, "m.exp_avg.decoder.layers.mlp.linear_fc2.weight",
		 "[0:1, 0:2, 0:4]");
	mk_holds(5, "decoder.layers.self_attention.linear_qkv.weight",
		 "[2:3, 6:12, 0:2]");
	mk_holds(5, "decoder.layers.input_layernorm.weight", "[2:3, 0:2]");
	mk_holds(1, "embedding.word_embeddings.weight", "[2:4, 0:2]");
	mk_make("tp=2,if=no");
	mk_holds(1, "decoder.layers.mlp.linear_fc1.weight", "[0:3, 8:16, 0:2]");
}

Test(pp_stages, what_is_called_a_stack_and_is_none)
{
	mk_whole("decoder.layers.mlp.weight", 4, 4);
	kit_image(&mk.kit);
	mk_refused("pp=2", "no name says a layer");
	cr_expect(strstr(mk.err.msg, "OneFlow's rules"), "%s", mk.err.msg);
}

Test(pp_stages, stacks_of_two_are_not_ordered)
{
	stacked("encoder.layers.mlp.linear_fc2.weight", 2, 2, 8);
	stacked("decoder.layers.mlp.linear_fc2.weight", 4, 2, 8);
	kit_image(&mk.kit);
	mk_refused("pp=2", "stacked in decoder and in encoder");
	mk_make("tp=2,rules=megatron");
	mk_holds(1, "decoder.layers.mlp.linear_fc2.weight", "[0:4, 0:2, 4:8]");
}

/* nn.Sequential's names, and an optimizer that has its parameters by them. */
Test(pp_stages, of_numbers_alone)
{
	mk_whole("0.weight", 4, 2);
	mk_whole("2.weight", 4, 2);
	mk_whole("4.weight", 4, 2);
	mk_whole("optimizer.state.2.weight.exp_avg", 4, 2);
	mk_whole("optimizer.state.7.exp_avg", 4, 2);
	mk_whole("lm_head.weight", 4, 2);
	kit_image(&mk.kit);
	mk_make("pp=2,layers=2+3");
	mk_holds(0, "0.weight", "[0:4, 0:2]");
	mk_holds(1, "0.weight", NULL);
	mk_holds(0, "2.weight", NULL);
	mk_holds(1, "4.weight", "[0:4, 0:2]");
	mk_holds(0, "optimizer.state.2.weight.exp_avg", NULL);
	mk_holds(1, "optimizer.state.2.weight.exp_avg", "[0:4, 0:2]");
	mk_holds(0, "optimizer.state.7.exp_avg", "[0:4, 0:2]");
	mk_holds(0, "lm_head.weight", NULL);
}

Test(pp_stages, of_numbers_below_a_name)
{
	mk_whole("module.1.weight", 4, 2);
	mk_whole("module.2.norm.0.weight", 4, 2);
	kit_image(&mk.kit);
	mk_make("pp=2");
	mk_holds(0, "module.1.weight", "[0:4, 0:2]");
	mk_holds(1, "module.1.weight", NULL);
	mk_holds(1, "module.2.norm.0.weight", "[0:4, 0:2]");
}

Test(pp_stages, numbers_of_two_sequences_are_not_ordered)
{
	mk_whole("encoder.0.weight", 4, 2);
	mk_whole("encoder.1.weight", 4, 2);
	mk_whole("decoder.0.weight", 4, 2);
	kit_image(&mk.kit);
	mk_refused("pp=2", "behind \"decoder.\" and \"encoder.\"");
}

/* Layers that lie in files of their own are no split of tensor parallelism. */
Test(pp_stages, a_stack_that_lies_layer_by_layer)
{
	static const char name[] = "decoder.layers.mlp.linear_fc2.weight";

	for (unsigned i = 0; i < 4; i++)
		mk_part(name, 3, DIMS(2, 2, 8), DIMS(i / 2, 0, i % 2 * 4),
			DIMS(1, 2, 4), i % 2);
	kit_image(&mk.kit);
	mk_make("tp=4");
	mk_holds(3, name, "[0:2, 0:2, 6:8]");
	mk_make("tp=2,pp=2");
	mk_holds(3, name, "[1:2, 0:2, 4:8]");
}

/* A quarter of a [4, 8] each, which is no one's tensor parallelism. */
static void quarters(const char *name)
{
	for (unsigned i = 0; i < 4; i++)
		mk_part(name, 2, DIMS(4, 8), DIMS(i / 2 * 2, i % 2 * 4),
			DIMS(2, 4), i % 2);
}

/* Optimizers are spread otherwise, and named after their parameters. */
Test(pp_stages, optimizers_go_with_their_parameters)
{
	mk_split("module.layers.0.w", 4, 8, 1, 2);
	mk_whole("module.layers.1.norm", 4, 1);
	quarters("exp_avg.layers.0.w");
	quarters("optimizer.state.layers.0.w.exp_avg_sq");
	mk_whole("fp32.layers.0.w", 4, 8);
	mk_whole("exp_avg.layers.1.norm", 4, 1);
	kit_image(&mk.kit);
	mk_make("tp=2,pp=2");
	mk_holds(1, "module.layers.0.w", "[0:4, 4:8]");
	mk_holds(1, "exp_avg.layers.0.w", "[0:4, 4:8]");
	mk_holds(1, "optimizer.state.layers.0.w.exp_avg_sq", "[0:4, 4:8]");
	mk_holds(0, "fp32.layers.0.w", "[0:4, 0:4]");
	mk_holds(2, "fp32.layers.0.w", NULL);
	mk_holds(2, "exp_avg.layers.1.norm", "[0:4, 0:1]");
	mk_make("tp=2,dim0=2");
	mk_holds(3, "exp_avg.layers.0.w", "[2:4, 4:8]");
	mk_holds(3, "module.layers.0.w", "[2:4, 4:8]");
}

/* What is in flat pieces is no reason to have no rules. */
Test(pp_stages, optimizers_by_the_rules_of_their_parameters)
{
	mk_whole("model.layers.0.mlp.down_proj.weight", 4, 8);
	quarters("optim.state.layers.0.mlp.down_proj.weight.exp_avg");
	kit_image(&mk.kit);
	mk_make("tp=4");
	mk_holds(3, "optim.state.layers.0.mlp.down_proj.weight.exp_avg",
		 "[0:4, 6:8]");
	mk_holds(3, "model.layers.0.mlp.down_proj.weight", "[0:4, 6:8]");
}

/* Another shape, or several of that name: it stands for itself. */
Test(pp_stages, whose_optimizer_it_is_may_be_unknown)
{
	mk_whole("a.b.c.w", 4, 8);
	mk_whole("x.y.c.w", 4, 8);
	mk_whole("layers.0.v", 8, 8);
	quarters("exp_avg.c.w");
	kit_image(&mk.kit);
	mk_refused("tp=2", "exp_avg.c.w: tp=: it is stored split");
}
