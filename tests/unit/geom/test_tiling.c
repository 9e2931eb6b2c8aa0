/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/check.h"
#include "core/geom/tiling.h"
#include "tests/lib/imagekit.h"
#include "tests/lib/boxes.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t rnd(unsigned *seed, uint64_t n)
{
	return (uint64_t)rand_r(seed) % n;
}

/* Boxes anywhere, some empty, some flat: the tree must not lose one. */
static void add_cells(struct imagekit *k, unsigned *seed, unsigned rank,
		      uint32_t nr)
{
	uint32_t src = ik_src(k, CK_SRC_FILE, "f", 0);

	for (uint32_t i = 0; i < nr; i++) {
		uint64_t start[8], len[8], flat[2], volume = 1;
		struct ik_chunk c = {
			.rank = rank, .start = start, .len = len, .src = src
		};

		for (unsigned d = 0; d < rank; d++) {
			start[d] = rnd(seed, 40);
			len[d] = rnd(seed, 7);
			volume *= len[d];
		}
		flat[0] = rnd(seed, volume + 1);
		flat[1] = flat[0] + rnd(seed, volume - flat[0] + 1);
		if (rnd(seed, 4) == 0)
			c.flat = flat;
		ik_chunk(k, &c);
	}
}

static bool touches(const struct ck_catalog *img, const struct ck_tensor *t,
		    uint32_t cell, const struct ck_box *want)
{
	struct ck_box box;

	ck_chunk_box(img, t->grid_rank, &img->chunks[cell], &box);
	return ck_box_volume(&box) && ck_box_meet(&box, want, &box);
}

static void compare_walk(const struct ck_catalog *img,
			 const struct ck_box *want)
{
	const struct ck_tensor *t = img->tensors;
	uint32_t cell, expect = t->first;
	struct ck_tiling w;

	ck_tiling_init(&w, img, t, want);
	while ((cell = ck_tiling_next(&w)) != CK_NONE) {
		cr_assert_geq(cell, expect, "stored order");
		for (; expect < cell; expect++)
			cr_assert_not(touches(img, t, expect, want));
		expect = cell + 1;
	}
	for (; expect < t->first + t->nr; expect++)
		cr_assert_not(touches(img, t, expect, want));
}

Test(tiling, walk_finds_what_a_scan_finds)
{
	unsigned seed = 7;

	for (int round = 0; round < 120; round++) {
		unsigned rank = 1 + (unsigned)rnd(&seed, 4);
		uint32_t nr = (uint32_t)rnd(&seed, round % 10 ? 60 : 5000);
		const uint64_t shape[8] = { 50, 50, 50, 50, 50 };
		struct ik_tensor t = { .dtype = CK_DT_U8,
				       .rank = rank,
				       .shape = shape,
				       .nr = nr,
				       .nr_all = nr };
		struct imagekit k = { 0 };
		struct ck_catalog img;

		add_cells(&k, &seed, rank, nr);
		ik_index(&k, ik_tensor(&k, &t));
		img = ik_image(&k);
		cr_assert_eq(img.tensors->index == CK_NONE, nr <= CK_FANOUT);
		for (int i = 0; i < 20; i++) {
			struct ck_box want = { .rank = rank };

			for (unsigned d = 0; d < rank; d++) {
				want.start[d] = rnd(&seed, 45);
				want.len[d] = 1 + rnd(&seed, i < 15 ? 5 : 45);
			}
			compare_walk(&img, &want);
		}
		ik_free(&k);
	}
}

Test(tiling, chunk_box_of_flat)
{
	const uint64_t shape[] = { 10, 4, 6 }, start[] = { 2, 1, 3 };
	const uint64_t len[] = { 5, 2, 3 };
	struct {
		uint64_t flat[2];
		struct ck_box box;
	} cases[] = {
		{ { 0, 30 }, { 3, { 2, 1, 3 }, { 5, 2, 3 } } },
		{ { 7, 9 }, { 3, { 3, 1, 4 }, { 1, 1, 2 } } },
		{ { 8, 10 }, { 3, { 3, 1, 3 }, { 1, 2, 3 } } },
		{ { 5, 25 }, { 3, { 2, 1, 3 }, { 5, 2, 3 } } },
		{ { 12, 18 }, { 3, { 4, 1, 3 }, { 1, 2, 3 } } },
	};
	struct ik_tensor t = { .dtype = CK_DT_U8, .rank = 3, .shape = shape };
	struct imagekit k = { 0 };
	struct ck_catalog img;

	for (size_t i = 0; i < CK_ARRAY_LEN(cases); i++)
		ik_chunk(&k, &(struct ik_chunk){ .rank = 3,
						 .start = start,
						 .len = len,
						 .flat = cases[i].flat });
	ik_tensor(&k, &t);
	img = ik_image(&k);
	for (size_t i = 0; i < CK_ARRAY_LEN(cases); i++) {
		struct ck_box box;

		ck_chunk_box(&img, img.tensors->grid_rank, &img.chunks[i],
			     &box);
		cr_expect(box_equal(&box, &cases[i].box), "case %zu", i);
	}
	ik_free(&k);
}

Test(tiling, levels)
{
	uint32_t l[CK_MAX_LEVELS];

	cr_expect_eq(ck_tiling_levels(0, l), 0);
	cr_expect_eq(ck_tiling_levels(16, l), 0);
	cr_expect_eq(ck_tiling_levels(17, l), 2);
	cr_expect_eq(l[0], 2);
	cr_expect_eq(l[1], 1);
	cr_expect_eq(ck_tiling_levels(256, l), 2);
	cr_expect_eq(ck_tiling_levels(257, l), 3);
	cr_expect_eq(ck_tiling_levels(UINT32_MAX, l), 8);
	cr_expect_eq(l[0], UINT32_C(1) << 28);
}

static double build_seconds(const struct ck_tiling_in *in, uint32_t *perm,
			    uint64_t *nodes)
{
	struct timespec a, b;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	ck_tiling_build(in, perm, nodes);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	return (double)(b.tv_sec - a.tv_sec) +
	       (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
}

/* Quadratic sorting would take hours here; the limit is generous. */
Test(tiling, a_million_cells)
{
	enum { NR = 1000000 };
	static const char *const order[] = { "sorted", "reversed", "random",
					     "equal", "organ pipe" };
	unsigned seed = 3;
	uint64_t *start = malloc(NR * 2 * sizeof(*start));
	uint64_t *end = malloc(NR * 2 * sizeof(*end));
	uint64_t *nodes = malloc(NR * sizeof(*nodes));
	uint32_t *perm = malloc(NR * sizeof(*perm));
	struct ck_tiling_in in = { 2, NR, start, end };

	for (unsigned kind = 0; kind < CK_ARRAY_LEN(order); kind++) {
		double took;

		for (uint64_t i = 0; i < NR; i++) {
			uint64_t at = kind == 0	 ? i :
				      kind == 1	 ? NR - i :
				      kind == 2	 ? rnd(&seed, NR) :
				      kind == 3	 ? i % 3 :
				      i < NR / 2 ? i :
						   NR - i;

			perm[i] = (uint32_t)i;
			start[2 * i] = at / 1000;
			start[2 * i + 1] = at % 1000;
			end[2 * i] = start[2 * i] + 1;
			end[2 * i + 1] = start[2 * i + 1] + 1;
		}
		took = build_seconds(&in, perm, nodes);
		cr_log_info("%s: %.3f s", order[kind], took);
		cr_expect_lt(took, 20.0, "%s", order[kind]);
	}
	free(start);
	free(end);
	free(nodes);
	free(perm);
}
