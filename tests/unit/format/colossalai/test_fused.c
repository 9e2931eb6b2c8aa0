/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of fused layers, against rows that are dealt to ranks one by one. */
#include "core/format/colossalai/colossalai.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct ck_err err;

static int get(struct colossalai_fused *f, const char *value)
{
	struct ck_opts opts = { 0 };
	int ret;

	cr_assert_eq(ck_opts_add(&opts, "fused", value), 0);
	ret = ck_colossalai_fused_get(f, &opts, &err);
	ck_opts_free(&opts);
	return ret;
}

/* Where row @at of rank @rank's slab is in the weight. */
static uint64_t naive(const uint64_t *rows, unsigned nr, uint64_t ranks,
		      uint64_t rank, uint64_t at)
{
	uint64_t seen = 0, full = 0;

	for (unsigned i = 0; i < nr; i++)
		for (uint64_t r = 0; r < rows[i]; r++, full++)
			if (r / (rows[i] / ranks) == rank && seen++ == at)
				return full;
	return UINT64_MAX;
}

static void check(const char *value, const uint64_t *rows, unsigned nr,
		  uint64_t ranks)
{
	struct colossalai_fused f;
	uint64_t all = 0, len;

	for (unsigned i = 0; i < nr; i++)
		all += rows[i];
	len = all / ranks;
	cr_assert_eq(get(&f, value), 0, "%s", err.msg);
	for (uint64_t rank = 0; rank < ranks; rank++) {
		uint64_t at = 0, to;
		struct ck_shard s;
		struct ck_box box;

		cr_assert_eq(ck_colossalai_fused_shard(
				     &f, &all, 1, 0, rank * len, len, &s, &err),
			     0, "%s", err.msg);
		for (unsigned i = 0; i < ck_shard_pieces(&s); i++) {
			ck_shard_piece(&s, i, &box, &to);
			cr_assert_eq(to, at);
			for (uint64_t k = 0; k < box.len[0]; k++, at++)
				cr_assert_eq(box.start[0] + k,
					     naive(rows, nr, ranks, rank, at));
		}
		cr_assert_eq(at, len);
	}
}

Test(ca_fused, shares_are_those_of_rows_dealt_out)
{
	check("3", (const uint64_t[]){ 16, 16, 16 }, 3, 1);
	check("3", (const uint64_t[]){ 16, 16, 16 }, 3, 4);
	check("2", (const uint64_t[]){ 6, 6 }, 2, 3);
	check("64+16+16", (const uint64_t[]){ 64, 16, 16 }, 3, 8);
	check("4+12", (const uint64_t[]){ 4, 12 }, 2, 2);
}

static int divides(const struct colossalai_fused *f, uint64_t all, uint64_t off,
		   uint64_t len)
{
	struct ck_shard s;

	return ck_colossalai_fused_shard(f, &all, 1, 0, off, len, &s, &err);
}

Test(ca_fused, what_does_not_divide)
{
	struct colossalai_fused f;
	cr_assert_eq(get(&f, "3"), 0);
	cr_expect_eq(divides(&f, 50, 0, 25), -EINVAL);
	cr_expect_eq(divides(&f, 48, 0, 20), -EINVAL);
	cr_expect_eq(divides(&f, 48, 12, 24), -EINVAL);
	cr_expect_eq(divides(&f, 48, 0, 0), -EINVAL);
	cr_assert_eq(get(&f, "30+18"), 0);
	cr_expect_eq(divides(&f, 48, 0, 12), -EINVAL);
	for (const char *const *v =
		     (const char *const[]){ "", "0", "9", "-1", "3+", "+3",
					    "3,3", "yes", NULL };
	     *v; v++)
		cr_expect_eq(get(&f, *v), -EINVAL, "%s", *v);
	cr_expect(get(&f, "no") == 0 && f.given && !f.nr);
}

Test(ca_fused, names)
{
	cr_expect(ck_colossalai_is_fused("transformer.h.0.attn.c_attn.weight",
					 34));
	cr_expect(ck_colossalai_is_fused("qkv.bias", 8));
	cr_expect_not(ck_colossalai_is_fused("h.0.xqkv.bias", 13));
	cr_expect_not(ck_colossalai_is_fused("h.0.q_proj.weight", 17));
	cr_expect_not(ck_colossalai_is_fused("c_attn", 6));
}

Test(ca_dist, names_of_files)
{
	uint64_t dist;

	cr_expect(ck_colossalai_is_meta(
		"pytorch_model-meta-dist-00000.index.json", &dist));
	cr_expect(ck_colossalai_is_meta("pytorch_model-meta-dist-00012.json",
					&dist));
	cr_expect_not(
		ck_colossalai_is_meta("pytorch_model.bin.index.json", &dist));
	cr_expect(ck_colossalai_is_weights("pytorch_model-dist-00003.bin",
					   &dist) &&
		  dist == 3);
	cr_expect(ck_colossalai_is_weights(
			  "model.a-dist-b-dist-00012-shard-00000.safetensors",
			  &dist) &&
		  dist == 12);
	cr_expect_not(
		ck_colossalai_is_weights("model-00001.safetensors", &dist));
	cr_expect_not(ck_colossalai_is_weights("model-dist-x.bin", &dist));
	cr_expect_not(ck_colossalai_is_weights("model-dist-00001.json", &dist));
}
