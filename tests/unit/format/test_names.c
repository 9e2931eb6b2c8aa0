/* SPDX-License-Identifier: Apache-2.0 */
/* The small things that readers lean on. */
#include "core/format/dcp/dcp.h"
#include "core/assemble/st_folder.h"
#include "core/parse/json.h"
#include "core/base/strmap.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Test(strmap, numbers_strings_in_the_order_of_first_sight)
{
	enum { NR = 5000 };
	static char text[NR][16];
	struct ck_strmap m = { 0 };

	cr_expect_eq(ck_strmap_get(&m, "a", 1), CK_STRMAP_NONE);
	for (uint32_t i = 0; i < NR; i++) {
		snprintf(text[i], sizeof(text[i]), "name.%u", i);
		cr_assert_eq(ck_strmap_put(&m, text[i], strlen(text[i])), i);
	}
	for (uint32_t i = 0; i < NR; i++) {
		cr_assert_eq(ck_strmap_put(&m, text[i], strlen(text[i])), i);
		cr_assert_eq(ck_strmap_get(&m, text[i], strlen(text[i])), i);
	}
	/* bytes count, not characters up to a NUL */
	cr_expect_eq(ck_strmap_put(&m, "x\0y", 3), NR);
	cr_expect_eq(ck_strmap_put(&m, "x\0z", 3), NR + 1);
	cr_expect_eq(ck_strmap_put(&m, "", 0), NR + 2);
	cr_expect_eq(m.nr, NR + 3);
	ck_strmap_free(&m);
}

static void expect_found(const char *json, const char *want)
{
	size_t at, to;
	bool found =
		ck_json_value(json, strlen(json), "__metadata__", &at, &to);

	cr_assert_eq(found, want != NULL, "%s", json);
	if (want)
		cr_expect(to - at == strlen(want) &&
				  !memcmp(json + at, want, to - at),
			  "%s: %.*s", json, (int)(to - at), json + at);
}

Test(json_value, finds_a_member_of_the_outermost_object_only)
{
	expect_found("{}", NULL);
	expect_found("{\"__metadata__\":{}}", "{}");
	expect_found(" { \"__metadata__\" : {\"a\": \"}\"} } ",
		     "{\"a\": \"}\"}");
	expect_found("{\"a\": {\"__metadata__\": {}}}", NULL);
	expect_found("{\"a\": \"__metadata__\", \"b\": [1, {\"c\": 2}],"
		     "\"__metadata__\": {\"x\": \"\\\"\\\\\"}   , \"d\": 1}",
		     "{\"x\": \"\\\"\\\\\"}");
	expect_found("{\"__metadata__x\": 1}", NULL);
	/* cut anywhere, it only must stay inside */
	for (size_t n = 0; n < 30; n++) {
		size_t at, to = n;

		ck_json_value("{\"a\": \"\\\"b\", \"__metadata__\": {}}", n,
			      "__metadata__", &at, &to);
		cr_expect_leq(to, n);
	}
}

Test(hf_names, tells_shards_from_numbered_files)
{
	struct ck_st_shard shard = { 0 };

	cr_expect(ck_st_is_shard(
		"sharded/shard-00012-model-00003-of-00004.safetensors",
		&shard));
	cr_expect(shard.rank == 12 && shard.file == 3 && shard.of == 4);
	cr_expect_not(
		ck_st_is_shard("shard-00012-model-00003.safetensors", NULL));
	cr_expect_not(ck_st_is_shard("model-00003-of-00004.safetensors", NULL));
}

Test(dir, names_stay_inside)
{
	static const char *const good[] = { "a",    "a/b", ".metadata",
					    "a..b", "..a", "a/..b/c",
					    "./a" };
	static const char *const bad[] = { "",	   "/",	   "/a",    "..",
					   "../a", "a/..", "a/../b" };

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		cr_expect(ck_dir_name_ok(good[i], strlen(good[i])), "%s",
			  good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		cr_expect_not(ck_dir_name_ok(bad[i], strlen(bad[i])), "%s",
			      bad[i]);
	cr_expect_not(ck_dir_name_ok("a\0b", 3));
}

Test(dcp_allow, names_what_a_metadata_may_name)
{
	static const struct {
		const char *module, *name;
		bool ok;
	} v[] = {
		{ "torch.distributed.checkpoint.metadata", "Metadata", true },
		{ "torch", "bfloat16", true },
		{ "torchx", "load", false },
		{ "megatron.core.x", "MCoreSavePlan", true },
		{ "mycompany.planner", "OurMetadataIndex", true },
		{ "pathlib._local", "PosixPath", true },
		{ "builtins", "getattr", true },
		{ "builtins", "eval", false },
		{ "builtins", "get", false },
		{ "builtins", "", false },
		{ "builtins", "set frozenset", false },
		{ "os", "system", false },
		{ "posix", "system", false },
		{ "subprocess", "Popen", false },
		{ "collections", "OrderedDict", true },
	};

	for (size_t i = 0; i < sizeof(v) / sizeof(*v); i++)
		cr_expect_eq(ck_dcp_allow(NULL, v[i].module,
					  strlen(v[i].module), v[i].name,
					  strlen(v[i].name)),
			     v[i].ok, "%s.%s", v[i].module, v[i].name);
}
