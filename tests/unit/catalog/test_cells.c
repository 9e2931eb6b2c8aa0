/* SPDX-License-Identifier: Apache-2.0 */
/* Rings of replicas, overlaps, holes, order. */
#include "tests/unit/catalog/kit.h"

#include "core/geom/cursor.h"

#include <string.h>

static struct kit k;
static uint32_t a, b, c;

static void set_up(void)
{
	k = kit_new();
	a = kit_file(&k, "a.bin", 4096);
	b = kit_file(&k, "b.bin", 4096);
	c = kit_file(&k, "c.bin", 4096);
}

static void tear_down(void)
{
	kit_free(&k);
}

TestSuite(catalog_cells, .init = set_up, .fini = tear_down);

/* Rows [lo, hi) of the [4, 8] tensor "w". */
static void add_rows(uint32_t src, uint64_t lo, uint64_t hi, bool overlap_ok)
{
	struct ck_part p = kit_part("w", src);

	p.start = DIMS(lo, 0);
	p.len = DIMS(hi - lo, 8);
	p.off = lo * 32;
	p.overlap_ok = overlap_ok;
	kit_add(&k, &p);
}

static void add_cols(uint32_t src, uint64_t lo, uint64_t hi, bool overlap_ok)
{
	struct ck_part p = kit_part("w", src);

	p.start = DIMS(0, lo);
	p.len = DIMS(4, hi - lo);
	p.off = 1000 + lo * 16;
	p.overlap_ok = overlap_ok;
	kit_add(&k, &p);
}

static void expect_cells(const char *want)
{
	ck_auto_str struct ck_str got =
		kit_cells(kit_image(&k), kit_tensor(&k, "w"));

	cr_expect_str_eq(got.v, want);
}

/* The sources of the ring of cell @cell, as letters. */
static const char *ring(const struct ck_tensor *t, uint32_t cell)
{
	static char out[64];
	uint32_t at = t->first + cell;
	size_t n = 0;

	do {
		out[n++] = ck_catalog_str(
			&k.img, k.img.srcs[k.img.chunks[at].src].name, NULL)[0];
		at = k.img.chunks[at].next;
	} while (at != CK_NONE && at != t->first + cell && n < 60);
	out[n] = '\0';
	return out;
}

Test(catalog_cells, replicas_make_rings)
{
	const struct ck_tensor *t;

	add_rows(a, 0, 2, false);
	add_rows(b, 0, 2, false);
	add_rows(b, 2, 4, false);
	add_rows(c, 0, 2, false);
	add_rows(a, 2, 4, false);
	t = kit_tensor(&k, "w");
	cr_expect_eq(t->nr, 2);
	cr_expect_eq(t->nr_all, 5);
	cr_expect_eq(t->covered, 32);
	cr_expect_eq(t->state, CK_OK);
	expect_cells("[0:2, 0:8] [2:4, 0:8]");
	cr_expect_str_eq(ring(t, 0), "abc");
	cr_expect_str_eq(ring(t, 1), "ba");
	cr_expect_eq(k.img.nr_problems, 0);
}

Test(catalog_cells, the_same_bytes_said_twice_are_one_part)
{
	add_rows(a, 0, 4, false);
	add_rows(a, 0, 4, false);
	cr_expect_eq(kit_tensor(&k, "w")->nr_all, 1);
}

Test(catalog_cells, flat_replicas)
{
	struct ck_part p = kit_part("w", a);

	p.flat = DIMS(0, 13);
	kit_add(&k, &p);
	p.src = b;
	kit_add(&k, &p);
	p.flat = DIMS(13, 32);
	p.off = 13 * 4;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->nr, 2);
	cr_expect_eq(kit_tensor(&k, "w")->nr_all, 3);
	cr_expect_str_eq(ring(kit_tensor(&k, "w"), 0), "ab");
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
}

Test(catalog_cells, a_whole_replica_comes_first)
{
	uint32_t torn = kit_file(&k, "torn.bin", 10);
	uint32_t gone = kit_missing(&k, "gone.bin");
	const struct ck_tensor *t;

	add_rows(gone, 0, 4, false);
	add_rows(torn, 0, 4, false);
	add_rows(b, 0, 4, false);
	add_rows(a, 0, 4, false);
	t = kit_tensor(&k, "w");
	cr_expect_str_eq(ring(t, 0), "bgta");
	cr_expect_eq(t->state, CK_OK, "all its bytes can be read");
	cr_expect_eq(kit_nr_problems(&k, "w"), 1, "the torn one is named");
}

