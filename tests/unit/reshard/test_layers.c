/* SPDX-License-Identifier: Apache-2.0 */
/* The layer that a name says, and the stages that layers are on. */
#include "core/base/check.h"
#include "core/reshard/spec.h"
#include "tests/unit/reshard/meshkit.h"

#include <criterion/criterion.h>
#include <string.h>

#define STAGES 40

static const struct {
	const char *name;
	int64_t layer;
} cases[] = {
	{ "model.layers.12.mlp.up_proj.weight", 12 },
	{ "transformer.h.3.ln_1.weight", 3 },
	{ "optimizer.state.7.exp_avg", CK_RESHARD_PP_STAGE_ALL },
	{ "experts.layers.5", 5 },
	{ "layers.x.5", CK_RESHARD_PP_STAGE_ALL },
	{ "layers.", CK_RESHARD_PP_STAGE_ALL },
	{ "h", CK_RESHARD_PP_STAGE_ALL },
	{ "layers.1234567890123.w", CK_RESHARD_PP_STAGE_ALL },
	{ "transformer.wte.weight", CK_RESHARD_PP_STAGE_FIRST },
	{ "lm_head.weight", CK_RESHARD_PP_STAGE_LAST },
	{ "model.emb.weight", CK_RESHARD_PP_STAGE_FIRST },
	{ "optimizer.emb.weight.exp_avg", CK_RESHARD_PP_STAGE_FIRST },
	{ "bert.embeddings.LayerNorm.weight", CK_RESHARD_PP_STAGE_FIRST },
	{ "model.head.weight", CK_RESHARD_PP_STAGE_LAST },
	{ "blocks.2.head.weight", 2 },
	{ "memb.overhead", CK_RESHARD_PP_STAGE_ALL },
	{ "layer0.weight", 0 },
	{ "moments.layer11.bias", 11 },
	{ "params/layers_3/mlp/kernel", 3 },
	{ "layer_4.w", 4 },
	{ "h0.attn.weight", 0 },
	{ "h_12/attn", 12 },
	{ "tf_bert/bert/encoder/layer_._7/output", 7 },
	{ "transformer/h_._2/attn", 2 },
	{ "encoder.layers.encoder_layer_5.ln_1.weight", 5 },
	{ "Transformer/encoderblock_6/LayerNorm_0/scale", 6 },
	{ "TransformerBlock_8.w", 8 },
	{ "transformer_blocks.9.norm1.linear.weight", 9 },
	{ "visual.transformer.resblocks.1.ln_1.weight", 1 },
	{ "layer3.1.conv2.weight", 3 },
	{ "stages.2.blocks.1.norm.weight", 2 },
	{ "m_stage1.linear.weight", 1 },
	{ "mtp.layers.0.enorm.weight", CK_RESHARD_PP_STAGE_LAST },
	{ "layers.0.h0", 0 },
	{ "lstm.h0", CK_RESHARD_PP_STAGE_ALL },
	{ "lstm.h_0", CK_RESHARD_PP_STAGE_ALL },
	{ "path.0.w", CK_RESHARD_PP_STAGE_ALL },
	{ "path0.w", CK_RESHARD_PP_STAGE_ALL },
	{ "fc1.weight", CK_RESHARD_PP_STAGE_ALL },
	{ "3.weight", CK_RESHARD_PP_STAGE_ALL },
	{ "_3.weight", CK_RESHARD_PP_STAGE_ALL },
	{ "7.exp_avg", CK_RESHARD_PP_STAGE_ALL },
	{ "layer._", CK_RESHARD_PP_STAGE_ALL },
	{ "layers_x_5.w", CK_RESHARD_PP_STAGE_ALL },
	{ "layer1234567890123.w", CK_RESHARD_PP_STAGE_ALL },
	{ "", CK_RESHARD_PP_STAGE_ALL },
};

Test(layers, by_name)
{
	/* A stage a layer, behind one that has none but what comes first. */
	uint64_t begin[STAGES + 1] = { 0 };
	const struct ck_reshard_layers l = { .pp = STAGES, .begin = begin };

	for (uint64_t i = 1; i <= STAGES; i++)
		begin[i] = i - 1;
	for (size_t i = 0; i < CK_ARRAY_LEN(cases); i++) {
		int64_t want = cases[i].layer;

		if (want == CK_RESHARD_PP_STAGE_LAST)
			want = STAGES - 1;
		else if (want != CK_RESHARD_PP_STAGE_ALL)
			want++;
		cr_expect_eq(ck_reshard_stage_of(&l, cases[i].name,
						 strlen(cases[i].name)),
			     want, "%s", cases[i].name);
	}
}

static void stages_are(const char *last, const uint64_t *want)
{
	struct ck_reshard_layers l = { .pp = 4 };
	struct ck_reshard_in in = { .nr = 2 };

	mk_init();
	mk_whole("layers.0.w", 2, 2);
	mk_whole(last, 2, 2);
	in.img = kit_image(&mk.kit);
	cr_assert_eq(ck_reshard_layers_find(&l, &in, NULL, &mk.err), 0, "%s",
		     mk.err.msg);
	cr_expect_arr_eq(l.begin, want, 5 * sizeof(*want));
	ck_reshard_layers_free(&l);
	mk_free();
}

Test(layers, stages)
{
	stages_are("layers.9.w", DIMS(0, 2, 5, 8, 10));
	stages_are("layers.2.w", DIMS(0, 0, 1, 2, 3));
}
