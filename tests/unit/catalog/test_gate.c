/* SPDX-License-Identifier: Apache-2.0 */
/* What ck_builder_add() refuses, and what it lets through damaged. */
#include "tests/unit/catalog/kit.h"

#include "core/base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct kit k;
static uint32_t file;

static void set_up(void)
{
	k = kit_new();
	file = kit_file(&k, "a.bin", 1 << 20);
}

static void tear_down(void)
{
	kit_free(&k);
}

TestSuite(catalog_gate, .init = set_up, .fini = tear_down);

/* Adds @p: its tensor "w" must be gone for @why, "other" still there. */
static void refused(const struct ck_part *p, const char *why)
{
	struct ck_part other = kit_part("other", file);

	kit_add(&k, &other);
	kit_add(&k, p);
	cr_expect_eq(kit_find(&k, "w"), CK_NONE);
	cr_expect_str_eq(kit_reason(&k, "w"), why);
	cr_expect_eq(kit_tensor(&k, "other")->state, CK_OK);
	cr_expect_eq(k.img.nr_tensors, 1);
}

Test(catalog_gate, a_whole_part_is_served)
{
	struct ck_part p = kit_part("w", file);
	const struct ck_tensor *t;

	kit_add(&k, &p);
	t = kit_tensor(&k, "w");
	cr_expect_eq(t->size, 4 * 8 * 4);
	cr_expect_eq(t->covered, 32);
	cr_expect_eq(t->nr, 1);
	cr_expect_eq(t->nr_all, 1);
	cr_expect_eq(t->state, CK_OK);
	cr_expect_eq(t->dtype, CK_DT_F32);
	cr_expect_eq(t->newest, file);
	cr_expect_eq(t->index, CK_NONE);
	cr_expect_eq(k.img.nr_problems, 0);
	cr_expect_eq(k.img.chunks[t->first].next, CK_NONE);
}

Test(catalog_gate, dtype_unknown)
{
	struct ck_part p = kit_part("w", file);

	p.dtype = CK_DT_NONE;
	refused(&p, "dtype unknown has no whole number of bytes");
}

Test(catalog_gate, dtype_number_out_of_range)
{
	struct ck_part p = kit_part("w", file);

	p.dtype = 200;
	refused(&p, "dtype number 200 is unknown");
}

Test(catalog_gate, dtype_of_six_bits)
{
	struct ck_part p = kit_part("w", file);

	p.dtype = CK_DT_F6_E2M3;
	refused(&p, "dtype float6_e2m3fn has no whole number of bytes");
}

Test(catalog_gate, stored_dtype_of_another_size)
{
	struct ck_part p = kit_part("w", file);

	p.stored = CK_DT_BF16;
	refused(&p, "stored as bfloat16, of 2 bytes, where float32 has 4");
}

Test(catalog_gate, stored_dtype_of_the_same_size)
{
	struct ck_part p = kit_part("w", file);
	const struct ck_tensor *t;

	p.stored = CK_DT_I32;
	kit_add(&k, &p);
	t = kit_tensor(&k, "w");
	cr_expect_eq(k.img.layouts[k.img.chunks[t->first].layout].dtype,
		     CK_DT_I32);
}

Test(catalog_gate, rank_65)
{
	struct ck_part p = kit_part("w", file);
	uint64_t shape[65];

	for (unsigned d = 0; d < 65; d++)
		shape[d] = 1;
	p.rank = 65;
	p.shape = shape;
	refused(&p, "65 dimensions, of at most 64");
}

Test(catalog_gate, rank_64_is_served)
{
	struct ck_part p = kit_part("w", file);
	uint64_t shape[64];

	for (unsigned d = 0; d < 64; d++)
		shape[d] = d % 16 ? 1 : 2;
	p.rank = 64;
	p.shape = shape;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->size, 16 * 4);
}

Test(catalog_gate, shape_overflows)
{
	struct ck_part p = kit_part("w", file);

	p.shape = DIMS(UINT64_C(1) << 32, UINT64_C(1) << 32);
	refused(&p, "shape [4294967296, 4294967296] makes 2^62 bytes or more");
}

Test(catalog_gate, shape_of_2_to_62_bytes)
{
	struct ck_part p = kit_part("w", file);

	p.shape = DIMS(UINT64_C(1) << 30, UINT64_C(1) << 30);
	refused(&p, "shape [1073741824, 1073741824] makes 2^62 bytes or more");
}

Test(catalog_gate, grid_of_other_borders)
{
	struct ck_part p = kit_part("w", file);

	p.grid_rank = 2;
	p.grid = DIMS(8, 4);
	refused(&p, "grid [8, 4] is no refinement of shape [4, 8]");
}

