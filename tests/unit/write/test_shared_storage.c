/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors share bytes: tied ones, views of one storage, and no others. */
#include "core/write/shared_storage.h"

#include "tests/lib/imagekit.h"

#include <criterion/criterion.h>

static uint32_t add(struct imagekit *k, uint32_t src, uint64_t off,
		    uint64_t rows, uint64_t cols, const int64_t *stride)
{
	const uint64_t zero[2] = { 0, 0 }, len[2] = { rows, cols };
	const struct ik_chunk c = { .rank = 2,
				    .start = zero,
				    .len = len,
				    .stride = stride,
				    .off = off,
				    .src = src };
	uint32_t first = ik_chunk(k, &c);
	const struct ik_tensor t = { .name = "t",
				     .dtype = CK_DT_F32,
				     .rank = 2,
				     .shape = len,
				     .first = first,
				     .nr = 1,
				     .nr_all = 1,
				     .covered = rows * cols };

	return ik_tensor(k, &t);
}

Test(shared_storage, tied_and_views)
{
	struct imagekit k = { 0 };
	struct ck_shared_storage *a;
	struct ck_catalog img;
	const int64_t turned[2] = { 1, 10 }, back[2] = { 10, -1 };
	uint32_t f = ik_src(&k, CK_SRC_FILE, "f", 10000);
	uint32_t g = ik_src(&k, CK_SRC_FILE, "g", 10000);
	uint32_t whole = add(&k, f, 0, 10, 10, NULL); /* bytes 0 to 400 */
	uint32_t tied = add(&k, f, 0, 10, 10, turned);
	uint32_t last = add(&k, f, 396, 1, 1, NULL);
	uint32_t after = add(&k, f, 400, 5, 5, NULL);
	uint32_t other = add(&k, g, 0, 10, 10, NULL);
	uint32_t left = add(&k, f, 1000, 2, 2, NULL); /* 1000 to 1016 */
	uint32_t mirror = add(&k, f, 1012, 1, 2, back); /* 1008 to 1016 */

	img = ik_image(&k);
	cr_assert_eq(ck_shared_storage_new(&a, &img), 0);
	cr_assert(a);
	cr_expect_eq(ck_shared_storage_group(a, whole),
		     ck_shared_storage_group(a, tied));
	cr_expect_eq(ck_shared_storage_group(a, whole),
		     ck_shared_storage_group(a, last));
	cr_expect_neq(ck_shared_storage_group(a, whole), CK_NONE);
	cr_expect_eq(ck_shared_storage_group(a, after), CK_NONE);
	cr_expect_eq(ck_shared_storage_group(a, other), CK_NONE);
	cr_expect_eq(ck_shared_storage_group(a, left),
		     ck_shared_storage_group(a, mirror));
	cr_expect_neq(ck_shared_storage_group(a, left),
		      ck_shared_storage_group(a, whole));
	ck_shared_storage_free(a);
	ik_free(&k);
}

Test(shared_storage, none)
{
	struct imagekit k = { 0 };
	struct ck_shared_storage *a;
	struct ck_catalog img;
	uint32_t f = ik_src(&k, CK_SRC_FILE, "f", 10000);

	for (uint64_t i = 0; i < 20; i++)
		add(&k, f, i * 24, 2, 3, NULL);
	img = ik_image(&k);
	cr_assert_eq(ck_shared_storage_new(&a, &img), 0);
	cr_expect_null(a);
	cr_expect_eq(ck_shared_storage_group(a, 3), CK_NONE);
	ik_free(&k);
}
