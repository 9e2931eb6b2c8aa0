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
	n = (struct ck_model_names){ 0 };
	opts = (struct ck_opts){ 0 };
	vk_init(&k);
}

static void teardown(void)
{
	ck_model_names_free(&n);
	ck_opts_free(&opts);
	vk_free(&k);
}
TestSuite(model_names, .init = setup, .fini = teardown);

struct sample {
	const char *what, *tensors, *rule, *names;
	const char *strip; /* strip-prefix; NULL: not given */
};

/*
 * PATH, or =NAME without its structure: a float32 [2].  Others have what
 * safetensors calls their type behind it, ":I64" (a scalar) or ":U8:5056".
 */
static void add(char *word)
{
	enum ck_dtype dtype = CK_DT_F32;
	uint64_t len = 2;
	bool scalar = false;
	char *save;
	const char *name = strtok_r(word, ":", &save);
	const char *type = strtok_r(NULL, ":", &save);

	if (type) {
		const char *size = strtok_r(NULL, ":", &save);

		dtype = ck_dtype_by_safetensors(type, strlen(type));
		scalar = !size;
		len = size ? strtoul(size, NULL, 10) : 1;
	}
	if (*name == '=')
		vk_tensor(&k, name + 1, dtype, !scalar, &len);
	else
		vk_nested_of(&k, name, dtype, !scalar, &len);
}

static void add_all(const char *tensors)
{
	char *copy = strdup(tensors), *save;

	for (char *word = strtok_r(copy, " ", &save); word;
	     word = strtok_r(NULL, " ", &save))
		add(word);
	free(copy);
}

static void make(void)
{
	const struct ck_catalog *img = vk_image(&k);

	cr_assert_eq(
		ck_model_names_make(&n, img, 0, img->nr_tensors, &opts, &err),
		0, "%s", err.msg);
}

/* The names, sorted, with a blank between. */
static void expect(const char *what, const char *rule, const char *want)
{
	char got[2048] = "";

	make();
	for (uint32_t i = 0; i < n.nr; i++) {
		if (i)
			strcat(got, " ");
		strncat(got, n.v[i].name, n.v[i].name_len);
	}
	cr_expect_str_eq(got, want, "%s", what);
	cr_expect_str_eq(n.rule.v, rule, "%s", what);
}

static void run(const struct sample *s, size_t nr)
{
	for (; nr--; s++) {
		add_all(s->tensors);
		if (s->strip)
			ck_opts_add(&opts, "strip-prefix", s->strip);
		expect(s->what, s->rule, s->names);
		teardown();
		setup();
	}
}

static const struct sample wrapped[] = {
	{ "wrapped in a dict", "model/model.embed.weight model/lm_head.weight",
	  "wrapping key \"model.\"", "lm_head.weight model.embed.weight",
	  NULL },
	{ "a leading model that is the models own",
	  "model.embed.weight model.norm.weight", "nothing",
	  "model.embed.weight model.norm.weight", NULL },
	{ "without structure dots prove nothing",
	  "=model.embed.weight =model.norm.weight", "nothing",
	  "model.embed.weight model.norm.weight", NULL },
	{ "a wrapper in a wrapper", "app/model/w app/optimizer/state/w/exp_avg",
	  "wrapping key \"app.model.\"", "w", NULL },
	{ "a wrapper must hold all of it", "model/w teacher/w", "nothing",
	  "model.w teacher.w", NULL },
	{ "a tensor beside the wrapper", "model/w scale", "nothing",
	  "model.w scale", NULL },
	{ "other trainers: Composer, fairseq",
	  "state/model/w state/optimizers/Adam/state/w/exp_avg "
	  "last_optimizer_state/state/#0/exp_avg state_dict_ema/w "
	  "rng:U8:5056",
	  "wrapping key \"state.model.\" (without 1 beside it)", "w", NULL },
	{ "numbers beside the wrapper",
	  "model/w model/position step:I64 rng:U8:5056 loss:F32:1 =epoch:I32:1",
	  "wrapping key \"model.\" (without 4 beside it)", "position w", NULL },
	{ "numbers of a model that nothing wraps", "w step:I64", "nothing",
	  "step w", NULL },
	{ "numbers beside two dicts", "model/w teacher/w step:I64", "nothing",
	  "model.w step teacher.w", NULL },
	{ "numbers alone", "model:I64", "nothing", "model", NULL },
	{ "a module called like no wrapper", "encoder/w encoder/b", "nothing",
	  "encoder.b encoder.w", NULL },
	{ "no tensors", "", "nothing", "", NULL },
};