Test(catalog_gate, grid_of_another_volume)
{
	struct ck_part p = kit_part("w", file);

	p.grid_rank = 3;
	p.grid = DIMS(2, 2, 4);
	refused(&p, "grid [2, 2, 4] is no refinement of shape [4, 8]");
}

Test(catalog_gate, grid_that_overflows)
{
	struct ck_part p = kit_part("w", file);

	p.grid_rank = 3;
	p.grid = DIMS(UINT64_MAX, UINT64_MAX, 8);
	refused(&p, "grid [18446744073709551615, 18446744073709551615, 8] is "
		    "no refinement of shape [4, 8]");
}

Test(catalog_gate, a_refined_grid_is_served)
{
	struct ck_part p = kit_part("w", file);
	const struct ck_tensor *t;

	p.grid_rank = 4;
	p.grid = DIMS(2, 2, 1, 8);
	kit_add(&k, &p);
	t = kit_tensor(&k, "w");
	cr_expect_eq(t->grid_rank, 4);
	cr_expect_eq(t->rank, 2);
	cr_expect_eq(t->covered, 32);
}

Test(catalog_gate, box_outside)
{
	struct ck_part p = kit_part("w", file);

	p.start = DIMS(0, 4);
	p.len = DIMS(4, 5);
	refused(&p, "a part has [4, +5) of axis 1, which has 8");
}

Test(catalog_gate, box_that_wraps)
{
	struct ck_part p = kit_part("w", file);

	p.start = DIMS(2, UINT64_MAX);
	p.len = DIMS(1, 2);
	refused(&p,
		"a part has [18446744073709551615, +2) of axis 1, which has 8");
}

Test(catalog_gate, box_that_begins_outside_without_a_length)
{
	struct ck_part p = kit_part("w", file);

	p.start = DIMS(5, 0);
	refused(&p, "a part has [5, +0) of axis 0, which has 4");
}

Test(catalog_gate, stored_shorter_than_served)
{
	struct ck_part p = kit_part("w", file);

	p.full_len = DIMS(4, 7);
	refused(&p, "a part has 8 of axis 1, of which 7 are stored");
}

Test(catalog_gate, padding_makes_strides)
{
	struct ck_part p = kit_part("w", file);
	const struct ck_tensor *t;
	const struct ck_layout *l;

	p.full_len = DIMS(5, 10);
	kit_add(&k, &p);
	t = kit_tensor(&k, "w");
	l = &k.img.layouts[k.img.chunks[t->first].layout];
	cr_expect_eq(k.img.dims[l->stride], 10);
	cr_expect_eq(k.img.dims[l->stride + 1], 1);
}

Test(catalog_gate, padding_that_overflows)
{
	struct ck_part p = kit_part("w", file);

	p.full_len = DIMS(UINT64_C(1) << 32, UINT64_C(1) << 32);
	refused(&p, "a part is stored as 2^62 elements or more");
}

Test(catalog_gate, flat_reversed)
{
	struct ck_part p = kit_part("w", file);

	p.flat = DIMS(5, 3);
	refused(&p, "a part has elements [5, 3) of a box of 32");
}

Test(catalog_gate, flat_outside)
{
	struct ck_part p = kit_part("w", file);

	p.flat = DIMS(0, 33);
	refused(&p, "a part has elements [0, 33) of a box of 32");
}

Test(catalog_gate, strides_before_the_file)
{
	struct ck_part p = kit_part("w", file);

	p.stride = STEPS(8, -1);
	p.off = 24;
	refused(&p, "the strides of a part at byte 24 reach 4 bytes before "
		    "the file");
}

Test(catalog_gate, strides_backwards_to_the_first_byte)
{
	struct ck_part p = kit_part("w", file);

	p.stride = STEPS(8, -1);
	p.off = 28;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
}

Test(catalog_gate, strides_that_overflow)
{
	struct ck_part p = kit_part("w", file);

	p.stride = STEPS(INT64_MAX, 1);
	refused(&p, "the strides of a part reach past 2^62");
}

Test(catalog_gate, strides_that_cancel_an_overflow)
{
	struct ck_part p = kit_part("w", file);

	p.stride = STEPS(INT64_MAX, INT64_MIN);
	refused(&p, "the strides of a part reach past 2^62");
}

Test(catalog_gate, offset_that_overflows)
{
	struct ck_part p = kit_part("w", file);

	p.off = UINT64_MAX - 3;
	refused(&p, "a part at byte 18446744073709551612 ends past 2^62");
}

