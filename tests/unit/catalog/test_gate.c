/* SPDX-License-Identifier: Apache-2.0 */
/* What ck_builder_add() refuses, and what it lets through damaged. */
#include "tests/unit/catalog/kit.h"

#include "core/base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

KIT_SUITE(catalog_gate);

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

/* refuses(WHY, CHANGE...): a good part, changed so, in a catalog of its own. */
#define refuses(why, ...)                               \
	do {                                            \
		struct ck_part p = kit_part("w", file); \
		__VA_ARGS__;                            \
		refused(&p, why);                       \
		tear_down();                            \
		set_up();                               \
	} while (0)

Test(catalog_gate, dtype_shape_and_grid)
{
	refuses("dtype unknown has no whole number of bytes",
		p.dtype = CK_DT_NONE);
	refuses("dtype number 200 is unknown", p.dtype = 200);
	refuses("dtype float6_e2m3fn has no whole number of bytes",
		p.dtype = CK_DT_F6_E2M3);
	refuses("stored as bfloat16, of 2 bytes, where float32 has 4",
		p.stored = CK_DT_BF16);
	refuses("shape [4294967296, 4294967296] makes 2^62 bytes or more",
		p.shape = DIMS(UINT64_C(1) << 32, UINT64_C(1) << 32));
	refuses("shape [1073741824, 1073741824] makes 2^62 bytes or more",
		p.shape = DIMS(UINT64_C(1) << 30, UINT64_C(1) << 30));
	refuses("grid [8, 4] is no refinement of shape [4, 8]", p.grid_rank = 2,
		p.grid = DIMS(8, 4));
	refuses("grid [2, 2, 4] is no refinement of shape [4, 8]",
		p.grid_rank = 3, p.grid = DIMS(2, 2, 4));
	refuses("grid [18446744073709551615, 18446744073709551615, 8] is "
		"no refinement of shape [4, 8]",
		p.grid_rank = 3, p.grid = DIMS(UINT64_MAX, UINT64_MAX, 8));
}

Test(catalog_gate, box_padding_and_flat_range)
{
	refuses("a part has [4, +5) of axis 1, which has 8",
		p.start = DIMS(0, 4), p.len = DIMS(4, 5));
	refuses("a part has [18446744073709551615, +2) of axis 1, which has 8",
		p.start = DIMS(2, UINT64_MAX), p.len = DIMS(1, 2));
	refuses("a part has [5, +0) of axis 0, which has 4",
		p.start = DIMS(5, 0));
	refuses("a part has 8 of axis 1, of which 7 are stored",
		p.full_len = DIMS(4, 7));
	refuses("a part is stored as 2^62 elements or more",
		p.full_len = DIMS(UINT64_C(1) << 32, UINT64_C(1) << 32));
	refuses("a part has elements [5, 3) of a box of 32",
		p.flat = DIMS(5, 3));
	refuses("a part has elements [0, 33) of a box of 32",
		p.flat = DIMS(0, 33));
}

Test(catalog_gate, strides_source_and_transform)
{
	refuses("the strides of a part at byte 24 reach 4 bytes before "
		"the file",
		p.stride = STEPS(8, -1), p.off = 24);
	refuses("the strides of a part reach past 2^62",
		p.stride = STEPS(INT64_MAX, 1));
	refuses("the strides of a part reach past 2^62",
		p.stride = STEPS(INT64_MAX, INT64_MIN));
	refuses("a part at byte 18446744073709551612 ends past 2^62",
		p.off = UINT64_MAX - 3);
	refuses("a part at byte 1 ends past 2^62", p.off = 1,
		p.item_len = UINT64_MAX);
	refuses("a part is in no source", p.src = 77);
	refuses("transform number 9 is unknown", p.xform = 9);
	refuses("dtype float32 has no conjugate", p.xform = CK_XF_CONJ);
	refuses("it is stored as partial sums, which are not added up",
		p.op = CK_OP_ADD);
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

Test(catalog_gate, strides_backwards_to_the_first_byte)
{
	struct ck_part p = kit_part("w", file);

	p.stride = STEPS(8, -1);
	p.off = 28;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
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