static const struct sample optimizers[] = {
	{ "optimizer is no model",
	  "model/w optimizer/state/w/exp_avg optimizer/param_groups/#0/lr "
	  "lr_scheduler/last train_state/tokens optimizer_states/#0/x",
	  "wrapping key \"model.\"", "w", NULL },
	{ "optimizer without structure",
	  "=w =optimizer.state.w.exp_avg =optimizer =opt.weight =ema.weight",
	  "nothing", "ema.weight opt.weight optimizer w", NULL },
	{ "an optimizer alone, as a Trainer's optimizer.pt",
	  "param_groups/#0/lr state/#0/exp_avg state/#0/exp_avg_sq "
	  "state/#0/step state/#1/sum",
	  "nothing, for all of it is an optimizer's or a trainer's", "", NULL },
	{ "an optimizer without its groups",
	  "state/#0/momentum_buffer state/#1/exp_avg state/#1/step",
	  "nothing, for all of it is an optimizer's or a trainer's", "", NULL },
	{ "optimizers of any key",
	  "generator/w discriminator/w optimizer_g/state/#0/exp_avg "
	  "optimizer_g/state/#0/step G_opt/state/#0/sum G_opt/state/#0/own "
	  "G_opt/param_groups/#0/lr D_opt/state.w.momentum_buffer "
	  "D_opt/param_groups.w.lr adam/w.exp_avg adam/w.exp_avg_sq "
	  "adam/w.step",
	  "nothing", "discriminator.w generator.w", NULL },
	{ "names as of optimizers in a model",
	  "step enc.sum enc.step ema.exp_avg state.w state.step "
	  "optimizer/param_groups/#0/lr",
	  "nothing", "ema.exp_avg enc.step enc.sum state.step state.w step",
	  NULL },
	{ "weights that apex keeps",
	  "model/w master_params/#0 fp32_from_fp16/#0/#0 "
	  "fp32_from_fp16_params/#0/#0",
	  "wrapping key \"model.\"", "w", NULL },
};

static const struct sample inserted[] = {
	{ "what wrappers insert",
	  "=_orig_mod.a._checkpoint_wrapped_module.w "
	  "=_orig_mod.a._fsdp_wrapped_module.b =my_orig_mod.w",
	  "wrappers inside names", "a.b a.w my_orig_mod.w", NULL },
	{ "module of data parallel", "=module._orig_mod.a =module.b",
	  "wrappers inside names, prefix \"module.\" of all", "a b", NULL },
	{ "module of some is the models own", "=module.a =b", "nothing",
	  "b module.a", NULL },
	{ "the option decides", "base.a base.b._orig_mod.c other optimizer/x",
	  "prefix \"base.\" (strip-prefix)", "a b._orig_mod.c other", "base." },
	{ "an empty option keeps all names", "model/a",
	  "prefix \"\" (strip-prefix)", "model.a", "" },
};

Test(model_names, keys_around_a_model)
{
	run(wrapped, CK_ARRAY_LEN(wrapped));
}

Test(model_names, optimizers_are_no_model)
{
	run(optimizers, CK_ARRAY_LEN(optimizers));
}

Test(model_names, what_wrappers_insert_and_what_is_stripped)
{
	run(inserted, CK_ARRAY_LEN(inserted));
}

Test(model_names, collisions_name_both)
{
	add_all("=_orig_mod.w =w =x");
	expect("collisions name both", "wrappers inside names", "x");
	cr_assert_eq(n.nr_clash, 2);
	cr_expect_eq(n.clash[0].tensor, n.clash[1].other);
	cr_expect_eq(n.clash[1].tensor, n.clash[0].other);
	cr_expect_neq(n.clash[0].tensor, n.clash[0].other);
}

Test(model_names, three_of_one_name)
{
	add_all("=_orig_mod.w =_fsdp_wrapped_module.w =w");
	make();
	cr_expect_eq(n.nr, 0);
	cr_expect_eq(n.nr_clash, 3);
}

Test(model_names, an_option_that_fits_no_name_is_said)
{
	add_all("base.a bass.");
	ck_opts_add(&opts, "strip-prefix", "bass.");
	expect("an option that fits no name is said",
	       "nothing: none begins with \"bass.\" (strip-prefix)",
	       "base.a bass.");
	cr_expect(n.idle);
}

Test(model_names, nothing_is_cut_to_nothing)
{
	add_all("=_orig_mod. =module. =module.a");
	make();
	for (uint32_t i = 0; i < n.nr; i++)
		cr_expect_gt(n.v[i].name_len, 0);
	cr_expect_eq(n.nr, 3);
}
