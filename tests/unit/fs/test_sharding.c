/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/sharding.h"

#include <criterion/criterion.h>
#include <string.h>

/* One tensor over a grid of at most 3 axes; chunks are added one by one. */
static struct ck_tensor t;
static struct ck_chunk chunks[64];
static struct ck_layout layouts[2] = { [1] = { .flags = CK_LAYOUT_FLAT } };
static struct ck_src srcs[10];
static uint64_t dims[256];
static struct ck_catalog img;
static size_t nr_dims;

static void begin(unsigned rank, unsigned grid_rank, const uint64_t *grid)
{
	memset(&t, 0, sizeof(t));
	img = (struct ck_catalog){ .chunks = chunks,
				   .layouts = layouts,
				   .srcs = srcs,
				   .nr_srcs = 10,
				   .dims = dims };
	t.rank = (uint8_t)rank;
	t.grid_rank = (uint8_t)grid_rank;
	memcpy(dims, grid, grid_rank * sizeof(*grid));
	nr_dims = grid_rank;
}

static void add(uint64_t a, uint64_t b, uint64_t c, uint32_t layout,
		uint32_t src)
{
	uint64_t corner[3] = { a, b, c };

	memcpy(dims + nr_dims, corner, sizeof(corner));
	chunks[t.nr++] = (struct ck_chunk){ .corner = (uint32_t)nr_dims,
					    .layout = layout,
					    .src = src };
	t.nr_all = t.nr;
	nr_dims += 3;
}

static void expect(const char *want)
{
	struct ck_str out = { 0 };

	fs_sharding_text(&img, &t, &out);
	cr_expect_str_eq(out.v, want);
	ck_str_free(&out);
}

Test(sharding, few_or_none)
{
	begin(2, 2, (uint64_t[]){ 8, 8 });
	expect("none");
	add(0, 0, 0, 0, 0);
	expect("whole");
	t.nr_all = 3;
	expect("whole,copies=3");
}

Test(sharding, one_axis)
{
	begin(2, 2, (uint64_t[]){ 8, 8 });
	for (uint64_t i = 0; i < 4; i++)
		add(0, 2 * i, 0, 0, 0);
	expect("dim1=4");
	t.nr_all = 8;
	expect("dim1=4,copies=2");
	t.nr_all = 5; /* only one of them is stored twice */
	expect("dim1=4");
}

Test(sharding, two_axes_in_any_order)
{
	begin(3, 3, (uint64_t[]){ 8, 8, 8 });
	add(4, 0, 6, 0, 0);
	add(0, 0, 6, 0, 0);
	add(0, 0, 0, 0, 0);
	add(4, 0, 3, 0, 0);
	add(4, 0, 0, 0, 0);
	add(0, 0, 3, 0, 0);
	expect("dim0=2,dim2=3");
}

Test(sharding, a_finer_grid)
{
	begin(2, 3, (uint64_t[]){ 4, 3, 64 });
	add(0, 0, 0, 0, 0);
	add(2, 0, 0, 0, 0);
	expect("grid=[4, 3, 64],axis0=2");
}

Test(sharding, irregular)
{
	begin(2, 2, (uint64_t[]){ 8, 8 });
	add(0, 0, 0, 0, 0);
	add(4, 0, 0, 0, 0);
	add(4, 4, 0, 0, 0);
	expect("pieces=3");
}

Test(sharding, flat)
{
	begin(1, 1, (uint64_t[]){ 64 });
	for (unsigned i = 0; i < 16; i++)
		add(0, 4 * i, 4 * i + 4, 1, 0);
	expect("flat=16");
}

Test(sharding, sources_are_counted_once)
{
	begin(1, 1, (uint64_t[]){ 64 });
	add(0, 0, 0, 0, 3);
	add(1, 0, 0, 0, 9);
	add(2, 0, 0, 0, 3);
	srcs[5] = (struct ck_src){ .kind = CK_SRC_CODEC, .parent = 9 };
	add(3, 0, 0, 0, 5);
	cr_expect_eq(fs_sharding_sources(&img, &t), 2);
}
