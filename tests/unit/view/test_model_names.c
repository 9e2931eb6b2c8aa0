/* SPDX-License-Identifier: Apache-2.0 */
/* What hf/ calls the tensors of checkpoints as trainers save them. */
#include "core/base/check.h"
#include "core/view/model_names.h"
#include "tests/unit/view/viewkit.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct viewkit k;
static struct ck_model_names n;
static struct ck_opts opts;
static struct ck_err err;

static void setup(void)
{
	vk_init(&k);
}

static void teardown(void)
{
	ck_model_names_free(&n);
	ck_opts_free(&opts);
	vk_free(&k);
}
TestSuite(model_names, .init = setup, .fini = teardown);

static void flat(const char *name)
{
	vk_tensor(&k, name, CK_DT_F32, 1, DIMS(2));
}

static void make(void)
{
	const struct ck_catalog *img = vk_image(&k);

	cr_assert_eq(
		ck_model_names_make(&n, img, 0, img->nr_tensors, &opts, &err),
		0, "%s", err.msg);
}

/* The names, sorted, with a blank between. */
static void expect(const char *rule, const char *want)
{
	char got[2048] = "";

	make();
	for (uint32_t i = 0; i < n.nr; i++) {
		if (i)
			strcat(got, " ");
		strncat(got, n.v[i].name, n.v[i].name_len);
	}
	cr_expect_str_eq(got, want);
	cr_expect_str_eq(n.rule.v, rule);
}

Test(model_names, wrapped_in_a_dict)
{
	vk_nested(&k, "model/model.embed.weight");
	vk_nested(&k, "model/lm_head.weight");
	expect("wrapping key \"model.\"", "lm_head.weight model.embed.weight");
}

Test(model_names, a_leading_model_that_is_the_models_own)
{
	vk_nested(&k, "model.embed.weight");
	vk_nested(&k, "model.norm.weight");
	expect("nothing", "model.embed.weight model.norm.weight");
}

Test(model_names, without_structure_dots_prove_nothing)
{
	flat("model.embed.weight");
	flat("model.norm.weight");
	expect("nothing", "model.embed.weight model.norm.weight");
}

Test(model_names, optimizer_is_no_model)
{
	vk_nested(&k, "model/w");
	vk_nested(&k, "optimizer/state/w/exp_avg");
	vk_nested(&k, "optimizer/param_groups/#0/lr");
	vk_nested(&k, "lr_scheduler/last");
	vk_nested(&k, "train_state/tokens");
	vk_nested(&k, "optimizer_states/#0/x");
	expect("wrapping key \"model.\"", "w");
}

Test(model_names, optimizer_without_structure)
{
	flat("w");
	flat("optimizer.state.w.exp_avg");
	flat("optimizer");
	flat("opt.weight");
	flat("ema.weight");
	expect("nothing", "ema.weight opt.weight optimizer w");
}

/* As a Trainer's optimizer.pt. */
Test(model_names, an_optimizer_alone)
{
	vk_nested(&k, "param_groups/#0/lr");
	vk_nested(&k, "state/#0/exp_avg");
	vk_nested(&k, "state/#0/exp_avg_sq");
	vk_nested(&k, "state/#0/step");
	vk_nested(&k, "state/#1/sum");
	expect("nothing, for all of it is an optimizer's or a trainer's", "");
}

Test(model_names, an_optimizer_without_its_groups)
{
	vk_nested(&k, "state/#0/momentum_buffer");
	vk_nested(&k, "state/#1/exp_avg");
	vk_nested(&k, "state/#1/step");
	expect("nothing, for all of it is an optimizer's or a trainer's", "");
}

Test(model_names, optimizers_of_any_key)
{
	vk_nested(&k, "generator/w");
	vk_nested(&k, "discriminator/w");
	vk_nested(&k, "optimizer_g/state/#0/exp_avg");
	vk_nested(&k, "optimizer_g/state/#0/step");
	vk_nested(&k, "G_opt/state/#0/sum");
	vk_nested(&k, "G_opt/state/#0/own");
	vk_nested(&k, "G_opt/param_groups/#0/lr");
	vk_nested(&k, "D_opt/state.w.momentum_buffer");
	vk_nested(&k, "D_opt/param_groups.w.lr");
	vk_nested(&k, "adam/w.exp_avg");
	vk_nested(&k, "adam/w.exp_avg_sq");
	vk_nested(&k, "adam/w.step");
	expect("nothing", "discriminator.w generator.w");
}

Test(model_names, names_as_of_optimizers_in_a_model)
{
	vk_nested(&k, "step");
	vk_nested(&k, "enc.sum");
	vk_nested(&k, "enc.step");
	vk_nested(&k, "ema.exp_avg");
	vk_nested(&k, "state.w");
	vk_nested(&k, "state.step");
	vk_nested(&k, "optimizer/param_groups/#0/lr");
	expect("nothing",
	       "ema.exp_avg enc.step enc.sum state.step state.w step");
}

Test(model_names, weights_that_apex_keeps)
{
	vk_nested(&k, "model/w");
	vk_nested(&k, "master_params/#0");
	vk_nested(&k, "fp32_from_fp16/#0/#0");
	vk_nested(&k, "fp32_from_fp16_params/#0/#0");
	expect("wrapping key \"model.\"", "w");
}

