/* SPDX-License-Identifier: Apache-2.0 */
#include "core/assemble/cut.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

/* One axis of @nr ranks, which share @parts of dimension @dim. */
static int cut_parts(struct ck_cut *c, const uint64_t *shard, unsigned dim,
		     const uint64_t *parts, unsigned nr_parts, uint32_t at,
		     uint32_t nr)
{
	struct ck_placement p = { 0 };
	struct ck_mesh_step *s;

	ck_mesh_add_axis(&p.mesh, nr, nr);
	s = ck_placement_shard(&p, dim, 0, CK_SIZES_EVEN);
	s->blocks = nr_parts;
	memcpy(s->weight, parts, nr_parts * sizeof(*parts));
	return ck_cut_placed(c, &p, at, shard, 2, NULL);
}

/* Rank r of a fused layer, row by row, against plain loops. */
Test(cut, parts_are_shared_one_by_one)
{
	const uint64_t parts[] = { 6, 2, 4 }, shard[] = { 6, 3 };
	const uint64_t first[] = { 0, 6, 8 };

	for (uint32_t at = 0; at < 2; at++) {
		struct ck_cut c;
		uint64_t row = 0;

		cr_assert_eq(cut_parts(&c, shard, 0, parts, 3, at, 2), 0);
		cr_expect_eq(c.whole[0], 12);
		cr_expect_eq(c.whole[1], 3);
		cr_assert_eq(c.pieces.nr, 3);
		for (unsigned i = 0; i < 3; i++) {
			const struct ck_cut_piece *p = &c.pieces.v[i];

			cr_expect_eq(p->len[0], parts[i] / 2);
			cr_expect_eq(p->len[1], 3);
			cr_expect_eq(p->whole[0], first[i] + at * parts[i] / 2);
			cr_expect_eq(p->shard[0], row);
			row += p->len[0];
		}
		ck_cut_free(&c);
	}
}

Test(cut, parts_that_do_not_fit)
{
	const uint64_t odd[] = { 5, 7 }, few[] = { 4, 4 }, shard[] = { 6, 3 };
	const uint64_t huge[] = { UINT64_MAX - 1, 4 };
	struct ck_cut c;

	cr_expect_eq(cut_parts(&c, shard, 0, odd, 2, 0, 2), -EINVAL);
	ck_cut_free(&c);
	cr_expect_eq(cut_parts(&c, shard, 0, few, 2, 0, 2), -EINVAL);
	ck_cut_free(&c);
	cr_expect_eq(cut_parts(&c, shard, 2, few, 2, 0, 2), -EINVAL);
	ck_cut_free(&c);
	cr_expect_eq(cut_parts(&c, shard, 0, huge, 2, 0, 2), -EINVAL);
	ck_cut_free(&c);
}

/* Marks what the pieces of "t" have of a whole of 6 x 8; off counts elements. */
static void mark(const struct ck_asm *a, int *whole)
{
	const struct ck_asm_piece *p;

	ck_asm_each_piece(p, a, &a->tensors.v[0])
	{
		uint64_t nr = p->flat[1] - p->flat[0];

		cr_assert(p->is_flat && p->stored && p->box->rank == 2);
		for (uint64_t i = 0; i < nr; i++) {
			uint64_t at = p->flat[0] + i, w = p->box->len[1];
			uint64_t row = p->box->start[0] + at / w;
			uint64_t column = p->box->start[1] + at % w;

			cr_expect_eq(whole[row * 8 + column], -1);
			whole[row * 8 + column] = (int)(p->x.off + i);
		}
	}
}

/* Columns 0, 1 and 4, 5 of each row, from a vector of them. */
Test(cut, stretches_of_a_shard)
{
	const uint64_t shape[] = { 6, 4 }, halves[] = { 4, 4 };

	for (uint64_t lo = 0; lo <= 24; lo++)
		for (uint64_t hi = lo; hi <= 24; hi++) {
			const struct ck_asm_run run = { 0,
							24,
							{ .dtype = CK_DT_U8 } };
			ck_auto_asm struct ck_asm a = { 0 };
			ck_auto_cut struct ck_cut c = { 0 };
			struct ck_asm_tensor *t = ck_asm_tensor(&a, 0, "t", 1);
			uint32_t file = ck_asm_file(&a, "f", 0);
			int whole[48];

			memset(whole, -1, sizeof(whole));
			cr_assert(t && file != CK_NONE);
			cr_assert_eq(cut_parts(&c, shape, 1, halves, 2, 0, 2),
				     0);
			cr_assert_eq(ck_cut_give_run(&c, &a, t, file, lo, hi,
						     lo, &run, NULL),
				     0);
			mark(&a, whole);
			for (uint64_t i = 0; i < 48; i++) {
				uint64_t k = i % 8, at = i / 8 * 4 + k % 2;
				bool has = k % 4 < 2;

				at += k < 4 ? 0 : 2;
				cr_expect_eq(whole[i],
					     has && at >= lo && at < hi ?
						     (int)at :
						     -1);
			}
		}
}

Test(cut, views_are_boxes)
{
	const struct ck_cut_view whole = { 9, { 8, 1 } };
	const struct ck_cut_view shard = { 2, { 4, 1 } };
	const struct ck_cut_view wide = { 2, { 5, 1 } }, far = { 3, { 4, 1 } };
	const uint64_t len[] = { 3, 2 };
	ck_auto_cut struct ck_cut c = { .rank = 2,
					.whole = { 6, 8 },
					.shard = { 6, 4 } };
	struct ck_err err;

	cr_assert_eq(ck_cut_add_views(&c, len, &whole, &shard, &err), 0);
	cr_expect_eq(c.pieces.v[0].whole[0], 1);
	cr_expect_eq(c.pieces.v[0].whole[1], 1);
	cr_expect_eq(c.pieces.v[0].shard[0], 0);
	cr_expect_eq(c.pieces.v[0].shard[1], 2);
	cr_expect_eq(ck_cut_add_views(&c, len, &whole, &wide, &err), -EINVAL);
	cr_expect_eq(ck_cut_add_views(&c, len, &whole, &far, &err), -EINVAL);
}
