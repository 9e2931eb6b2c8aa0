/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers of real checkpoints, in model.pt as torch.optim has them. */
#include "core/base/check.h"
#include "core/catalog/catalog.h"
#include "core/container/torch_place.h"
#include "core/parse/pickle.h"
#include "core/view/view.h"
#include "tests/lib/memsource.h"
#include "tests/lib/openckpt.h"
#include "tests/lib/unconfined.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct ck_view_ops ck_view_torch;

#define EXAMPLES "tests/formats/"

static struct ck_opts opts;
static struct ck_ckpt *ck;
static struct ck_view *v;
static char *bytes;
static struct ck_source *src;
static struct ck_torch_open f; /* model.pt */
static ck_pv optimizer;
static struct ck_err err;

static void setup(void)
{
	unconfined(&opts);
}

static void close_it(void)
{
	ck_torch_open_close(&f);
	free(bytes);
	bytes = NULL;
	ck_view_close(v);
	v = NULL;
	ck_ckpt_close(ck);
	ck = NULL;
}

static void teardown(void)
{
	close_it();
	ck_opts_free(&opts);
}
TestSuite(torch_optim, .init = setup, .fini = teardown);

static ck_pv root(void)
{
	return ck_pickle_root(f.ts.pickle);
}

/* model.pt of an example; its optimizer is below @key, NULL: it is all. */
static void open_it(const char *example, const char *key)
{
	ck_auto_str struct ck_str path = { 0 };
	struct ck_vfile file;

	close_it();
	ck_str_fmt(&path, EXAMPLES "%s", example);
	cr_assert_eq(open_ckpt(&ck, path.v, &opts, &err), 0, "%s", err.msg);
	cr_assert_eq(ck_view_open(&v, &ck_view_torch, ck, 0, &opts, &err), 0);
	cr_assert(v->ops->file(v, 0, &file));
	bytes = malloc(file.size);
	cr_assert_eq(ck_view_read(v, 0, bytes, file.size, 0, &err), 0, "%s",
		     err.msg);
	src = memsource((unsigned char *)bytes, file.size, "model.pt");
	f.s = src;
	cr_assert_eq(ck_torch_save_open(&f.ts, src, &err), 0, "%s", err.msg);
	optimizer = root();
	cr_assert(!key || ck_pv_key(f.ts.pickle, root(), key, &optimizer),
		  "%s: no %s", example, key);
}

static ck_pv at(ck_pv in, const char *key)
{
	ck_pv out = 0;

	cr_assert(ck_pv_key(f.ts.pickle, in, key, &out), "no %s", key);
	return out;
}

/* Value of number @id, which is an integer. */
static bool find_id(ck_pv dict, int64_t id, ck_pv *out)
{
	struct ck_piter it;
	int64_t n;
	ck_pv key;

	ck_piter_init_pairs(&it, f.ts.pickle, dict);
	while (ck_piter_next2(&it, &key, out))
		if (ck_pv_int(f.ts.pickle, key, &n) && n == id)
			return true;
	return false;
}

static ck_pv group_at(unsigned i)
{
	ck_pv group = 0;

	cr_assert(ck_pv_at(f.ts.pickle, at(optimizer, "param_groups"), i,
			   &group));
	return group;
}

/* Of each group so many parameters, numbered through. */
static void has_groups(unsigned nr, const unsigned *counts)
{
	int64_t want = 0, n;
	struct ck_piter it;
	ck_pv item;

	cr_assert_eq(ck_pv_len(f.ts.pickle, at(optimizer, "param_groups")), nr);
	for (unsigned i = 0; i < nr; i++) {
		ck_pv params = at(group_at(i), "params");

		cr_assert_eq(ck_pv_kind(params), CK_P_LIST);
		cr_expect_eq(ck_pv_len(f.ts.pickle, params), counts[i],
			     "group %u", i);
		ck_piter_init(&it, f.ts.pickle, params);
		while (ck_piter_next(&it, &item)) {
			cr_assert(ck_pv_int(f.ts.pickle, item, &n));
			cr_expect_eq(n, want++, "group %u", i);
		}
	}
	cr_expect_eq(ck_pv_len(f.ts.pickle, at(optimizer, "state")), want);
}
#define HAS_GROUPS(...)                                                    \
	has_groups(sizeof((unsigned[]){ __VA_ARGS__ }) / sizeof(unsigned), \
		   (unsigned[]){ __VA_ARGS__ })

