/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that hold the same bytes where they should differ. */
#include "tests/unit/catalog/kit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 64 /* bytes: two rows of a [4, 8] of float32 */

static struct kit k;
static unsigned char held[3][4 * ROWS]; /* of each rank's file */
static unsigned nr_read, fail_at;

static int read_file(void *ctx, const char *file, void *buf, size_t len,
		     uint64_t off, struct ck_err *err)
{
	(void)ctx;
	(void)err;
	cr_assert(len + off <= sizeof(held[0]), "%zu at %lu", len, off);
	if (++nr_read == fail_at)
		return -EIO;
	memcpy(buf, held[*file - '0'] + off, len);
	return 0;
}

static void set_up(void)
{
	const struct ck_builder_reads reads = { .read = read_file };

	k = kit_new();
	ck_builder_compare(k.b, &reads);
	for (unsigned r = 0; r < 3; r++)
		for (unsigned i = 0; i < sizeof(held[0]); i++)
			held[r][i] = (unsigned char)(7 * i + 3 * i * r + r);
	nr_read = fail_at = 0;
}

static void tear_down(void)
{
	kit_free(&k);
}

TestSuite(catalog_duplicate_ranks, .init = set_up, .fini = tear_down);

static const char *const name_of[] = { "0.ckpt", "1.ckpt", "2.ckpt" };

static uint32_t add_file(unsigned rank)
{
	uint32_t src = kit_file(&k, name_of[rank], sizeof(held[0]));

	cr_assert_eq(
		ck_builder_unlabelled_rank(k.b, src, name_of[rank], &k.err), 0);
	return src;
}

/* Rows 2*@half.. of the tensor, at @off of the file. */
static void add_half(const char *name, uint32_t src, unsigned half,
		     uint64_t off)
{
	struct ck_part p = kit_part(name, src);

	p.start = DIMS(2 * half, 0);
	p.len = DIMS(2, 8);
	p.off = off;
	kit_add(&k, &p);
}

/* Two ranks of halves of "v" and "w". */
static void two_ranks(void)
{
	for (unsigned r = 0; r < 2; r++) {
		uint32_t src = add_file(r);

		add_half("v", src, r, 0);
		add_half("w", src, r, ROWS);
	}
}

static const char *warning(void)
{
	const struct ck_catalog *img = kit_image(&k);
	const char *text = NULL;

	for (uint32_t i = 0; i < img->nr_problems; i++) {
		cr_assert_eq(img->problems[i].severity, CK_WARNING);
		cr_assert_null(text);
		text = ck_catalog_str(img, img->problems[i].reason, NULL);
	}
	return text;
}

Test(catalog_duplicate_ranks, a_copy_is_said)
{
	memcpy(held[1], held[0], sizeof(held[0]));
	two_ranks();
	cr_assert_not_null(warning());
	cr_expect_not_null(strstr(warning(), "the same bytes as 0.ckpt"));
	cr_expect_not_null(strstr(warning(), "all 2 pieces"));
	cr_expect_str_eq(ck_catalog_str(&k.img, k.img.problems[0].file, NULL),
			 "1.ckpt");
}

Test(catalog_duplicate_ranks, one_piece_that_differs_is_enough)
{
	memcpy(held[1], held[0], ROWS);
	two_ranks();
	cr_expect_null(warning());
	cr_expect_leq(nr_read, 4);
}

Test(catalog_duplicate_ranks, one_piece_of_each_is_read_where_they_differ)
{
	two_ranks();
	cr_expect_null(warning());
	cr_expect_eq(nr_read, 2);
}

Test(catalog_duplicate_ranks, one_value_says_nothing)
{
	memset(held, 0, sizeof(held));
	two_ranks();
	cr_expect_null(warning());
}

/* Zeros beside what differs, and beside what is a copy. */
Test(catalog_duplicate_ranks, zeros_beside_others)
{
	memset(held[0] + ROWS, 0, ROWS);
	memset(held[1] + ROWS, 0, ROWS);
	memcpy(held[1], held[0], ROWS);
	two_ranks();
	cr_expect_not_null(warning());
}

/* Rank 2 is a replica of rank 0, as its boxes say. */
Test(catalog_duplicate_ranks, replicas_are_alike)
{
	uint32_t src;

	memcpy(held[2], held[0], sizeof(held[0]));
	two_ranks();
	src = add_file(2);
	add_half("v", src, 0, 0);
	add_half("w", src, 0, ROWS);
	cr_expect_null(warning());
}

/* Equal bytes of different tensors are no sign. */
Test(catalog_duplicate_ranks, other_tensors)
{
	uint32_t a = add_file(0), b = add_file(1);

	memcpy(held[1] + ROWS, held[0], ROWS);
	memcpy(held[1], held[0] + ROWS, ROWS);
	add_half("v", a, 0, 0);
	add_half("v", b, 1, 0);
	add_half("w", a, 0, ROWS);
	add_half("w", b, 1, ROWS);
	cr_expect_null(warning());
}

Test(catalog_duplicate_ranks, whoever_cannot_be_read)
{
	memcpy(held[1], held[0], sizeof(held[0]));
	fail_at = 3;
	two_ranks();
	cr_expect_null(warning());
}

Test(catalog_duplicate_ranks, files_that_tell_are_not_read)
{
	memcpy(held[1], held[0], sizeof(held[0]));
	for (unsigned r = 0; r < 2; r++)
		add_half("v", kit_file(&k, name_of[r], sizeof(held[0])), r, 0);
	cr_expect_null(warning());
	cr_expect_eq(nr_read, 0);
}
