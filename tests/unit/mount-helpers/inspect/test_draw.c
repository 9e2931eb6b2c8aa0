/* SPDX-License-Identifier: Apache-2.0 */
#include "mount-helpers/inspect/inspect.h"
#include "tests/lib/imagekit.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIMS(...) ((const uint64_t[]){ __VA_ARGS__ })

static void add(struct imagekit *k, const char *file, struct ik_chunk c)
{
	c.src = ik_src(k, CK_SRC_FILE, file, 0);
	ik_chunk(k, &c);
}

static void expect(struct imagekit *k, struct ik_tensor t, unsigned width,
		   const char *picture)
{
	struct ck_str out = { 0 };
	struct labels labels;
	struct ck_catalog img;
	bool drawn;

	t.dtype = CK_DT_F32;
	if (!t.nr)
		t.nr = (uint32_t)k->chunks.nr;
	t.nr_all = (uint32_t)k->chunks.nr;
	ik_tensor(k, &t);
	img = ik_image(k);
	cr_assert(labels_init(&labels, &img, img.tensors));
	drawn = draw_tensor(&img, img.tensors, &labels, width, &out);
	cr_expect_eq(drawn, picture != NULL);
	if (picture && out.v)
		cr_expect_str_eq(out.v, picture, "\n%s", out.v);
	else
		cr_expect_eq(out.len, 0);
	labels_free(&labels);
	ck_str_free(&out);
	ik_free(k);
}

/* Rows and columns, of which one piece is stored twice and one is missing. */
Test(draw, grid_with_copies_and_a_missing_piece)
{
	struct imagekit k = { 0 };

	for (uint64_t i = 0; i < 4; i++) {
		char name[32];

		snprintf(name, sizeof(name), "__%d_0.distcp", (int)i);
		add(&k, name,
		    (struct ik_chunk){ .rank = 2,
				       .start = DIMS(i / 2 * 3, i % 2 * 100),
				       .len = DIMS(3, 100),
				       .state = i == 3 ? CK_MISSING : CK_OK });
	}
	add(&k, "__7_0.distcp",
	    (struct ik_chunk){
		    .rank = 2, .start = DIMS(0, 100), .len = DIMS(3, 100) });
	ik_ring(&k, (const uint32_t[]){ 1, 4 }, 2);
	expect(&k,
	       (struct ik_tensor){ .rank = 2, .shape = DIMS(6, 200), .nr = 4 },
	       80,
	       "  down: axis 0, across: axis 1\n"
	       "    0        100              200\n"
	       "  0 +--------+----------------+\n"
	       "    | rank 0 | rank 1         |\n"
	       "    |        | rank 7         |\n"
	       "  3 +--------+----------------+\n"
	       "    | rank 2 | rank 3 missing |\n"
	       "  6 +--------+----------------+\n");
}

/* One piece over both columns, and a corner that nobody saved. */
Test(draw, uneven_with_a_hole)
{
	struct imagekit k = { 0 };

	add(&k, "a",
	    (struct ik_chunk){
		    .rank = 2, .start = DIMS(0, 0), .len = DIMS(2, 9) });
	add(&k, "b",
	    (struct ik_chunk){
		    .rank = 2, .start = DIMS(2, 0), .len = DIMS(2, 5) });
	expect(&k, (struct ik_tensor){ .rank = 2, .shape = DIMS(4, 9) }, 80,
	       "  down: axis 0, across: axis 1\n"
	       "    0   5             9\n"
	       "  0 +-----------------+\n"
	       "    | a               |\n"
	       "  2 +---+-------------+\n"
	       "    | b | (not saved) |\n"
	       "  4 +---+-------------+\n");
}

Test(draw, columns_or_rows_as_the_page_is_wide)
{
	for (unsigned wide = 0; wide < 2; wide++) {
		struct imagekit k = { 0 };

		for (uint64_t i = 0; i < 2; i++)
			add(&k, i ? "rank-00012.safetensors" : "rank1.bin",
			    (struct ik_chunk){ .rank = 2,
					       .start = DIMS(0, i * 4),
					       .len = DIMS(3, 4) });
		expect(&k, (struct ik_tensor){ .rank = 2, .shape = DIMS(3, 8) },
		       wide ? 40 : 20,
		       wide ? "  across: axis 1\n"
			      "  0        4         8\n"
			      "  +--------+---------+\n"
			      "  | rank 1 | rank 12 |\n"
			      "  +--------+---------+\n" :
			      "  down: axis 1\n"
			      "  0 +---------+\n"
			      "    | rank 1  |\n"
			      "  4 +---------+\n"
			      "    | rank 12 |\n"
			      "  8 +---------+\n");
	}
}