/* State @key of parameter @id has the bytes of tensor @name. */
static void is_tensor(int64_t id, const char *key, const char *name)
{
	const struct ck_catalog *img = ck_ckpt_catalog(ck);
	uint32_t t = ck_catalog_find_name(img, 0, name, strlen(name));
	struct ck_torch_place place;
	const struct ck_tensor *want;
	char *had;
	ck_pv state;

	cr_assert_neq(t, CK_NONE, "no tensor %s", name);
	want = &img->tensors[t];
	cr_assert(find_id(at(optimizer, "state"), id, &state), "no %d",
		  (int)id);
	cr_assert_eq(ck_torch_place(&f, at(state, key), &place, &err), 0, "%s",
		     err.msg);
	cr_assert_eq(place.t.rank, want->rank, "%s", name);
	cr_expect_eq(memcmp(place.t.shape, img->dims + want->shape,
			    want->rank * sizeof(uint64_t)),
		     0, "%s", name);
	had = malloc(want->size + 1);
	cr_assert_eq(ck_ckpt_read(ck, t, had, want->size, 0, &err), 0);
	cr_expect_eq(memcmp(had, bytes + place.x.off, want->size), 0,
		     "%d.%s is not %s", (int)id, key, name);
	free(had);
}

static void is_step(int64_t id, double want)
{
	double step = -1;
	ck_pv state;

	cr_assert(find_id(at(optimizer, "state"), id, &state));
	cr_assert_eq(ck_torch_number(&f, at(state, "step"), &step), 1);
	cr_expect_eq(step, want, "step of %d: %f", (int)id, step);
}

static void is_value(unsigned group, const char *key, double want)
{
	double is = -1;

	cr_assert_eq(ck_torch_number(&f, at(group_at(group), key), &is), 1);
	cr_expect_float_eq(is, want, 1e-12, "%s of %u: %f", key, group, is);
}

/* ---- ColossalAI: numbers as the files have them ---- */

Test(torch_optim, colossalai_set)
{
	static const char *const example[] = {
		"colossalai/optim-bin-prefix/in",
		"colossalai/optim-async/in",
		"colossalai/optim-async-0.4.7/in",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(example); i++) {
		open_it(example[i], NULL);
		if (i < 2)
			HAS_GROUPS(4);
		else
			HAS_GROUPS(6);
		is_tensor(0, "exp_avg", "0.exp_avg");
		is_tensor(3, "exp_avg_sq", "3.exp_avg_sq");
		cr_assert(ck_pv_key(f.ts.pickle, group_at(0), "betas",
				    &(ck_pv){ 0 }));
	}
	is_step(2, 3);
}

Test(torch_optim, colossalai_one_file)
{
	static const char *const example[] = {
		"colossalai/optim-one/in/optimizer.bin",
		"colossalai/optim-one-async/in/optimizer.safetensors",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(example); i++) {
		open_it(example[i], NULL);
		HAS_GROUPS(4);
		is_tensor(1, "exp_avg", "1.exp_avg");
		is_value(0, "eps", i ? 1e-6 : 1e-8);
	}
	is_step(3, 70000);
}

/* Nobody has the groups: states are there, and torch.optim says what lacks. */
Test(torch_optim, colossalai_without_groups)
{
	open_it("colossalai/bad-optim-no-groups/in", NULL);
	cr_expect(!ck_pv_key(f.ts.pickle, optimizer, "param_groups",
			     &(ck_pv){ 0 }));
	cr_expect_eq(ck_pv_kind(at(optimizer, "state")), CK_P_DICT);
}

/* ---- DeepSpeed: numbers as before ZeRO, through all groups ---- */

/* Both moments of parameters 0 and up, in this order, and their step. */
static void is_adam(const char *const *names, double step)
{
	char name[128];

	for (int64_t id = 0; names[id]; id++) {
		snprintf(name, sizeof(name), "exp_avg.%s", names[id]);
		is_tensor(id, "exp_avg", name);
		snprintf(name, sizeof(name), "exp_avg_sq.%s", names[id]);
		is_tensor(id, "exp_avg_sq", name);
		is_step(id, step);
	}
}
#define IS_ADAM(step, ...) \
	is_adam((const char *const[]){ __VA_ARGS__, NULL }, step)

/* Nothing of it is in a form that torch.optim would take. */
static void is_flat(const char *example, const char *name)
{
	ck_pv moment, other;

	open_it(example, NULL);
	moment = at(root(), "exp_avg");
	cr_expect(ck_pv_key(f.ts.pickle, moment, name, &other), "%s", name);
	cr_expect(!ck_pv_key(f.ts.pickle, root(), "optimizer", &other) ||
		  ck_pv_kind(other) == CK_P_NONE);
}

Test(torch_optim, deepspeed_groups)
{
	open_it("deepspeed/zero2-3ranks/in", "optimizer");
	HAS_GROUPS(3, 5);
	IS_ADAM(3, "emb.weight", "fc1.weight", "conv.weight", "gain",
		"fc1.bias", "norm.weight", "norm.bias", "conv.bias");
	is_value(0, "weight_decay", 0.1);
	is_value(1, "weight_decay", 0);
	is_value(1, "lr", 0.03);
}

