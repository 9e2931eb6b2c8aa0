/* SPDX-License-Identifier: Apache-2.0 */
/* Segments that were worked out by hand. */
#include "core/geom/cursor.h"
#include "tests/lib/imagekit.h"

#include <criterion/criterion.h>
#include <errno.h>

#define DIMS(...) ((const uint64_t[]){ __VA_ARGS__ })
#define STEPS(...) ((const int64_t[]){ __VA_ARGS__ })

static void expect_seg(struct ck_cursor *cur, uint32_t chunk, uint64_t dst,
		       uint64_t src, uint64_t run, unsigned nax)
{
	struct ck_seg s;

	cr_assert(ck_cursor_next(cur, &s));
	cr_expect_eq(s.kind, CK_SEG_COPY);
	cr_expect_eq(s.chunk, chunk);
	cr_expect_eq(s.dst, dst, "dst %lu", s.dst);
	cr_expect_eq(s.src_off, src, "src %lu", s.src_off);
	cr_expect_eq(s.run, run, "run %lu", s.run);
	cr_expect_eq(s.nax, nax);
}

/* [4, 6] of float32 in two columns of three, each in a file at 100. */
static struct ck_catalog two_columns(struct imagekit *k)
{
	for (uint64_t i = 0; i < 2; i++) {
		struct ik_chunk c = { .rank = 2,
				      .start = DIMS(0, 3 * i),
				      .len = DIMS(4, 3),
				      .off = 100 };

		c.src = ik_src(k, CK_SRC_FILE, i ? "b" : "a", 148);
		ik_chunk(k, &c);
	}
	ik_tensor(k, &(struct ik_tensor){ .dtype = CK_DT_F32,
					  .rank = 2,
					  .shape = DIMS(4, 6),
					  .nr = 2,
					  .nr_all = 2,
					  .covered = 24 });
	return ik_image(k);
}

Test(segments, whole_tensor_is_one_a_column)
{
	struct imagekit k = { 0 };
	struct ck_catalog img = two_columns(&k);
	struct ck_cursor cur;
	struct ck_seg s;

	ck_cursor_init(&cur, &img, NULL, img.tensors, 0, 96);
	expect_seg(&cur, 0, 0, 100, 12, 1);
	cr_assert(ck_cursor_next(&cur, &s));
	cr_expect_eq(s.chunk, 1);
	cr_expect_eq(s.dst, 12);
	cr_expect_eq(s.src_off, 100);
	cr_expect_eq(s.nbytes, 48);
	cr_expect_eq(s.ax[0].n, 4);
	cr_expect_eq(s.ax[0].src, 12);
	cr_expect_eq(s.ax[0].dst, 24);
	cr_expect_not(ck_cursor_next(&cur, &s));
	ik_free(&k);
}

/* Byte 10 is in element 2 of row 0; byte 29 in element 1 of row 1. */
Test(segments, ends_inside_elements)
{
	struct imagekit k = { 0 };
	struct ck_catalog img = two_columns(&k);
	struct ck_cursor cur;
	struct ck_seg s;

	ck_cursor_init(&cur, &img, NULL, img.tensors, 10, 19);
	expect_seg(&cur, 0, 0, 110, 2, 0);
	expect_seg(&cur, 1, 2, 100, 12, 0);
	expect_seg(&cur, 0, 14, 112, 5, 0);
	cr_expect_not(ck_cursor_next(&cur, &s));
	ik_free(&k);
}

Test(segments, part_of_an_element_that_is_transformed)
{
	struct imagekit k = { 0 };
	struct ck_catalog img;
	struct ck_cursor cur;
	struct ck_seg s;

	ik_src(&k, CK_SRC_FILE, "a", 16);
	ik_chunk(&k, &(struct ik_chunk){ .rank = 1,
					 .start = DIMS(0),
					 .len = DIMS(4),
					 .xform = CK_XF_BYTESWAP });
	ik_tensor(&k, &(struct ik_tensor){ .dtype = CK_DT_F32,
					   .rank = 1,
					   .shape = DIMS(4),
					   .nr = 1,
					   .nr_all = 1,
					   .covered = 4 });
	img = ik_image(&k);
	ck_cursor_init(&cur, &img, NULL, img.tensors, 3, 8);
	cr_assert(ck_cursor_next(&cur, &s));
	cr_expect_eq(s.skip, 3);
	cr_expect_eq(s.src_off, 3);
	cr_expect_eq(s.run, 1);
	cr_assert(ck_cursor_next(&cur, &s));
	cr_expect_eq(s.skip, 0);
	cr_expect_eq(s.run, 4);
	cr_assert(ck_cursor_next(&cur, &s));
	cr_expect_eq(s.skip, 0);
	cr_expect_eq(s.src_off, 8);
	cr_expect_eq(s.run, 3);
	cr_expect_not(ck_cursor_next(&cur, &s));
	ik_free(&k);
}

