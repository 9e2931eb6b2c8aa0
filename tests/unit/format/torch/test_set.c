/* SPDX-License-Identifier: Apache-2.0 */
/* Which torch.save files of a folder belong together. */
#include "core/container/torch_save.h"
#include "core/format/torch/set.h"
#include "tests/lib/memdir.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct memdir m;
static struct ck_torch_set set;
static struct ck_err err;
static const char head[16] = "PK\3\4";

static void setup(void)
{
	memdir_init(&m);
}

static void teardown(void)
{
	ck_torch_set_free(&set);
	memdir_free(&m);
}
TestSuite(torch_set, .init = setup, .fini = teardown);

static void put(const char *name)
{
	cr_assert(memdir_put(&m, name, head, sizeof(head)));
}

static void text(const char *name, const char *bytes)
{
	cr_assert(memdir_put(&m, name, bytes, strlen(bytes)));
}

/* The names in order, with a blank between. */
static void expect(const char *want, bool ranks, bool indexed)
{
	char got[512] = "";

	ck_torch_set_free(&set);
	cr_assert_eq(ck_torch_set_find(&set, &m.dir, &err), 0, "%s", err.msg);
	for (size_t i = 0; i < set.name.nr; i++)
		strcat(strcat(got, i ? " " : ""), set.name.v[i]);
	cr_expect_str_eq(got, want);
	cr_expect_eq(set.ranks, ranks);
	cr_expect_eq(set.indexed, indexed);
}

Test(torch_set, names)
{
	cr_expect(ck_torch_save_is_name("a.pt") &&
		  ck_torch_save_is_name("a.pth"));
	cr_expect(ck_torch_save_is_name("a.bin") &&
		  ck_torch_save_is_name("a.ckpt"));
	cr_expect_not(ck_torch_save_is_name(".pt"));
	cr_expect_not(ck_torch_save_is_name("a.pt.txt"));
	cr_expect_not(ck_torch_save_is_name(""));
}

Test(torch_set, one)
{
	expect("", false, false);
	put("model.pt");
	text("README.md", "PK\3\4, but of no such name");
	text("short.pt", "PK\3\4");
	text("other.bin", "bytes of no known kind");
	expect("model.pt", false, false);
	m.dir.only = "model.pt";
	expect("model.pt", false, false);
	m.dir.only = "other.bin";
	expect("", false, false);
}

Test(torch_set, two_that_do_not_belong_together)
{
	put("a.pt");
	put("b.pt");
	expect("", false, false);
}

Test(torch_set, one_a_rank_by_number)
{
	put("model_rank10.pt");
	put("model_rank9.pt");
	put("model_rank_0.pt"); /* another way to write it, one pattern */
	expect("model_rank_0.pt model_rank9.pt model_rank10.pt", true, false);
	put("other_rank0.pt");
	expect("", false, false);
}

Test(torch_set, the_optimizer_of_each_rank_is_beside)
{
	put("model_world2_rank0.pt");
	put("model_world2_rank1.pt");
	put("optimizer_world2_rank0.pt");
	put("optimizer_world2_rank1.pt");
	expect("model_world2_rank0.pt model_world2_rank1.pt", true, false);
}

Test(torch_set, a_trainers_state_is_no_model)
{
	put("training_args.bin");
	expect("training_args.bin", false, false); /* alone it may be shown */
	text("model.safetensors", "x");
	expect("", false, false);
	memdir_drop(&m, "model.safetensors");
	put("scheduler.pt");
	put("pytorch_model.bin");
	put("rng_state_0.pth");
	expect("", false, false); /* which one is for the user to say */
	text("sub/.metadata", "x");
	expect("pytorch_model.bin", false, false);
}

#define INDEX "pytorch_model.bin.index.json"

Test(torch_set, index)
{
	put("pytorch_model-00001-of-00002.bin");
	put("aside.bin");
	text(INDEX, "{\"weight_map\": {\"b\": \"z.bin\", \"a\": \"y.bin\", "
		    "\"c\": \"z.bin\"}}");
	expect("y.bin z.bin", false, true);
	text(INDEX, "{\"weight_map\": {}}");
	expect("", false, true);
}

static void refuse(const char *json, const char *why)
{
	text(INDEX, json);
	ck_torch_set_free(&set);
	cr_expect_eq(ck_torch_set_find(&set, &m.dir, &err), -EINVAL);
	cr_expect(strstr(err.msg, INDEX) && strstr(err.msg, why), "%s",
		  err.msg);
}

Test(torch_set, bad_index)
{
	refuse("{}", "weight_map");
	refuse("{\"weight_map\": [1]}", "weight_map");
	refuse("{\"weight_map\": {\"a\": 3}}", "weight_map: a: expected");
	refuse("{", "");
}

Test(torch_set, memory_is_no_other_answer)
{
	put("a.pt");
	memdir_find(&m, "a.pt")->fault = ENOMEM;
	cr_expect_eq(ck_torch_set_find(&set, &m.dir, &err), -ENOMEM);
	memdir_find(&m, "a.pt")->fault = EACCES;
	expect("", false, false);
}

static void refused(const char *why)
{
	err = (struct ck_err){ 0 };
	cr_expect(set.numbered);
	cr_expect_eq(ck_torch_set_check(&set, &err), why ? -EINVAL : 0);
	cr_expect(why ? strstr(err.msg, why) != NULL : !*err.msg, "%s",
		  err.msg);
}

Test(torch_set, some_of_a_numbered_set)
{
	put("pytorch_model-00002-of-00003.bin");
	expect("pytorch_model-00002-of-00003.bin", false, false);
	refused("pytorch_model-*-of-00003.bin: 1 of 3 files are there");
	put("pytorch_model-00003-of-00003.bin");
	expect("pytorch_model-00002-of-00003.bin "
	       "pytorch_model-00003-of-00003.bin",
	       false, false);
	refused("2 of 3 files");
	put("pytorch_model-00001-of-00003.bin");
	expect("pytorch_model-00001-of-00003.bin "
	       "pytorch_model-00002-of-00003.bin "
	       "pytorch_model-00003-of-00003.bin",
	       false, false);
	refused(NULL); /* all are there: no index is needed */
}

Test(torch_set, numbers_without_a_total)
{
	put("pytorch_model.ema-00001.bin");
	expect("pytorch_model.ema-00001.bin", false, false);
	refused("says whether they are all");
	put("pytorch_model.ema-00002.bin");
	expect("pytorch_model.ema-00001.bin pytorch_model.ema-00002.bin", false,
	       false);
	refused("2 numbered files and no index");
	put("pytorch_model.ema-00004.bin");
	expect("pytorch_model.ema-00001.bin pytorch_model.ema-00002.bin "
	       "pytorch_model.ema-00004.bin",
	       false, false);
	refused("pytorch_model.ema-*.bin: 3 of 4 files are there");
	put("pytorch_model-00001.bin"); /* of another set: each by itself */
	expect("", false, false);
	cr_expect(!set.numbered);
}

Test(torch_set, steps_are_no_set)
{
	put("model-00100.pt");
	put("model-00200.pt");
	expect("", false, false);
	cr_expect(!set.numbered);
}

Test(torch_set, numbers_that_are_of_no_set)
{
	put("-of-00003.bin");
	expect("-of-00003.bin", false, false);
	cr_expect(!set.numbered);
	teardown();
	setup();
	put("a-00001-of-00001.bin");
	expect("a-00001-of-00001.bin", false, false);
	cr_expect(!set.numbered);
	teardown();
	setup();
	put("a-00001-of-3.bin");
	expect("a-00001-of-3.bin", false, false);
	cr_expect(!set.numbered);
}
