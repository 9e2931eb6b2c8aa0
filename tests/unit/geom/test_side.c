/* SPDX-License-Identifier: Apache-2.0 */
#include "core/geom/side.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

Test(side, each_kind_of_answer)
{
	const int64_t stride[] = { 1, -7, 0 };
	struct ck_place put = { .off = 12, .stride = stride, .xform = 2 }, got;
	struct ck_side *side = ck_side_new(5);

	cr_assert_eq(ck_side_get(side, 0, &got), CK_SIDE_UNKNOWN);
	cr_assert_eq(ck_side_put(side, 0, &put, 3), 0);
	put = (struct ck_place){ .off = (UINT64_C(1) << 62) - 1 };
	cr_assert_eq(ck_side_put(side, 1, &put, 3), 0);
	put = (struct ck_place){ .off = UINT64_C(1) << 62 };
	cr_assert_eq(ck_side_put(side, 2, &put, 3), 0);
	cr_assert_eq(ck_side_put_bad(side, 3, EBADMSG), 0);

	cr_assert_eq(ck_side_get(side, 0, &got), CK_SIDE_PLACED);
	cr_expect_eq(got.off, 12);
	cr_expect_eq(got.xform, 2);
	cr_expect_neq(got.stride, stride, "a copy");
	cr_expect_arr_eq(got.stride, stride, sizeof(stride));
	cr_assert_eq(ck_side_get(side, 1, &got), CK_SIDE_PLACED);
	cr_expect_eq(got.off, (UINT64_C(1) << 62) - 1);
	cr_expect_null(got.stride);
	cr_assert_eq(ck_side_get(side, 2, &got), CK_SIDE_PLACED);
	cr_expect_eq(got.off, UINT64_C(1) << 62);
	cr_expect_null(got.stride);
	cr_assert_eq(ck_side_get(side, 3, &got), CK_SIDE_BAD);
	cr_expect_eq(got.err, EBADMSG);
	cr_assert_eq(ck_side_get(side, 4, &got), CK_SIDE_UNKNOWN);
	ck_side_free(side);
}

Test(side, the_first_answer_stays)
{
	const int64_t stride[] = { 3 };
	struct ck_place place = { .off = 1 }, got;
	struct ck_side *side = ck_side_new(1);

	cr_assert_eq(ck_side_put(side, 0, &place, 1), 0);
	place = (struct ck_place){ .off = 2, .stride = stride };
	cr_assert_eq(ck_side_put(side, 0, &place, 1), 0);
	cr_assert_eq(ck_side_put_bad(side, 0, EIO), 0);
	cr_assert_eq(ck_side_get(side, 0, &got), CK_SIDE_PLACED);
	cr_expect_eq(got.off, 1);
	cr_expect_null(got.stride);
	ck_side_free(side);
}

Test(side, a_table_of_none)
{
	ck_side_free(ck_side_new(0));
	ck_side_free(NULL);
}

enum { CHUNKS = 2000, THREADS = 4 };

/* Every thread answers for every chunk; readers see whole records only. */
static void *answer_all(void *side)
{
	for (uint32_t i = 0; i < CHUNKS; i++) {
		const int64_t stride[] = { i, i + 1 };
		struct ck_place place = { .off = i, .stride = stride }, got;

		if (ck_side_put(side, i, &place, 2) ||
		    ck_side_get(side, i, &got) != CK_SIDE_PLACED ||
		    got.off != i || memcmp(got.stride, stride, sizeof(stride)))
			return side;
	}
	return NULL;
}

Test(side, many_threads)
{
	struct ck_side *side = ck_side_new(CHUNKS);
	pthread_t threads[THREADS];
	void *failed;

	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(
			pthread_create(&threads[i], NULL, answer_all, side), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &failed);
		cr_expect_null(failed);
	}
	ck_side_free(side);
}
