/* SPDX-License-Identifier: Apache-2.0 */
#include "core/geom/resolved.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

Test(resolved, each_kind_of_answer)
{
	const int64_t stride[] = { 1, -7, 0 };
	struct ck_place put = { .off = 12, .stride = stride, .xform = 2 }, got;
	struct ck_resolved *resolved = ck_resolved_new(5);

	cr_assert_eq(ck_resolved_get(resolved, 0, &got), CK_RESOLVED_UNKNOWN);
	cr_assert_eq(ck_resolved_put(resolved, 0, &put, 3), 0);
	put = (struct ck_place){ .off = (UINT64_C(1) << 62) - 1 };
	cr_assert_eq(ck_resolved_put(resolved, 1, &put, 3), 0);
	put = (struct ck_place){ .off = UINT64_C(1) << 62 };
	cr_assert_eq(ck_resolved_put(resolved, 2, &put, 3), 0);
	cr_assert_eq(ck_resolved_put_bad(resolved, 3, EBADMSG), 0);

	cr_assert_eq(ck_resolved_get(resolved, 0, &got), CK_RESOLVED_PLACED);
	cr_expect_eq(got.off, 12);
	cr_expect_eq(got.xform, 2);
	cr_expect_neq(got.stride, stride, "a copy");
	cr_expect_arr_eq(got.stride, stride, sizeof(stride));
	cr_assert_eq(ck_resolved_get(resolved, 1, &got), CK_RESOLVED_PLACED);
	cr_expect_eq(got.off, (UINT64_C(1) << 62) - 1);
	cr_expect_null(got.stride);
	cr_assert_eq(ck_resolved_get(resolved, 2, &got), CK_RESOLVED_PLACED);
	cr_expect_eq(got.off, UINT64_C(1) << 62);
	cr_expect_null(got.stride);
	cr_assert_eq(ck_resolved_get(resolved, 3, &got), CK_RESOLVED_BAD);
	cr_expect_eq(got.err, EBADMSG);
	cr_assert_eq(ck_resolved_get(resolved, 4, &got), CK_RESOLVED_UNKNOWN);
	ck_resolved_free(resolved);
}

Test(resolved, the_first_answer_stays)
{
	const int64_t stride[] = { 3 };
	struct ck_place place = { .off = 1 }, got;
	struct ck_resolved *resolved = ck_resolved_new(1);

	cr_assert_eq(ck_resolved_put(resolved, 0, &place, 1), 0);
	place = (struct ck_place){ .off = 2, .stride = stride };
	cr_assert_eq(ck_resolved_put(resolved, 0, &place, 1), 0);
	cr_assert_eq(ck_resolved_put_bad(resolved, 0, EIO), 0);
	cr_assert_eq(ck_resolved_get(resolved, 0, &got), CK_RESOLVED_PLACED);
	cr_expect_eq(got.off, 1);
	cr_expect_null(got.stride);
	ck_resolved_free(resolved);
}

struct forgetful {
	struct ck_resolved *resolved;
	unsigned asked, forgets; /* so often */
	int ret;
};

static int ask(void *ctx, uint32_t chunk, struct ck_err *err)
{
	const struct ck_place place = { .off = 5 };
	struct forgetful *f = ctx;

	if (f->ret)
		return ck_fail(err, -f->ret, "not now");
	ck_resolved_put(f->resolved, chunk, &place, 1);
	if (f->asked++ < f->forgets)
		ck_resolved_forget(f->resolved, chunk);
	return 0;
}

Test(resolved, who_is_asked)
{
	struct forgetful f = { .resolved = ck_resolved_new(2) };
	struct ck_err why = { 0 };
	struct ck_place got;

	cr_expect_eq(ck_resolved_find(f.resolved, 1, &got, &why),
		     CK_RESOLVED_UNKNOWN);
	cr_expect_eq(why.code, EIO);
	ck_resolved_by(f.resolved, ask, &f);
	f.ret = -EINTR;
	cr_expect_eq(ck_resolved_find(f.resolved, 1, &got, &why),
		     CK_RESOLVED_UNKNOWN);
	cr_expect_eq(why.code, EINTR);
	f.ret = 0;
	f.forgets = 3;
	cr_expect_eq(ck_resolved_find(f.resolved, 1, &got, &why),
		     CK_RESOLVED_PLACED);
	cr_expect_eq(got.off, 5u);
	cr_expect_eq(f.asked, 4u);
	cr_expect_eq(ck_resolved_find(f.resolved, 1, &got, NULL),
		     CK_RESOLVED_PLACED);
	cr_expect_eq(f.asked, 4u, "it is known");
	ck_resolved_forget(f.resolved, 1);
	f.forgets = UINT_MAX;
	cr_expect_eq(ck_resolved_find(f.resolved, 1, &got, NULL),
		     CK_RESOLVED_UNKNOWN);
	ck_resolved_free(f.resolved);
}

Test(resolved, a_table_of_none)
{
	struct ck_resolved *none = ck_resolved_new(0);

	cr_expect_not_null(none, "none is no lack of memory");
	ck_resolved_free(none);
	ck_resolved_free(NULL);
}

enum { CHUNKS = 2000, THREADS = 4 };

/* Every thread answers for every chunk; readers see whole records only. */
static void *answer_all(void *resolved)
{
	for (uint32_t i = 0; i < CHUNKS; i++) {
		const int64_t stride[] = { i, i + 1 };
		struct ck_place place = { .off = i, .stride = stride }, got;

		if (ck_resolved_put(resolved, i, &place, 2) ||
		    ck_resolved_get(resolved, i, &got) != CK_RESOLVED_PLACED ||
		    got.off != i || memcmp(got.stride, stride, sizeof(stride)))
			return resolved;
	}
	return NULL;
}

Test(resolved, many_threads)
{
	struct ck_resolved *resolved = ck_resolved_new(CHUNKS);
	pthread_t threads[THREADS];
	void *failed;

	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(
			pthread_create(&threads[i], NULL, answer_all, resolved),
			0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &failed);
		cr_expect_null(failed);
	}
	ck_resolved_free(resolved);
}