Test(catalog_cells, torn_before_missing)
{
	uint32_t torn = kit_file(&k, "torn.bin", 10);
	uint32_t gone = kit_missing(&k, "gone.bin");
	const struct ck_tensor *t;

	add_rows(gone, 0, 4, false);
	add_rows(torn, 0, 4, false);
	t = kit_tensor(&k, "w");
	cr_expect_str_eq(ring(t, 0), "tg");
	cr_expect_eq(t->state, CK_TORN);
}

Test(catalog_cells, overlap_is_refused)
{
	add_rows(a, 0, 3, false);
	add_rows(b, 2, 4, false);
	cr_expect_eq(kit_find(&k, "w"), CK_NONE);
	cr_expect_str_eq(kit_reason(&k, "w"),
			 "boxes [0:3, 0:8] of a.bin and [2:4, 0:8] of b.bin "
			 "overlap");
}

Test(catalog_cells, overlap_that_one_of_both_allows_is_refused)
{
	add_rows(a, 0, 3, true);
	add_rows(b, 2, 4, false);
	cr_expect_eq(kit_find(&k, "w"), CK_NONE);
}

Test(catalog_cells, flat_overlap_is_refused)
{
	struct ck_part p = kit_part("w", a);

	p.flat = DIMS(0, 13);
	kit_add(&k, &p);
	p.src = b;
	p.flat = DIMS(12, 32);
	p.overlap_ok = true;
	kit_add(&k, &p);
	cr_expect_eq(kit_find(&k, "w"), CK_NONE);
	cr_expect_str_eq(kit_reason(&k, "w"),
			 "boxes [0:2, 0:8] of a.bin and [1:4, 0:8] of b.bin "
			 "overlap");
}

Test(catalog_cells, deferred_overlap_is_refused)
{
	struct ck_part p = kit_part("w", a);

	p.item_len = 100;
	p.overlap_ok = true;
	p.len = DIMS(3, 8);
	kit_add(&k, &p);
	p.start = DIMS(1, 0);
	kit_add(&k, &p);
	cr_expect_eq(kit_find(&k, "w"), CK_NONE);
}

Test(catalog_cells, bounds_that_meet_are_no_overlap)
{
	struct ck_part p = kit_part("w", a);

	/* the box at the end of a row that a flat range leaves out */
	p.flat = DIMS(0, 13);
	kit_add(&k, &p);
	p.flat = NULL;
	p.start = DIMS(1, 5);
	p.len = DIMS(1, 3);
	p.off = 13 * 4;
	kit_add(&k, &p);
	p.start = DIMS(2, 0);
	p.len = DIMS(2, 8);
	p.off = 16 * 4;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
	cr_expect_eq(kit_tensor(&k, "w")->covered, 32);
}

Test(catalog_cells, rows_and_columns_cut_each_other)
{
	const struct ck_tensor *t;
	const struct ck_chunk *x;

	add_rows(a, 0, 2, true);
	add_rows(a, 2, 4, true);
	add_cols(b, 0, 4, true);
	add_cols(c, 4, 8, true);
	t = kit_tensor(&k, "w");
	cr_expect_eq(t->nr, 4);
	cr_expect_eq(t->nr_all, 8);
	cr_expect_eq(t->covered, 32);
	cr_expect_eq(t->state, CK_OK);
	expect_cells("[0:2, 0:4] [0:2, 4:8] [2:4, 0:4] [2:4, 4:8]");
	cr_expect_str_eq(ring(t, 0), "ab");
	cr_expect_str_eq(ring(t, 1), "ac");
	cr_expect_str_eq(ring(t, 3), "ac");
	/* the lower right quarter: in its rows, and in its columns */
	x = &k.img.chunks[t->first + 3];
	cr_expect_eq(x->off, 2 * 32 + 4 * 4);
	cr_expect_eq(k.img.dims[k.img.layouts[x->layout].stride], 8);
	x = &k.img.chunks[x->next];
	cr_expect_eq(x->off, 1000 + 4 * 16 + 2 * 4 * 4);
	cr_expect_eq(k.img.dims[k.img.layouts[x->layout].stride], 4);
	cr_expect_eq(k.img.nr_problems, 0);
}

