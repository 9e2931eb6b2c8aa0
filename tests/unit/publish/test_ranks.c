/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks.c - which names are of ranks, and whether they are all */
#include "core/publish/ranks.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

Test(ranks, by_names)
{
	static const struct {
		const char *path;
		int rank;
	} cases[] = {
		{ "rank_3/net.ckpt", 3 },     { "node0/t.ckpt", 0 },
		{ "model_rank12.pt", 12 },    { "rank-00007.safetensors", 7 },
		{ "model.safetensors", -1 },  { "ranked/x", -1 },
		{ "rank99999999999.pt", -1 }, { "frank2.pt", -1 },
		{ "local_rank3.pt", 3 },      { "ddprank_4.pt", 4 },
		{ "frank2/rank1.pt", 1 },     { "lora_rank8.pt", 8 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ck_dir_tree_file f = { .path = (char *)cases[i].path,
					      .st.st_mode = S_IFREG };
		const struct ck_dir_tree one = { .v = &f, .nr = 1 };
		struct ck_ranks r;
		struct ck_err err = { 0 };

		cr_assert_eq(ck_ranks_find(&r, &one, CK_RANKS_WORDS, &err), 0);
		cr_expect_eq(r.nr ? (int)r.v[0].rank : -1, cases[i].rank, "%s",
			     cases[i].path);
		ck_ranks_free(&r);
	}
}

/* What --ranks @nr says of files of these names; "": that they are all. */
static void ranks_are(uint64_t nr, const char *want, size_t names,
		      const char *const *name)
{
	struct ck_dir_tree_file v[8] = { 0 };
	const struct ck_dir_tree files = { .v = v, .nr = names };
	struct ck_ranks found;
	struct ck_err err = { 0 };
	int ret;

	for (size_t i = 0; i < names; i++) {
		v[i].path = (char *)name[i];
		v[i].st.st_mode = S_IFREG;
	}
	cr_assert_eq(ck_ranks_find(&found, &files, CK_RANKS_ANY, &err), 0);
	ret = ck_ranks_are(&found, nr, &err);
	cr_expect_eq(ret, *want ? -ENODATA : 0, "%s: %s", name[0], err.msg);
	if (*want)
		cr_expect(strstr(err.msg, want), "%s: %s", name[0], err.msg);
	ck_ranks_free(&found);
}

#define RANKS_ARE(nr, want, ...)                                            \
	ranks_are(nr, want,                                                 \
		  sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *), \
		  (const char *[]){ __VA_ARGS__ })

Test(ranks, are_all_there)
{
	RANKS_ARE(2, "", "rank_0/a", "rank_1/a", "rank_1/b");
	RANKS_ARE(3, "the files of 3 ranks, found 2: missing rank 1",
		  "rank_0.pt", "rank_2.pt");
	RANKS_ARE(2, "found rank 2", "rank_0.pt", "rank_1.pt", "rank_2.pt");
	RANKS_ARE(1, "the files of 1 rank, found rank 1", "rank_0.pt",
		  "rank_1.pt");
	RANKS_ARE(1, "", "rank_0.pt", "config.json");
	RANKS_ARE(1, "", "model.pt");
	RANKS_ARE(2, "found 0: missing rank 0, 1", "model.pt");
}

/* In a name the word means something else too. */
Test(ranks, a_number_that_is_no_ranks)
{
	RANKS_ARE(1, "", "adapter_rank16.safetensors");
	RANKS_ARE(1, "", "lora_rank8.pt", "lora_rank16.pt");
	RANKS_ARE(2, "", "model_rank0.pt", "model_rank1.pt", "lora_rank16.pt");
	RANKS_ARE(2, "found rank 16", "lora_rank16.pt", "lora_rank0.pt");
	RANKS_ARE(4, "missing rank 1, 2", "a_rank0.pt", "b_rank3.pt");
}

Test(ranks, of_oneflow)
{
	RANKS_ARE(2, "", "model_0/pickled_data", "model_0/tensor_5/out",
		  "model_1/pickled_data", "model_1/tensor_6/out");
	RANKS_ARE(2, "found 1: missing rank 1", "model_0/pickled_data",
		  "model_0/tensor_5/out", "model_0/tensor_1/out");
	RANKS_ARE(2, "", "a/net_0/snapshot_done", "a/net_1/model.mlir");
	RANKS_ARE(2, "", "model_0", "model_1"); /* 1.0: files */
}
