/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO's partitions, against a writer that deals elements one by one. */
#include "core/base/check.h"
#include "core/mesh/mesh.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARAMS 12
#define NONE UINT32_MAX

static uint64_t seed = 0x2545f4914f6cdd1d;

static uint64_t pick(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

/* Which element of which parameter each place of a rank's vector holds. */
struct dealt {
	uint32_t *what; /* nr_ranks x size: parameter << 16 | element */
	uint64_t nr_ranks, size;
};

static void empty(struct dealt *d, uint64_t nr_ranks, uint64_t size)
{
	d->nr_ranks = nr_ranks;
	d->size = size;
	d->what = malloc((nr_ranks * size + 1) * sizeof(*d->what));
	for (uint64_t i = 0; i < nr_ranks * size; i++)
		d->what[i] = NONE;
}

/* Every element must be in exactly the places that the writer chose. */
static void compare(const struct dealt *got, const struct dealt *want)
{
	cr_assert_eq(got->size, want->size);
	for (uint64_t i = 0; i < want->nr_ranks * want->size; i++)
		cr_assert_eq(got->what[i], want->what[i],
			     "rank %lu, place %lu: %x, expected %x",
			     (unsigned long)(i / want->size),
			     (unsigned long)(i % want->size), got->what[i],
			     want->what[i]);
}

/* Stages 1, 2: one element after another over all ranks, padding after some. */
static void stage12(void)
{
	uint64_t nr = 1 + pick(MAX_PARAMS), ranks = 1 + pick(9);
	uint64_t numel[MAX_PARAMS], pad[MAX_PARAMS], pos[MAX_PARAMS], all = 0;
	struct dealt want, got;

	for (uint64_t i = 0; i < nr; i++) {
		numel[i] = pick(4) ? 1 + pick(40) : pick(3);
		pad[i] = pick(3) ? 0 : pick(5);
		all += numel[i] + pad[i];
	}
	empty(&want, ranks, CK_DIV_UP(all, ranks) + pick(3));
	empty(&got, ranks, want.size);
	all = 0;
	for (uint64_t i = 0; i < nr; i++) {
		pos[i] = all;
		for (uint64_t e = 0; e < numel[i]; e++)
			want.what[all++] = (uint32_t)(i << 16 | e);
		all += pad[i];
	}
	for (uint64_t i = 0; i < nr; i++)
		for (uint64_t r = 0; r < ranks; r++) {
			uint64_t lo, hi, at;

			if (!ck_split_meet(want.size, r, pos[i], numel[i], &lo,
					   &hi, &at))
				continue;
			cr_assert(lo < hi && hi <= numel[i]);
			for (uint64_t e = lo; e < hi; e++)
				got.what[r * want.size + at + (e - lo)] =
					(uint32_t)(i << 16 | e);
		}
	compare(&got, &want);
	free(want.what);
	free(got.what);
}

/* As the reader cuts a parameter in stage 3. */
static void piece3(uint64_t numel, uint64_t r, uint64_t nr, uint64_t *lo,
		   uint64_t *hi)
{
	const struct ck_split each = { .how = CK_SIZES_CEIL, .nr = nr };
	uint64_t len;

	cr_assert_eq(ck_split_part(&each, numel, r, lo, &len, NULL), 0);
	*hi = *lo + len;
}

/* Stage 3: each parameter padded to a multiple of the ranks, and dealt out. */
static void stage3(void)
{
	uint64_t nr = 1 + pick(MAX_PARAMS), ranks = 1 + pick(9);
	uint64_t numel[MAX_PARAMS], size = 0, at = 0;
	struct dealt want, got;

	for (uint64_t i = 0; i < nr; i++) {
		numel[i] = pick(4) ? 1 + pick(40) : pick(3);
		size += CK_DIV_UP(numel[i], ranks);
	}
	empty(&want, ranks, size);
	empty(&got, ranks, size);
	for (uint64_t i = 0; i < nr; i++) {
		uint64_t each = 0;

		while (each * ranks < numel[i])
			each++;
		for (uint64_t e = 0; e < numel[i]; e++)
			want.what[e / each * size + at + e % each] =
				(uint32_t)(i << 16 | e);
		for (uint64_t r = 0; r < ranks; r++) {
			uint64_t lo, hi;

			piece3(numel[i], r, ranks, &lo, &hi);
			cr_assert(lo <= hi && hi <= numel[i]);
			for (uint64_t e = lo; e < hi; e++)
				got.what[r * size + at + (e - lo)] =
					(uint32_t)(i << 16 | e);
		}
		at += each;
	}
	compare(&got, &want);
	free(want.what);
	free(got.what);
}

Test(partition, one_vector_cut_into_equal_partitions)
{
	for (int i = 0; i < 3000; i++)
		stage12();
}

Test(partition, each_parameter_dealt_to_all_ranks)
{
	for (int i = 0; i < 3000; i++)
		stage3();
}

/* Dealt one by one to each rank's own list; the lists follow each other. */
Test(partition, round_robin)
{
	for (uint64_t nr = 0; nr < 40; nr++)
		for (uint64_t ranks = 1; ranks < 12; ranks++) {
			uint64_t place = 0;

			for (uint64_t r = 0; r < ranks; r++)
				for (uint64_t i = r; i < nr; i += ranks)
					cr_assert_eq(
						ck_split_dealt(i, nr, ranks),
						place++);
			cr_assert_eq(place, nr);
		}
}

Test(partition, large_numbers)
{
	uint64_t lo, hi, at;

	cr_assert(ck_split_meet(CK_SIZE_MAX / 2 + 3, 1, CK_SIZE_MAX / 2, 10,
				&lo, &hi, &at));
	cr_expect(lo == 3 && hi == 10 && at == 0);
	piece3(CK_SIZE_MAX, 6, 7, &lo, &hi);
	cr_expect_eq(hi, CK_SIZE_MAX);
	cr_expect_eq(lo, CK_DIV_UP(CK_SIZE_MAX, 7) * 6);
	piece3(2, 7, 8, &lo, &hi);
	cr_expect_eq(lo, hi);
}