Test(catalog_cells, halves_and_thirds)
{
	struct ck_part p = kit_part("w", a);
	const struct ck_tensor *t;

	p.rank = 1;
	p.shape = DIMS(12);
	p.overlap_ok = true;
	for (uint64_t i = 0; i < 2; i++) {
		p.start = DIMS(i * 6);
		p.len = DIMS(6);
		p.off = i * 100;
		kit_add(&k, &p);
	}
	p.src = b;
	for (uint64_t i = 0; i < 3; i++) {
		p.start = DIMS(i * 4);
		p.len = DIMS(4);
		p.stride = STEPS(-1);
		p.off = 200 + i * 100;
		kit_add(&k, &p);
	}
	t = kit_tensor(&k, "w");
	expect_cells("[0:4] [4:6] [6:8] [8:12]");
	cr_expect_eq(t->nr_all, 8);
	cr_expect_eq(k.img.chunks[t->first + 1].off, 16);
	cr_expect_eq(k.img.chunks[t->first + 2].off, 100);
	/* backwards: [6:8] is the third and fourth of [4:8] */
	cr_expect_eq(k.img.chunks[k.img.chunks[t->first + 2].next].off,
		     300 - 2 * 4);
}

Test(catalog_cells, replicas_of_overlapping_boxes_stay_in_the_rings)
{
	const struct ck_tensor *t;

	add_rows(a, 0, 4, true);
	add_rows(b, 0, 4, true);
	add_cols(c, 2, 3, true);
	t = kit_tensor(&k, "w");
	cr_expect_eq(t->covered, 32);
	cr_expect_eq(t->nr, 3);
	cr_expect_eq(t->nr_all, 7);
	expect_cells("[0:4, 0:2] [0:4, 2:3] [0:4, 3:8]");
	cr_expect_str_eq(ring(t, 0), "ab");
	cr_expect_str_eq(ring(t, 1), "abc");
}

Test(catalog_cells, what_is_cut_from_a_torn_part_may_be_whole)
{
	uint32_t torn = kit_file(&k, "torn.bin", 70);
	const struct ck_tensor *t;

	add_rows(torn, 0, 4, true);
	add_rows(a, 2, 4, true);
	t = kit_tensor(&k, "w");
	cr_expect_eq(t->state, CK_OK);
	cr_expect_eq(t->nr, 2);
	cr_expect_str_eq(ring(t, 0), "t");
	cr_expect_str_eq(ring(t, 1), "at");
	cr_expect_eq(kit_nr_problems(&k, "w"), 1);
}

Test(catalog_cells, parts_that_do_not_overlap_stay_uncut)
{
	struct ck_part p = kit_part("w", a);

	add_rows(a, 0, 1, true);
	add_rows(b, 0, 2, true);
	p.start = DIMS(2, 0);
	p.len = DIMS(2, 8);
	p.flat = DIMS(0, 5);
	p.off = 16 * 4;
	kit_add(&k, &p);
	p.flat = DIMS(5, 16);
	p.off += 5 * 4;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->covered, 32);
	cr_expect_eq(kit_tensor(&k, "w")->nr, 4);
	cr_expect_eq(kit_tensor(&k, "w")->nr_all, 5);
}

Test(catalog_cells, too_many_cuts_are_refused)
{
	struct ck_part p = kit_part("w", a);
	const uint64_t shape[] = { 4096, 4096 };

	p.shape = shape;
	p.stride = STEPS(0, 0);
	p.overlap_ok = true;
	for (uint64_t i = 0; i < 2000; i++) {
		p.start = i % 2 ? DIMS(i, 0) : DIMS(0, i);
		p.len = i % 2 ? DIMS(1, 4096) : DIMS(4096, 1);
		kit_add(&k, &p);
	}
	cr_expect_eq(kit_find(&k, "w"), CK_NONE);
	cr_expect(strstr(kit_reason(&k, "w"), "cut each other"));
}

Test(catalog_cells, a_hole_is_missing)
{
	const struct ck_tensor *t;

	add_rows(a, 0, 1, false);
	add_rows(a, 2, 4, false);
	t = kit_tensor(&k, "w");
	cr_expect_eq(t->state, CK_MISSING);
	cr_expect_eq(t->covered, 24);
	cr_expect_str_eq(kit_reason(&k, "w"),
			 "8 of 32 elements (32 bytes) are stored nowhere, the "
			 "first are [8, 16)");
	cr_expect_eq(ck_tensor_first_hole(&k.img, t), 8 * 4);
}