Test(draw, flat_stretches)
{
	struct imagekit k = { 0 };

	for (uint64_t i = 0; i < 2; i++)
		add(&k, i ? "two" : "one",
		    (struct ik_chunk){ .rank = 2,
				       .start = DIMS(0, 0),
				       .len = DIMS(3, 8),
				       .flat = DIMS(i * 13, i ? 24 : 13) });
	expect(&k, (struct ik_tensor){ .rank = 2, .shape = DIMS(3, 8) }, 80,
	       "  down: elements in row-major order\n"
	       "   0 +-----+\n"
	       "     | one |\n"
	       "  13 +-----+\n"
	       "     | two |\n"
	       "  24 +-----+\n");
}

Test(draw, scalar)
{
	struct imagekit k = { 0 };

	add(&k, "m",
	    (struct ik_chunk){ .rank = 0, .start = DIMS(0), .len = DIMS(0) });
	expect(&k, (struct ik_tensor){ .rank = 0, .shape = DIMS(0) }, 80,
	       "  +---+\n"
	       "  | m |\n"
	       "  +---+\n");
}

Test(draw, not_more_than_two_axes)
{
	struct imagekit k = { 0 };

	for (uint64_t i = 0; i < 8; i++)
		add(&k, "f",
		    (struct ik_chunk){ .rank = 3,
				       .start = DIMS(i / 4, i / 2 % 2, i % 2),
				       .len = DIMS(1, 1, 1) });
	expect(&k, (struct ik_tensor){ .rank = 3, .shape = DIMS(2, 2, 2) }, 80,
	       NULL);
}

Test(draw, not_more_rows_than_a_person_reads)
{
	struct imagekit k = { 0 };

	for (uint64_t i = 0; i < 65; i++)
		add(&k, "f",
		    (struct ik_chunk){
			    .rank = 1, .start = DIMS(i), .len = DIMS(1) });
	expect(&k, (struct ik_tensor){ .rank = 1, .shape = DIMS(65) }, 80,
	       NULL);
}

/* What the only file of a tensor is called, for free(). */
static char *label_of(const char *file)
{
	struct imagekit k = { 0 };
	struct ck_str out = { 0 };
	struct labels l;
	struct ck_catalog img;

	add(&k, file,
	    (struct ik_chunk){ .rank = 1, .start = DIMS(0), .len = DIMS(1) });
	ik_tensor(&k, &(struct ik_tensor){ .dtype = CK_DT_U8,
					   .rank = 1,
					   .shape = DIMS(1),
					   .nr = 1,
					   .nr_all = 1 });
	img = ik_image(&k);
	cr_assert(labels_init(&l, &img, img.tensors));
	labels_put(&l, 0, &out);
	labels_free(&l);
	ik_free(&k);
	return out.v;
}

Test(labels, rank_in_a_name)
{
	static const struct {
		const char *name;
		int rank; /* -1: none */
	} names[] = {
		{ "__3_0.distcp", 3 },
		{ "dir/__12_1.distcp", 12 },
		{ "rank-00007.safetensors", 7 },
		{ "rank_2.pt", 2 },
		{ "mp_rank_03_model_states.pt", 3 },
		{ "rank9", 9 },
		{ "model-00001-of-00002.safetensors", -1 },
		{ "frank.bin", -1 },
		{ "__x_0.distcp", -1 },
		{ "rank99999999999999999999", -1 },
		{ "rank7/plain.bin", -1 },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *label = label_of(names[i].name), want[16];

		snprintf(want, sizeof(want), "rank %d", names[i].rank);
		if (names[i].rank >= 0)
			cr_expect_str_eq(label, want, "%s", names[i].name);
		else
			cr_expect(strncmp(label, "rank ", 5), "%s",
				  names[i].name);
		free(label);
	}
}

/* Names that are long, and ranks that are no names of one file. */
Test(labels, keys_for_long_names)
{
	struct imagekit k = { 0 };
	struct ck_str out = { 0 };
	struct labels l;
	struct ck_catalog img;

	add(&k, "a/a-very-long-file-name-00001.safetensors",
	    (struct ik_chunk){ .rank = 1, .start = DIMS(0), .len = DIMS(1) });
	add(&k, "short",
	    (struct ik_chunk){ .rank = 1, .start = DIMS(1), .len = DIMS(1) });
	ik_tensor(&k, &(struct ik_tensor){ .dtype = CK_DT_U8,
					   .rank = 1,
					   .shape = DIMS(2),
					   .nr = 2,
					   .nr_all = 2 });
	img = ik_image(&k);
	cr_assert(labels_init(&l, &img, img.tensors));
	cr_expect_eq(l.kind, LABELS_KEY);
	labels_legend(&l, &out);
	cr_expect_str_eq(out.v, "  A          a/a-very-long-file-name-00001."
				"safetensors\n"
				"  B          short\n");
	labels_free(&l);
	ck_str_free(&out);
	ik_free(&k);
}
