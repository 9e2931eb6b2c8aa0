/* SPDX-License-Identifier: Apache-2.0 */
#include "core/assemble/pattern.h"

#include <criterion/criterion.h>

static const struct ck_pattern table[] = {
	{ "mp_rank_#_#", 1 },
	{ "mp_rank_#", 2 },
	{ "*-dist-#-shard-*.bin", 3 },
	{ "*-#-of-#.safetensors", 4 },
};

static int kind(const char *name, struct ck_pattern_found *f)
{
	return ck_pattern_find(table, sizeof(table) / sizeof(*table), name, f) ?
		       f->kind :
		       0;
}

Test(pattern, tells_numbers_and_where_they_are)
{
	struct ck_pattern_found f;

	cr_expect_eq(kind("mp_rank_00_012", &f), 1);
	cr_expect(f.nr == 2 && f.n[0] == 0 && f.n[1] == 12);
	cr_expect(f.from[1] == 11 && f.to[1] == 14);
	cr_expect_eq(kind("mp_rank_7", &f), 2);
	cr_expect(f.nr == 1 && f.n[0] == 7);
	cr_expect_eq(kind("a-dist-b-dist-3-shard-1.bin", &f), 3);
	cr_expect_eq(f.n[0], 3);
	cr_expect_eq(kind("model-00002-of-00010.safetensors", &f), 4);
	cr_expect(f.n[0] == 2 && f.n[1] == 10);
}

Test(pattern, does_not_fit_by_halves)
{
	static const char *const names[] = {
		"mp_rank_",
		"mp_rank_0_",
		"mp_rank_00x",
		"xmp_rank_00",
		"a-dist-x-shard-1.bin",
		"mp_rank_1234567890123456789",
		"",
		"model-1-of-.safetensors",
	};
	struct ck_pattern_found f;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		cr_expect_eq(kind(names[i], &f), 0, "%s", names[i]);
}
