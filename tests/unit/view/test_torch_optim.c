/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers of real checkpoints, in model.pt as torch.optim has them. */
#include "core/base/check.h"
#include "core/catalog/image.h"
#include "core/format/torch_place.h"
#include "core/parse/pickle.h"
#include "core/view/view.h"

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

/* Sanitizers and valgrind need what the sandbox forbids. */
static void setup(void)
{
#ifdef __SANITIZE_ADDRESS__
	ck_opts_add(&opts, "sandbox", "off");
#endif
	if (getenv("LD_PRELOAD") && strstr(getenv("LD_PRELOAD"), "valgrind"))
		ck_opts_add(&opts, "sandbox", "off");
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
	cr_assert_eq(ck_ckpt_open(&ck, path.v, &opts, &err), 0, "%s", err.msg);
	cr_assert_eq(ck_view_open(&v, &ck_view_torch, ck, 0, &opts, &err), 0);
	cr_assert(v->ops->file(v, 0, &file));
	bytes = malloc(file.size);
	cr_assert_eq(ck_view_read(v, 0, bytes, file.size, 0, &err), 0, "%s",
		     err.msg);
	src = ck_source_mem((unsigned char *)bytes, file.size, "model.pt");
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
	const struct ck_image *img = ck_ckpt_image(ck);
	uint32_t t = ck_image_find_name(img, 0, name, strlen(name));
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
	cr_expect_eq(memcmp(had, bytes + place.off, want->size), 0,
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