/* The vectors have them as round_robin_gradients dealt them to ranks. */
Test(torch_optim, deepspeed_round_robin)
{
	open_it("deepspeed/zero1-round-robin/in", "optimizer");
	HAS_GROUPS(7, 6);
	IS_ADAM(2, "emb.weight", "mid.0.weight", "mid.1.weight", "mid.2.weight",
		"mid.3.weight", "mid.4.weight", "head.weight", "alpha",
		"mid.0.bias", "mid.2.bias", "mid.4.bias", "norm.weight",
		"norm.bias");
	open_it("deepspeed/zero2-aligned/in", "optimizer");
	HAS_GROUPS(8);
	IS_ADAM(3, "gain", "emb.weight", "fc1.weight", "fc1.bias",
		"norm.weight", "norm.bias", "conv.weight", "conv.bias");
}

Test(torch_optim, deepspeed_stage_3)
{
	open_it("deepspeed/zero3-frozen/in", "optimizer");
	HAS_GROUPS(3, 5);
	IS_ADAM(3, "emb.weight", "fc1.weight", "conv.weight", "gain",
		"fc1.bias", "norm.weight", "norm.bias", "conv.bias");
}

/* Stage after stage, and what is tied once, before all others. */
Test(torch_optim, deepspeed_pipeline)
{
	open_it("deepspeed/pipeline/in", "optimizer");
	HAS_GROUPS(12);
	IS_ADAM(2, "tied_modules.embed.weight", "1.up.weight", "1.up.bias",
		"1.down.weight", "2.up.weight", "2.up.bias", "2.down.weight",
		"3.up.weight", "3.up.bias", "3.down.weight", "4.weight",
		"4.bias");
}

Test(torch_optim, deepspeed_tensor_parallel)
{
	open_it("deepspeed/autotp/in", "optimizer");
	cr_expect_eq(ck_pv_len(f.ts.pickle, at(optimizer, "param_groups")), 1);
	is_tensor(0, "exp_avg", "exp_avg.inp.weight");
}

Test(torch_optim, deepspeed_universal)
{
	open_it("deepspeed/universal2/in", "optimizer");
	HAS_GROUPS(3, 5);
	IS_ADAM(3, "emb.weight", "fc1.weight", "conv.weight", "gain",
		"fc1.bias", "norm.weight", "norm.bias", "conv.bias");
	is_tensor(2, "step", "step.conv.weight");
	/* made of stage 3, with steps in another file */
	open_it("deepspeed/universal3/in", "optimizer");
	HAS_GROUPS(3, 5);
	IS_ADAM(3, "emb.weight", "fc1.weight", "conv.weight", "gain",
		"fc1.bias", "norm.weight", "norm.bias", "conv.bias");
}

Test(torch_optim, deepspeed_momentum)
{
	ck_pv state, other;

	open_it("deepspeed/zero2-momentum/in", "optimizer");
	HAS_GROUPS(10);
	is_tensor(1, "momentum_buffer", "momentum_buffer.inp.weight");
	is_value(0, "momentum", 0.9);
	cr_assert(find_id(at(optimizer, "state"), 1, &state));
	cr_expect(!ck_pv_key(f.ts.pickle, state, "step", &other));
}

/* It is torch.optim's own there, and nested as it was saved. */
Test(torch_optim, deepspeed_without_zero)
{
	open_it("deepspeed/stage0/in", "optimizer");
	HAS_GROUPS(3, 5);
	is_tensor(7, "exp_avg", "optimizer.state.7.exp_avg");
	is_step(7, 3);
}

/* Those of all ranks, layer by layer, after what is of no expert. */
Test(torch_optim, deepspeed_experts)
{
	static const char *const part[] = { "0.weight", "0.bias", "1.weight",
					    "1.bias" };
	char name[128];
	ck_pv moe;

	open_it("deepspeed/moe-named/in", "optimizer");
	HAS_GROUPS(9, 24);
	is_tensor(0, "exp_avg", "exp_avg.alpha");
	for (int64_t i = 0; i < 16; i++) {
		snprintf(name, sizeof(name),
			 "exp_avg.moes.0.deepspeed_moe.experts."
			 "deepspeed_experts.%d.%s",
			 (int)i / 4, part[i % 4]);
		is_tensor(9 + i, "exp_avg", name);
		is_step(9 + i, 2);
	}
	is_tensor(32, "exp_avg_sq",
		  "exp_avg_sq.moes.1.deepspeed_moe.experts."
		  "deepspeed_experts.1.1.bias");
	cr_expect(ck_pv_key(f.ts.pickle, group_at(1), "moe", &moe));
	/* no step was done: no states, and groups all the same */
	open_it("deepspeed/moe-zero2/in", "optimizer");
	cr_expect_eq(ck_pv_len(f.ts.pickle, at(optimizer, "param_groups")), 2);
	cr_expect_eq(ck_pv_len(f.ts.pickle, at(optimizer, "state")), 0);
	is_value(1, "lr", 0.01);
}

Test(torch_optim, deepspeed_of_no_order)
{
	is_flat("deepspeed/elastic/in", "fc1.weight");
	is_flat("deepspeed/moe-zero2-4ranks/in", "alpha"); /* two kinds */
}
