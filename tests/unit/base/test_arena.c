/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/arena.h"
#include "core/base/strmap.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

Test(arena, what_was_taken_stays_as_it_was)
{
	ck_auto_arena struct ck_arena mem = { 0 };
	unsigned char *v[300];

	for (size_t i = 0; i < 300; i++) {
		size_t len = i * i % 4099;

		v[i] = ck_arena_alloc(&mem, len);
		cr_assert(v[i]);
		cr_expect_eq((uintptr_t)v[i] % sizeof(uint64_t), 0);
		for (size_t k = 0; k < len; k++)
			cr_assert_eq(v[i][k], 0);
		memset(v[i], (int)i, len);
	}
	for (size_t i = 0; i < 300; i++)
		for (size_t k = 0; k < i * i % 4099; k++)
			cr_assert_eq(v[i][k], (unsigned char)i);
	cr_expect_not(mem.failed);
}

Test(arena, copies_end_in_a_nul)
{
	ck_auto_arena struct ck_arena mem = { 0 };

	cr_expect_str_eq(ck_arena_copy(&mem, "abcdef", 3), "abc");
	cr_expect_str_eq(ck_arena_copy(&mem, NULL, 0), "");
	cr_expect_str_eq(ck_arena_fmt(&mem, "%d of %s", 2, "three"),
			 "2 of three");
}

Test(arena, remembers_that_it_failed)
{
	ck_auto_arena struct ck_arena mem = { 0 };

	cr_expect_null(ck_arena_alloc(&mem, SIZE_MAX - 4));
	cr_expect(mem.failed);
	cr_expect_str_eq(ck_arena_copy(&mem, "x", 1), "x");
	cr_expect(mem.failed);
}

Test(strmap, keeps_what_it_is_told_to_keep)
{
	ck_auto_arena struct ck_arena mem = { 0 };
	ck_auto_strmap struct ck_strmap map = { 0 };
	char name[8] = "one";

	cr_expect_eq(ck_strmap_keep(&map, &mem, name, 3), 0);
	strcpy(name, "two");
	cr_expect_eq(ck_strmap_keep(&map, &mem, name, 3), 1);
	cr_expect_eq(ck_strmap_keep(&map, &mem, "one", 3), 0);
	cr_expect_str_eq(map.v[0].s, "one");
	cr_expect_eq(map.nr, 2);
}