Test(catalog_cells, a_hole_in_the_middle_of_rows)
{
	add_cols(a, 0, 3, false);
	add_cols(a, 5, 8, false);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_MISSING);
	cr_expect_str_eq(kit_reason(&k, "w"),
			 "8 of 32 elements (32 bytes) are stored nowhere, the "
			 "first are [3, 5)");
}

Test(catalog_cells, a_hole_at_the_end)
{
	add_rows(a, 0, 2, false);
	kit_tensor(&k, "w");
	cr_expect_str_eq(kit_reason(&k, "w"),
			 "16 of 32 elements (64 bytes) are stored nowhere, the "
			 "first are [16, 32)");
}

Test(catalog_cells, a_hole_of_a_flat_range)
{
	struct ck_part p = kit_part("w", a);

	p.flat = DIMS(0, 13);
	kit_add(&k, &p);
	p.flat = DIMS(14, 32);
	p.off = 14 * 4;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_MISSING);
	cr_expect_str_eq(kit_reason(&k, "w"),
			 "1 of 32 elements (4 bytes) are stored nowhere, the "
			 "first are [13, 14)");
}

Test(catalog_cells, declared_and_never_saved)
{
	struct ck_part p = kit_part("w", 0);

	cr_assert_eq(ck_builder_declare(k.b, &p, &k.err), 0);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_MISSING);
	cr_expect_eq(kit_tensor(&k, "w")->nr_all, 0);
	cr_expect_str_eq(
		kit_reason(&k, "w"),
		"32 of 32 elements (128 bytes) are stored nowhere, the "
		"first are [0, 32)");
}

/* A hole of a tensor that no walk over its elements would ever reach. */
Test(catalog_cells, a_hole_far_out)
{
	struct ck_part p = kit_part("w", a);
	const uint64_t resolved = UINT64_C(1) << 29;

	p.shape = DIMS(resolved, resolved);
	p.stride = STEPS(0, 0);
	p.start = DIMS(0, 0);
	p.len = DIMS(resolved, resolved - 1);
	kit_add(&k, &p);
	p.start = DIMS(0, resolved - 1);
	p.len = DIMS(resolved - 1, 1);
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_MISSING);
	cr_expect_str_eq(
		kit_reason(&k, "w"),
		"1 of 288230376151711744 elements (4 bytes) are stored "
		"nowhere, the first are "
		"[288230376151711743, 288230376151711744)");
}

Test(catalog_cells, newest_is_the_latest_of_all_sources)
{
	struct stat st = { .st_mode = S_IFREG, .st_size = 4096 };
	struct ck_part p = kit_part("w", a);
	uint32_t old, new;

	st.st_mtim.tv_sec = 100;
	cr_assert_eq(ck_builder_file(k.b, "old", &st, &old, &k.err), 0);
	st.st_mtim.tv_nsec = 1;
	cr_assert_eq(ck_builder_file(k.b, "new", &st, &new, &k.err), 0);
	p.src = old;
	kit_add(&k, &p);
	p.src = new;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->newest, new);
}

Test(catalog_cells, two_parts_in_the_same_bytes_are_refused)
{
	struct ck_part p = kit_part("w", a);

	p.len = DIMS(2, 8);
	kit_add(&k, &p);
	p.start = DIMS(2, 0);
	p.off = 60; /* the last element of the first is there too */
	kit_add(&k, &p);
	cr_expect_eq(kit_find(&k, "w"), CK_NONE);
	cr_expect_str_eq(kit_reason(&k, "w"),
			 "boxes [0:2, 0:8] and [2:4, 0:8] are both said to be "
			 "at byte 60 of a.bin");
}

Test(catalog_cells, bytes_are_compared_in_whatever_order_they_come)
{
	add_rows(b, 2, 4, false);
	add_rows(a, 1, 2, false);
	add_rows(a, 0, 1, false);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
}

Test(catalog_cells, rows_that_lie_between_each_other_are_not_the_same_bytes)
{
	struct ck_part p = kit_part("w", a);

	p.len = DIMS(4, 4);
	p.stride = STEPS(8, 1);
	kit_add(&k, &p);
	p.start = DIMS(0, 4);
	p.off = 16;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
}

Test(catalog_cells, two_tensors_may_share_bytes)
{
	struct ck_part p = kit_part("w", a);

	kit_add(&k, &p);
	p.name = "v";
	p.name_len = 1;
	kit_add(&k, &p);
	cr_expect_eq(kit_tensor(&k, "w")->state, CK_OK);
	cr_expect_eq(kit_tensor(&k, "v")->state, CK_OK);
}
