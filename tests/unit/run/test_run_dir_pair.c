/* SPDX-License-Identifier: Apache-2.0 */
/* What a model and an optimizer of one save say of each other. */
#include "core/run/run_dir_pair.h"
#include "tests/unit/catalog/kit.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct kit k[CK_PAIR_NR];
static uint32_t file[CK_PAIR_NR];
static const struct ck_catalog *img[CK_PAIR_NR];
static struct ck_str why[CK_PAIR_NR];

static void setup(void)
{
	for (int i = 0; i < CK_PAIR_NR; i++) {
		k[i] = kit_new();
		file[i] = kit_file(&k[i], "a.bin", 1 << 20);
	}
}

static void teardown(void)
{
	for (int i = 0; i < CK_PAIR_NR; i++) {
		ck_str_free(&why[i]);
		kit_free(&k[i]);
	}
}
TestSuite(run_dir_pair, .init = setup, .fini = teardown);

/* A dimension of 0 is none. */
static void tensor(int part, const char *name, uint64_t rows, uint64_t cols)
{
	const uint64_t shape[] = { rows, cols };
	struct ck_part p = { .name = name,
			     .name_len = strlen(name),
			     .src = file[part],
			     .dtype = CK_DT_F32,
			     .rank = cols ? 2 :
				     rows ? 1 :
					    0,
			     .shape = shape };

	kit_add(&k[part], &p);
}

/* Of parameter @id, with its counter. */
static void state(unsigned id, const char *key, uint64_t rows, uint64_t cols)
{
	char name[64];

	snprintf(name, sizeof(name), "%u.%s", id, key);
	tensor(CK_PAIR_OPTIMIZER, name, rows, cols);
}

static void groups(int part, const char *name)
{
	struct ck_object_in o = { name,	      strlen(name),  0,
				  file[part], CK_ENC_PICKLE, 5,
				  6 };

	cr_assert_eq(ck_builder_object(k[part].b, &o, &k[part].err), 0);
}

static void finish(int part, const char *format)
{
	cr_assert_eq(
		ck_builder_finish(k[part].b, format, k[part].fd, &k[part].err),
		0, "%s", k[part].err.msg);
	cr_assert_eq(ck_catalog_map(&k[part].img, k[part].fd, &k[part].err), 0);
	img[part] = &k[part].img;
}

static void expect(const char *of_model, const char *of_optimizer)
{
	const char *want[] = { of_model, of_optimizer };

	ck_pair_check(img, why);
	for (int i = 0; i < CK_PAIR_NR; i++)
		cr_expect_str_eq(why[i].len ? why[i].v : "", want[i]);
}

#define TAIL                                                              \
	": a stage of the model is missing, or the optimizer is that of " \
	"another one"

static void finish_both(void)
{
	groups(CK_PAIR_OPTIMIZER, "param_groups.0.lr");
	finish(CK_PAIR_MODEL, "torch");
	finish(CK_PAIR_OPTIMIZER, "colossalai");
}

/* A buffer, a frozen one, a tied one, and states of other shapes. */
Test(run_dir_pair, that_fit)
{
	tensor(0, "embed", 9, 4);
	tensor(0, "head", 9, 4);
	tensor(0, "norm", 4, 0);
	tensor(0, "scale", 0, 0);
	state(0, "exp_avg", 9, 4);
	state(0, "step", 0, 0);
	state(1, "exp_avg_sq_row", 9, 0);
	state(1, "exp_avg_sq_col", 9, 0);
	state(2, "momentum_buffer", 4, 0);
	state(10, "exp_avg", 0, 0);
	finish_both();
	expect("", "");
}

Test(run_dir_pair, fewer_tensors_than_states)
{
	tensor(0, "a", 9, 4);
	state(0, "exp_avg", 9, 4);
	state(0, "exp_avg_sq", 9, 4);
	state(1, "exp_avg", 9, 4);
	finish_both();
	expect("it has 1 tensors, and the optimizer states of 2 "
	       "parameters" TAIL,
	       "");
}

Test(run_dir_pair, a_shape_that_it_has_once)
{
	tensor(0, "a", 9, 4);
	tensor(0, "b", 4, 9);
	state(0, "exp_avg", 9, 4);
	state(1, "exp_avg", 9, 4);
	finish_both();
	expect("it has 1 tensor of shape [9, 4], and the optimizer states of "
	       "2" TAIL,
	       "");
}

Test(run_dir_pair, fewer_of_a_shape)
{
	tensor(0, "a", 9, 4);
	tensor(0, "b", 4, 9);
	tensor(0, "buffer", 3, 0);
	state(0, "exp_avg", 9, 4);
	state(1, "exp_avg", 9, 4);
	state(2, "exp_avg", 7, 7);
	finish_both();
	expect("it has no tensor of shape [7, 7], and the optimizer states of "
	       "1, and so it is with 1 more shape" TAIL,
	       "");
}

/* What has an error of its own says so, and more may be left out of it. */
Test(run_dir_pair, a_model_with_errors_is_not_compared)
{
	const struct ck_problem_in p = { .severity = CK_ERROR };

	state(0, "exp_avg", 9, 4);
	cr_assert_eq(ck_builder_problem(k[0].b, &p, &k[0].err, "no"), 0);
	finish_both();
	expect("", "");
}

/* FSDP's flat states and whatever else: only ColossalAI's are compared. */
Test(run_dir_pair, an_optimizer_of_others_is_not_compared)
{
	tensor(0, "a", 9, 4);
	state(0, "exp_avg", 72, 0);
	groups(CK_PAIR_OPTIMIZER, "param_groups");
	finish(CK_PAIR_MODEL, "dcp");
	finish(CK_PAIR_OPTIMIZER, "torch");
	expect("", "");
}

#define STATES \
	"it holds the states of an optimizer: it is in the place of another"
#define NO_STATES \
	"it holds no states of an optimizer: it is in the place of another"

Test(run_dir_pair, in_each_others_place)
{
	tensor(0, "state.0.exp_avg", 9, 4);
	groups(0, "param_groups.0.lr");
	tensor(1, "a", 9, 4);
	finish(CK_PAIR_MODEL, "torch");
	finish(CK_PAIR_OPTIMIZER, "hf");
	expect(STATES, NO_STATES);
}

/* ColossalAI 0.4.7's do not say that they are pickled. */
Test(run_dir_pair, groups_that_look_like_a_tensor)
{
	tensor(0, "state.0.exp_avg", 9, 4);
	tensor(0, "param_groups", 15, 0);
	finish(CK_PAIR_MODEL, "safetensors");
	expect(STATES, "");
}

Test(run_dir_pair, a_model_in_the_place_of_its_optimizer)
{
	tensor(1, "0.weight", 9, 4);
	finish(CK_PAIR_OPTIMIZER, "colossalai");
	expect("", NO_STATES);
}

Test(run_dir_pair, neither_is_there)
{
	expect("", "");
}