Test(catalog_gate, item_that_overflows)
{
	struct ck_part p = kit_part("w", file);

	p.off = 1;
	p.item_len = UINT64_MAX;
	refused(&p, "a part at byte 1 ends past 2^62");
}

Test(catalog_gate, no_source)
{
	struct ck_part p = kit_part("w", 77);

	refused(&p, "a part is in no source");
}

Test(catalog_gate, unknown_transform)
{
	struct ck_part p = kit_part("w", file);

	p.xform = 9;
	refused(&p, "transform number 9 is unknown");
}

Test(catalog_gate, conjugate_of_a_real_number)
{
	struct ck_part p = kit_part("w", file);

	p.xform = CK_XF_CONJ;
	refused(&p, "dtype float32 has no conjugate");
}

Test(catalog_gate, partial_sum)
{
	struct ck_part p = kit_part("w", file);

	p.op = CK_OP_ADD;
	refused(&p, "it is stored as partial sums, which are not added up");
}

Test(catalog_gate, dtypes_that_differ)
{
	struct ck_part p = kit_part("w", file);

	p.len = DIMS(2, 8);
	kit_add(&k, &p);
	p.start = DIMS(2, 0);
	p.dtype = CK_DT_I32;
	refused(&p, "dtype int32 in a.bin, float32 before");
}

Test(catalog_gate, shapes_that_differ)
{
	struct ck_part p = kit_part("w", file);

	kit_add(&k, &p);
	p.shape = DIMS(8, 4);
	refused(&p, "shape in a.bin: [8, 4], before: [4, 8]");
}

Test(catalog_gate, ranks_that_differ)
{
	struct ck_part p = kit_part("w", file);

	kit_add(&k, &p);
	p.rank = 1;
	refused(&p, "shape in a.bin: [4], before: [4, 8]");
}

Test(catalog_gate, grids_that_differ)
{
	struct ck_part p = kit_part("w", file);

	p.len = DIMS(2, 8);
	kit_add(&k, &p);
	p.grid_rank = 3;
	p.grid = DIMS(2, 2, 8);
	p.start = p.len = NULL;
	refused(&p, "grid in a.bin: [2, 2, 8], before: [4, 8]");
}

Test(catalog_gate, a_declared_tensor_takes_the_grid_of_its_part)
{
	struct ck_part p = kit_part("w", file);

	cr_assert_eq(ck_builder_declare(k.b, &p, &k.err), 0);
	p.grid_rank = 3;
	p.grid = DIMS(2, 2, 8);
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->grid_rank, 3);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
}

Test(catalog_gate, nul_in_a_name)
{
	struct ck_part p = kit_part("w", file), other = kit_part("w\0x", file);

	other.name_len = 3;
	kit_add(&k, &p);
	kit_add(&k, &other);
	kit_add(&k, &other);
	kit_image(&k);
	cr_expect_eq(k.img.nr_tensors, 1);
	cr_expect_eq(k.img.nr_problems, 1);
	cr_expect_str_eq(kit_reason(&k, "w"), "its name has a NUL byte in it");
}

Test(catalog_gate, name_longer_than_64_kib)
{
	struct ck_part p = kit_part("w", file);
	size_t len = CK_MAX_NAME + 1;
	char *name = malloc(len);

	memset(name, 'n', len);
	p.name = name;
	p.name_len = len;
	kit_add(&k, &p);
	kit_add(&k, &p);
	p.name_len--;
	kit_add(&k, &p);
	kit_image(&k);
	cr_expect_eq(k.img.nr_tensors, 1);
	cr_expect_eq(k.img.nr_problems, 1);
	cr_expect_str_eq(ck_catalog_str(&k.img, k.img.problems[0].reason, NULL),
			 "its name has 65537 bytes, of at most 65536");
	free(name);
}

Test(catalog_gate, refused_by_the_reader)
{
	struct ck_part p = kit_part("w", file);

	kit_add(&k, &p);
	cr_assert_eq(ck_builder_refuse(k.b, 0, "w", 1, &k.err, "no %s", "way"),
		     0);
	refused(&p, "no way");
}

Test(catalog_gate, layouts_are_shared)
{
	struct ck_part p = kit_part("w", file);
	char name[16];

	for (unsigned i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "w%u", i);
		p.name = name;
		p.name_len = strlen(name);
		p.off = i;
		kit_add(&k, &p);
	}
	kit_image(&k);
	cr_expect_eq(k.img.nr_tensors, 100);
	cr_expect_eq(k.img.nr_layouts, 1);
	cr_expect_eq(k.img.tensors[0].shape, k.img.tensors[99].shape);
}