/* [3, 4] of bfloat16 that lies in its file as [4, 3]. */
Test(segments, transposed)
{
	struct imagekit k = { 0 };
	struct ck_catalog img;
	struct ck_cursor cur;
	struct ck_seg s;

	ik_src(&k, CK_SRC_FILE, "a", 24);
	ik_chunk(&k, &(struct ik_chunk){ .rank = 2,
					 .start = DIMS(0, 0),
					 .len = DIMS(3, 4),
					 .stride = STEPS(1, 3) });
	ik_tensor(&k, &(struct ik_tensor){ .dtype = CK_DT_BF16,
					   .rank = 2,
					   .shape = DIMS(3, 4),
					   .nr = 1,
					   .nr_all = 1,
					   .covered = 12 });
	img = ik_image(&k);
	ck_cursor_init(&cur, &img, NULL, img.tensors, 0, 24);
	cr_assert(ck_cursor_next(&cur, &s));
	cr_expect_eq(s.run, 2);
	cr_expect_eq(s.nax, 2);
	cr_expect_eq(s.ax[0].src, 2);
	cr_expect_eq(s.ax[0].dst, 8);
	cr_expect_eq(s.ax[1].src, 6);
	cr_expect_eq(s.ax[1].dst, 2);
	cr_expect_not(ck_cursor_next(&cur, &s));
	ik_free(&k);
}

/*
 * [12, 5] of uint8 seen as [2, 3, 2, 5], axis 1 of the grid in two files:
 * rows 0-3 and 6-9, and rows 4-5 and 10-11.  Rows 3 to 7, columns 1 and 2.
 */
Test(segments, box_through_a_fused_axis)
{
	struct imagekit k = { 0 };
	const uint64_t grid[] = { 2, 3, 2, 5 };
	struct ck_box box = { 2, { 3, 1 }, { 5, 2 } };
	struct ck_catalog img;
	struct ck_cursor cur;
	struct ck_seg s;

	for (uint64_t i = 0; i < 2; i++) {
		struct ik_chunk c = { .rank = 4,
				      .start = DIMS(0, 2 * i, 0, 0),
				      .len = DIMS(2, 2 - i, 2, 5) };

		c.src = ik_src(&k, CK_SRC_FILE, i ? "b" : "a", 40);
		ik_chunk(&k, &c);
	}
	ik_tensor(&k, &(struct ik_tensor){ .dtype = CK_DT_U8,
					   .rank = 2,
					   .shape = DIMS(12, 5),
					   .grid = grid,
					   .grid_rank = 4,
					   .nr = 2,
					   .nr_all = 2,
					   .covered = 60 });
	img = ik_image(&k);
	ck_cursor_init_box(&cur, &img, NULL, img.tensors, &box);
	expect_seg(&cur, 0, 0, 16, 2, 0); /* row 3 */
	expect_seg(&cur, 1, 2, 1, 2, 1); /* rows 4, 5 */
	expect_seg(&cur, 0, 6, 21, 2, 1); /* rows 6, 7: its fifth, sixth */
	cr_expect_not(ck_cursor_next(&cur, &s));
	ik_free(&k);
}

/* The file ends after 10 of 24 bytes. */
Test(segments, torn)
{
	struct imagekit k = { 0 };
	struct ck_catalog img;
	struct ck_cursor cur;
	struct ck_seg s;

	ik_src(&k, CK_SRC_FILE, "a", 10);
	ik_chunk(&k, &(struct ik_chunk){ .rank = 1,
					 .start = DIMS(0),
					 .len = DIMS(24),
					 .state = CK_TORN });
	ik_tensor(&k, &(struct ik_tensor){ .dtype = CK_DT_U8,
					   .rank = 1,
					   .shape = DIMS(24),
					   .nr = 1,
					   .nr_all = 1,
					   .covered = 24 });
	img = ik_image(&k);
	ck_cursor_init(&cur, &img, NULL, img.tensors, 4, 6);
	expect_seg(&cur, 0, 0, 4, 6, 0);
	ck_cursor_init(&cur, &img, NULL, img.tensors, 4, 7);
	cr_assert(ck_cursor_next(&cur, &s));
	cr_expect_eq(s.kind, CK_SEG_ERROR);
	cr_expect_eq(s.err, EIO);
	cr_expect_eq(s.run, 7);
	ik_free(&k);
}
