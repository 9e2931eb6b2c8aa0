/* SPDX-License-Identifier: Apache-2.0 */
#include "core/assemble/numbered.h"

#include "core/base/check.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static void is(const char *name, size_t stem, unsigned stage, unsigned k,
	       unsigned of)
{
	struct ck_numbered n;

	cr_assert(ck_numbered_is(name, &n), "%s", name);
	cr_expect_eq(n.stem, stem, "%s: stem %zu", name, n.stem);
	cr_expect_eq(n.stage, stage, "%s: stage %u", name, n.stage);
	cr_expect_eq(n.k, k, "%s: k %u", name, n.k);
	cr_expect_eq(n.of, of, "%s: of %u", name, n.of);
}

static void is_not(const char *name)
{
	struct ck_numbered n;

	cr_expect(!ck_numbered_is(name, &n), "%s", name);
}

Test(numbered, names)
{
	is("model-00001-of-00002.safetensors", 6, 0, 1, 2);
	is("sub-of-x/a-00003-of-00004.bin", 11, 0, 3, 4);
	is("x/model-00002-of-100000.safetensors", 8, 0, 2, 100000);
	is("pytorch_model-00012.bin", 13, 0, 12, 0);
	is("pytorch_model.ema.v2-00001.bin", 20, 0, 1, 0);
	is("model-stage-00002-shard-00001.safetensors", 5, 2, 1, 0);
	is("model.p-stage-00002-00007-shard-00003.safetensors", 7, 2, 3, 0);
	is("pytorch_optim-stage-00001-shard-00004.bin", 13, 1, 4, 0);
	is("optimizer-00001.safetensors", 9, 0, 1, 0);
	is("optimizer-100000.safetensors", 9, 0, 100000, 0);
	is("part0.safetensors", 4, 0, 0, 0);
	is("x/part12.safetensors", 6, 0, 12, 0);
}

Test(numbered, others)
{
	is_not("model.safetensors");
	is_not("model-00100.pt"); /* steps, more likely */
	is_not("weights-00001.safetensors");
	is_not("pytorch_model-0001.bin");
	is_not("pytorch_model-00001");
	is_not("pytorch_model-00001.safetensors");
	is_not("pytorch_optim_group.bin");
	is_not("model-00001-of-00002");
	is_not("model-00001-of-00000.safetensors");
	is_not("model-stage-00001.safetensors");
	is_not("model-dist-00001-shard-00000.safetensors");
	is_not("model.p-dist-00001-shard-00000.safetensors");
	is_not("-of-00002.bin");
	is_not("-of-");
	is_not("part.safetensors");
	is_not("part1.bin");
	is_not("spart1.safetensors");
	is_not("a-1-of-2.safetensors");
	is_not("a-00000000001-of-00002.safetensors");
	is_not("model-00001-of-00002.fp16.safetensors");
	is_not("");
}

static void check(const char *const *name, size_t nr, const char *why)
{
	struct ck_err err = { 0 };
	int ret = 0;

	for (size_t i = 0; i < nr && !ret; i++)
		ret = ck_numbered_check(name, nr, i, ".index.json", &err);
	cr_expect_eq(ret, why ? -EINVAL : 0);
	cr_expect(why ? strstr(err.msg, why) != NULL : !*err.msg, "%s",
		  err.msg);
}

#define CHECK(why, ...)                                         \
	do {                                                    \
		static const char *const v[] = { __VA_ARGS__ }; \
                                                                \
		check(v, CK_ARRAY_LEN(v), why);                 \
	} while (0)

Test(numbered, what_is_missing)
{
	CHECK(NULL, "a-00001-of-00002.bin", "a-00002-of-00002.bin");
	CHECK("a-*-of-00002.bin: 1 of 2 files are there and no index "
	      "(*.index.json) says what the others hold",
	      "a-00002-of-00002.bin", "b-00001-of-00002.bin");
	CHECK("1 of 2", "a-00001-of-00002.bin", "a-00002-of-00002.safetensors");
	CHECK("a-*-of-00001.bin", "a-00000-of-00001.bin");
	CHECK(NULL, "model-00001.safetensors", "model-00002.safetensors", "x");
	CHECK(NULL, "model-00000.safetensors", "model-00001.safetensors");
	CHECK("model-*.safetensors: 1 of 2 files", "model-00002.safetensors");
	CHECK("2 of 3", "model-00001.safetensors", "model-00003.safetensors");
}

Test(numbered, stages)
{
	CHECK(NULL, "model-stage-00001-shard-00001.safetensors",
	      "model-stage-00001-shard-00002.safetensors",
	      "model-stage-00002-shard-00001.safetensors");
	CHECK(NULL, "model-stage-00000-shard-00000.safetensors",
	      "model-stage-00001-shard-00000.safetensors");
	CHECK("no file of stage 1 is there",
	      "model-stage-00002-shard-00001.safetensors");
	CHECK("1 of 2", "model-stage-00001-shard-00001.safetensors",
	      "model-stage-00002-shard-00002.safetensors");
}

Test(numbered, next)
{
	cr_expect(ck_numbered_next("a-00001-of-00002.bin",
				   "a-00002-of-00002.bin"));
	cr_expect(!ck_numbered_next("a-00001-of-00001.bin",
				    "a-00002-of-00001.bin"));
	cr_expect(!ck_numbered_next("a-00001-of-00002.bin",
				    "b-00002-of-00002.bin"));
	cr_expect(!ck_numbered_next("model-stage-00001-shard-00001.safetensors",
				    "model-stage-00002-shard-00002."
				    "safetensors"));
}