Test(model_names, a_wrapper_in_a_wrapper)
{
	vk_nested(&k, "app/model/w");
	vk_nested(&k, "app/optimizer/state/w/exp_avg");
	expect("wrapping key \"app.model.\"", "w");
}

Test(model_names, a_wrapper_must_hold_all_of_it)
{
	vk_nested(&k, "model/w");
	vk_nested(&k, "teacher/w");
	expect("nothing", "model.w teacher.w");
}

Test(model_names, a_tensor_beside_the_wrapper)
{
	vk_nested(&k, "model/w");
	vk_nested(&k, "scale");
	expect("nothing", "model.w scale");
}

/* As Composer and fairseq save. */
Test(model_names, other_trainers)
{
	vk_nested(&k, "state/model/w");
	vk_nested(&k, "state/optimizers/Adam/state/w/exp_avg");
	vk_nested(&k, "last_optimizer_state/state/#0/exp_avg");
	vk_nested(&k, "state_dict_ema/w");
	vk_nested_of(&k, "rng", CK_DT_U8, 1, DIMS(5056));
	expect("wrapping key \"state.model.\" (without 1 beside it)", "w");
}

/* Counters and generators; the same names are kept where nothing wraps. */
Test(model_names, numbers_beside_the_wrapper)
{
	vk_nested(&k, "model/w");
	vk_nested(&k, "model/position");
	vk_nested_of(&k, "step", CK_DT_I64, 0, NULL);
	vk_nested_of(&k, "rng", CK_DT_U8, 1, DIMS(5056));
	vk_nested_of(&k, "loss", CK_DT_F32, 1, DIMS(1));
	vk_tensor(&k, "epoch", CK_DT_I32, 1, DIMS(1));
	expect("wrapping key \"model.\" (without 4 beside it)", "position w");
}

Test(model_names, numbers_of_a_model_that_nothing_wraps)
{
	vk_nested(&k, "w");
	vk_nested_of(&k, "step", CK_DT_I64, 0, NULL);
	expect("nothing", "step w");
}

Test(model_names, numbers_beside_two_dicts)
{
	vk_nested(&k, "model/w");
	vk_nested(&k, "teacher/w");
	vk_nested_of(&k, "step", CK_DT_I64, 0, NULL);
	expect("nothing", "model.w step teacher.w");
}

Test(model_names, numbers_alone)
{
	vk_nested_of(&k, "model", CK_DT_I64, 0, NULL);
	expect("nothing", "model");
}

Test(model_names, a_module_called_like_no_wrapper)
{
	vk_nested(&k, "encoder/w");
	vk_nested(&k, "encoder/b");
	expect("nothing", "encoder.b encoder.w");
}

Test(model_names, what_wrappers_insert)
{
	flat("_orig_mod.a._checkpoint_wrapped_module.w");
	flat("_orig_mod.a._fsdp_wrapped_module.b");
	flat("my_orig_mod.w");
	expect("wrappers inside names", "a.b a.w my_orig_mod.w");
}

Test(model_names, module_of_data_parallel)
{
	flat("module._orig_mod.a");
	flat("module.b");
	expect("wrappers inside names, prefix \"module.\" of all", "a b");
}

Test(model_names, module_of_some_is_the_models_own)
{
	flat("module.a");
	flat("b");
	expect("nothing", "b module.a");
}

Test(model_names, collisions_name_both)
{
	flat("_orig_mod.w");
	flat("w");
	flat("x");
	expect("wrappers inside names", "x");
	cr_assert_eq(n.nr_clash, 2);
	cr_expect_eq(n.clash[0].tensor, n.clash[1].other);
	cr_expect_eq(n.clash[1].tensor, n.clash[0].other);
	cr_expect_neq(n.clash[0].tensor, n.clash[0].other);
}

Test(model_names, three_of_one_name)
{
	flat("_orig_mod.w");
	flat("_fsdp_wrapped_module.w");
	flat("w");
	make();
	cr_expect_eq(n.nr, 0);
	cr_expect_eq(n.nr_clash, 3);
}

Test(model_names, the_option_decides)
{
	ck_opts_add(&opts, "strip-prefix", "base.");
	vk_nested(&k, "base.a");
	vk_nested(&k, "base.b._orig_mod.c");
	vk_nested(&k, "other");
	vk_nested(&k, "optimizer/x");
	expect("prefix \"base.\" (strip-prefix)", "a b._orig_mod.c other");
}

Test(model_names, an_option_that_fits_no_name_is_said)
{
	ck_opts_add(&opts, "strip-prefix", "bass.");
	vk_nested(&k, "base.a");
	vk_nested(&k, "bass.");
	expect("nothing: none begins with \"bass.\" (strip-prefix)",
	       "base.a bass.");
	cr_expect(n.idle);
}

Test(model_names, an_empty_option_keeps_all_names)
{
	ck_opts_add(&opts, "strip-prefix", "");
	vk_nested(&k, "model/a");
	expect("prefix \"\" (strip-prefix)", "model.a");
}

Test(model_names, nothing_is_cut_to_nothing)
{
	flat("_orig_mod.");
	flat("module.");
	flat("module.a");
	make();
	for (uint32_t i = 0; i < n.nr; i++)
		cr_expect_gt(n.v[i].name_len, 0);
	cr_expect_eq(n.nr, 3);
}

Test(model_names, no_tensors)
{
	expect("nothing", "");
}
