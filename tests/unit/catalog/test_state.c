/* SPDX-License-Identifier: Apache-2.0 */
/* What the gate lets through: torn, missing, empty, flat parts. */
#include "tests/unit/catalog/kit.h"

KIT_SUITE(catalog_state);

Test(catalog_state, torn)
{
	struct ck_part p = kit_part("w", kit_file(&k, "short.bin", 100));
	const struct ck_problem *pr;

	p.off = 20;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_TORN);
	cr_expect_eq(k.img.chunks[0].state, CK_TORN);
	cr_expect_str_eq(kit_reason(&k, "w"), "48 bytes are past the end of "
					      "the file, which has 100");
	pr = &k.img.problems[0];
	cr_expect_eq(pr->off, 20);
	cr_expect_eq(pr->len, 128);
	cr_expect_eq(pr->severity, CK_ERROR);
	cr_expect_str_eq(ck_catalog_str(&k.img, pr->file, NULL), "short.bin");
}

Test(catalog_state, torn_wholly)
{
	struct ck_part p = kit_part("w", kit_file(&k, "short.bin", 100));

	p.off = 200;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_TORN);
	cr_expect_str_eq(kit_reason(&k, "w"), "128 bytes are past the end of "
					      "the file, which has 100");
}

Test(catalog_state, torn_by_its_strides)
{
	struct ck_part p = kit_part("w", kit_file(&k, "short.bin", 128));

	p.stride = STEPS(1, 4);
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
}

Test(catalog_state, the_last_byte_counts)
{
	struct ck_part p = kit_part("w", kit_file(&k, "short.bin", 127));

	p.stride = STEPS(1, 4);
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_TORN);
	cr_expect_str_eq(kit_reason(&k, "w"), "1 bytes are past the end of the "
					      "file, which has 127");
}

Test(catalog_state, deferred_is_checked_by_its_item)
{
	struct ck_part p = kit_part("w", kit_file(&k, "items", 1000));

	p.off = 10;
	p.item_len = 990;
	kit_add(&k, &p);
	p.name = "v";
	p.off = 11;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
	cr_expect_eq(kit_tensor(&k, "v")->state, CK_TORN);
	cr_expect_str_eq(kit_reason(&k, "v"), "1 bytes are past the end of the "
					      "file, which has 1000");
}

Test(catalog_state, missing_file)
{
	uint32_t src = kit_missing(&k, "gone.bin");
	struct ck_part p = kit_part("w", src);

	cr_expect_eq(kit_missing(&k, "gone.bin"), src);
	p.len = DIMS(2, 8);
	kit_add(&k, &p);
	p.start = DIMS(2, 0);
	p.off = 64;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_MISSING);
	cr_expect_eq(kit_tensor(&k, "w")->covered, 32);
	cr_expect_eq(kit_tensor(&k, "w")->newest, CK_NONE);
	cr_expect_eq(k.img.nr_problems, 2);
	cr_expect_str_eq(kit_reason(&k, NULL), "the file does not exist");
	cr_expect_str_eq(kit_reason(&k, "w"),
			 "128 of its 128 bytes are in this file, which cannot "
			 "be read");
	cr_expect_str_eq(ck_catalog_str(&k.img, k.img.problems[0].file, NULL),
			 "gone.bin");
}

Test(catalog_state, a_file_that_cannot_be_read)
{
	struct ck_part p = kit_part("w", 0);

	cr_assert_eq(ck_builder_file_lost(k.b, "locked.bin", "it is locked",
					  &p.src, &k.err),
		     0);
	p.start = DIMS(0, 0);
	p.len = DIMS(2, 8);
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_MISSING);
	cr_expect_str_eq(kit_reason(&k, NULL),
			 "the file cannot be read: it is locked");
}

Test(catalog_state, empty_boxes_drop_out)
{
	struct ck_part p = kit_part("w", file);

	p.len = DIMS(0, 8);
	kit_add(&k, &p);
	p.len = NULL;
	p.flat = DIMS(7, 7);
	kit_add(&k, &p);
	p.flat = NULL;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->nr_all, 1);
	cr_expect_eq(k.img.nr_problems, 0);
}

Test(catalog_state, a_tensor_without_elements)
{
	struct ck_part p = kit_part("w", file);

	p.shape = DIMS(0, UINT64_MAX);
	kit_add(&k, &p);
	p.name = "v";
	p.rank = 1;
	cr_assert_eq(ck_builder_declare(k.b, &p, &k.err), 0);
	cr_expect_eq(kit_tensor(&k, "w")->size, 0);
	cr_expect_eq(kit_tensor(&k, "w")->nr_all, 0);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
	cr_expect_eq(kit_tensor(&k, "v")->state, CK_OK);
	cr_expect_eq(k.img.nr_problems, 0);
}

Test(catalog_state, scalar)
{
	struct ck_part p = kit_part("w", file);

	p.rank = 0;
	p.shape = NULL;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->size, 4);
	cr_expect_eq(kit_tensor(&k, "w")->nr, 1);
}

Test(catalog_state, a_flat_range_that_is_a_box_becomes_one)
{
	struct ck_part p = kit_part("w", file);
	const struct ck_layout *l;
	ck_auto_str struct ck_str cells = { 0 };

	p.flat = DIMS(0, 16);
	kit_add(&k, &p);
	p.flat = DIMS(16, 32);
	p.off = 64;
	kit_add(&k, &p);
	cells = kit_cells(kit_image(&k), kit_tensor(&k, "w"));
	cr_expect_str_eq(cells.v, "[0:2, 0:8] [2:4, 0:8]");
	l = &k.img.layouts[k.img.chunks[0].layout];
	cr_expect_eq(l->flags, 0);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
}

Test(catalog_state, flat_ranges_stay_flat)
{
	struct ck_part p = kit_part("w", file);
	const struct ck_tensor *t;
	const struct ck_chunk *c;

	p.flat = DIMS(0, 13);
	kit_add(&k, &p);
	p.flat = DIMS(13, 32);
	p.off = 400;
	kit_add(&k, &p);
	t = kit_tensor(&k, "w");
	cr_expect_eq(t->state, CK_OK);
	cr_expect_eq(t->nr, 2);
	c = &k.img.chunks[t->first + 1];
	cr_expect_eq(k.img.layouts[c->layout].flags, CK_LAYOUT_FLAT);
	cr_expect_eq(k.img.dims[c->corner + 2], 13);
	cr_expect_eq(k.img.dims[c->corner + 3], 32);
}
