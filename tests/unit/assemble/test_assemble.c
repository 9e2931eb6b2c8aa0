/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of ranks, joined by a reader that has only boxes and words. */
#include "core/assemble/assemble.h"
#include "core/catalog/catalog.h"
#include "tests/lib/imagekit.h"
#include "tests/lib/memdir.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct ck_err err;

static const struct ck_asm_reader reader = {
	.cuts_stretches = true,
	.words = {
		[CK_ASM_TWICE] = "twice in {file}",
		[CK_ASM_BOXLESS] = "no box in {file}, one in {other}",
		[CK_ASM_LENGTHS] = "lengths of {file}",
		[CK_ASM_NOT_IN] = "not in {file}",
		[CK_ASM_RANK] = "dimensions of {file} and {other}",
		[CK_ASM_SHAPE] = "shapes of {file} and {other}",
		[CK_ASM_DTYPE] = "{file} has {dtype}, {other} {other_dtype}",
		[CK_ASM_COPIES] = "{file} and {other} at {byte}",
		[CK_ASM_UNPLACED] = "{file} or {other}",
		[CK_ASM_UNREAD] = "unread",
	},
};

/* Two files of 64 bytes, of ranks 0 and 1. */
struct kit {
	struct memdir m;
	struct ck_asm a;
	char bytes[2][64];
	uint32_t file[2];
	struct ck_catalog img;
};

static int read_bytes(void *ctx, const char *file, void *buf, size_t len,
		      uint64_t off, struct ck_err *e)
{
	const struct kit *k = ctx;
	int i = file[0] - '0';

	(void)e;
	if (off + len > sizeof(k->bytes[i]))
		return -EIO;
	memcpy(buf, k->bytes[i] + off, len);
	return 0;
}

static void setup(struct kit *k)
{
	memset(k, 0, sizeof(*k));
	memdir_init(&k->m);
	k->a.dir = &k->m.dir;
	k->a.b = ck_builder_new(&err);
	k->a.how = &reader;
	cr_assert(k->a.b);
	ck_builder_compare(k->a.b, &(struct ck_builder_reads){
					   .read = read_bytes, .ctx = k });
	for (int i = 0; i < 2; i++) {
		struct stat st = { .st_size = 64, .st_mode = S_IFREG };
		char name[2] = { (char)('0' + i) };

		k->file[i] = ck_asm_file(&k->a, name, (uint64_t)i);
		cr_assert_eq(k->file[i], (uint32_t)i);
		k->a.files.v[i].who = i ? "rank 1" : "rank 0";
		k->a.files.v[i].present = k->a.files.v[i].usable = true;
		cr_assert_eq(ck_builder_file(k->a.b, name, &st,
					     &k->a.files.v[i].src, &err),
			     0);
	}
}

static void teardown(struct kit *k)
{
	if (k->img.base)
		ck_catalog_unmap(&k->img);
	ck_asm_free(&k->a);
	ck_builder_free(k->a.b);
	memdir_free(&k->m);
}

/* Four bytes along one axis of eight, at @off of file @i. */
static struct ck_asm_piece *piece(struct kit *k, int i, uint64_t start,
				  uint64_t off, bool box)
{
	static const uint64_t len = 4, shape = 8;
	const struct ck_extent x = { .shape = &len,
				     .src = k->a.files.v[i].src,
				     .off = off,
				     .dtype = CK_DT_U8,
				     .rank = 1 };
	struct ck_asm_tensor *t = ck_asm_tensor(&k->a, 0, "t", 1);

	if (box) {
		struct ck_asm_piece *p = ck_asm_piece(&k->a, t, k->file[i]);

		cr_assert(p);
		cr_assert_eq(ck_asm_set_box(&k->a, p, &start, &len, &shape, 1),
			     0);
	}
	cr_assert_eq(ck_asm_give(&k->a, t, k->file[i], &x, &err), 0);
	return &k->a.pieces.v[k->a.pieces.nr - 1];
}

/* The first problem, or "" where the tensor is there. */
static const char *joined(struct kit *k)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	cr_assert_eq(ck_asm_join(&k->a, &err), 0, "%s", err.msg);
	cr_assert_eq(ck_builder_finish(k->a.b, "test", fd, &err), 0, "%s",
		     err.msg);
	cr_assert_eq(ck_catalog_map(&k->img, fd, &err), 0, "%s", err.msg);
	close(fd);
	if (!k->img.nr_problems) {
		cr_assert_eq(k->img.nr_tensors, 1);
		return "";
	}
	return ck_catalog_str(&k->img, k->img.problems[0].reason, NULL);
}

#define cr_joined(k, want)                         \
	do {                                       \
		cr_expect_str_eq(joined(k), want); \
		teardown(k);                       \
	} while (0)

Test(assemble, boxes_make_the_whole)
{
	struct kit k;

	setup(&k);
	piece(&k, 0, 0, 10, true);
	piece(&k, 1, 4, 20, true);
	cr_expect_str_eq(joined(&k), "");
	cr_expect_eq(k.img.tensors[0].size, 8);
	cr_expect_eq(k.img.tensors[0].nr, 2);
	teardown(&k);
}

Test(assemble, replicas_are_compared)
{
	struct kit k;

	setup(&k);
	piece(&k, 0, 4, 10, true);
	piece(&k, 1, 4, 20, true);
	k.bytes[1][22] = 1;
	cr_joined(&k, "rank 0 and rank 1 at 2");
}

Test(assemble, without_boxes_they_are_whole_if_they_are_alike)
{
	struct kit k;

	setup(&k);
	piece(&k, 0, 0, 0, false);
	piece(&k, 1, 0, 8, false);
	cr_joined(&k, "");
	setup(&k);
	piece(&k, 0, 0, 0, false);
	piece(&k, 1, 0, 8, false);
	k.bytes[0][0] = 1;
	cr_joined(&k, "rank 0 or rank 1");
	setup(&k);
	piece(&k, 0, 0, 0, false);
	piece(&k, 1, 0, 62, false);
	cr_joined(&k, "unread");
}

Test(assemble, pieces_must_go_together)
{
	struct kit k;
	struct ck_asm_piece *p;

	setup(&k);
	piece(&k, 0, 0, 0, true);
	piece(&k, 1, 4, 0, true)->x.dtype = CK_DT_I8;
	cr_joined(&k, "rank 0 has uint8, rank 1 int8");
	setup(&k);
	piece(&k, 0, 0, 0, true);
	piece(&k, 1, 4, 0, false);
	cr_joined(&k, "no box in rank 1, one in rank 0");
	setup(&k);
	piece(&k, 0, 0, 0, true);
	piece(&k, 0, 4, 0, true);
	cr_joined(&k, "twice in rank 0");
	setup(&k);
	piece(&k, 0, 0, 0, true);
	p = piece(&k, 1, 4, 0, true);
	p->stored = false;
	cr_joined(&k, "not in rank 1");
	setup(&k);
	piece(&k, 0, 0, 0, true)->x.fault = "sparse";
	cr_joined(&k, "rank 0: sparse");
	setup(&k);
	k.a.files.v[0].usable = false;
	piece(&k, 0, 0, 0, true)->stored = false;
	cr_joined(&k, "rank 0, which has it, is missing or damaged");
}

/* ---- readers that say more ---- */

static int place_on_its_own(struct ck_asm_join *j, const struct ck_asm_piece *p,
			    unsigned n, struct ck_part *part,
			    struct ck_err *why)
{
	(void)n;
	(void)why;
	j->replica = p->user;
	part->overlap_ok = true;
	return 0;
}

static int end(const struct ck_asm_join *j, const struct ck_err *why,
	       struct ck_err *e)
{
	return ck_fail(e, ERANGE, "%s: %s", j->t->name, why->msg);
}

/* Two that the reader says are alike where @a and @b are, and the rest. */
static void setup_likes(struct kit *k, const struct ck_asm_reader *how,
			uint64_t a, uint64_t b)
{
	setup(k);
	k->a.how = how;
	k->bytes[1][20] = 1; /* that is not looked at */
	piece(k, 0, 0, 10, true)->like = a;
	piece(k, 1, 0, 20, true)->like = b;
	piece(k, 0, 4, 30, true);
}

Test(assemble, a_reader_says_what_is_alike)
{
	struct ck_asm_reader own = { .words = { [CK_ASM_COPIES] = "{byte}" },
				     .likes = true,
				     .place = place_on_its_own };
	struct kit k;

	setup_likes(&k, &own, 5, 5);
	cr_joined(&k, "");
	setup_likes(&k, &own, 5, 0);
	cr_joined(&k, "");
	setup_likes(&k, &own, 5, 6);
	cr_joined(&k, "0");
	setup_likes(&k, &own, 5, 6);
	for (uint64_t i = 0; i < 3; i++)
		k.a.pieces.v[i].user = i + 1;
	cr_joined(&k, "");
	own.refused = end;
	setup_likes(&k, &own, 5, 6);
	cr_expect_eq(ck_asm_join(&k.a, &err), -ERANGE);
	cr_expect_str_eq(err.msg, "t: 0");
	teardown(&k);
}

Test(assemble, what_is_lost_is_a_hole)
{
	struct kit k;

	setup(&k);
	piece(&k, 0, 0, 10, true);
	piece(&k, 1, 4, 20, true);
	cr_joined(&k, "");
	setup(&k);
	piece(&k, 0, 0, 10, true);
	piece(&k, 1, 4, 20, true)->lost = true;
	cr_joined(&k, "4 of 8 elements (4 bytes) are stored nowhere, the "
		      "first are [4, 8)");
}

static size_t compared;

static int count(struct ck_asm *a, const struct ck_asm_tensor *t,
		 const uint32_t *p, size_t nr, struct ck_err *e)
{
	(void)a;
	(void)t;
	(void)p;
	(void)e;
	compared += nr;
	return 0;
}

Test(assemble, replicas_are_compared_before_they_are_joined)
{
	struct ck_asm_reader own = {
		.words = { [CK_ASM_COPIES] = "{file} {last}" }, .likes = true
	};
	struct kit k;

	setup(&k);
	k.a.how = &own;
	k.bytes[0][30] = 9;
	piece(&k, 0, 0, 10, true);
	piece(&k, 1, 0, 20, true);
	piece(&k, 0, 0, 30, true);
	piece(&k, 1, 0, 62, true); /* past the end */
	piece(&k, 1, 4, 30, true); /* without a copy */
	cr_assert_eq(ck_asm_compare(&k.a, count, &err), 0);
	cr_expect_eq(compared, 4);
	cr_expect(k.a.pieces.v[0].like &&
		  k.a.pieces.v[0].like == k.a.pieces.v[1].like);
	cr_expect(k.a.pieces.v[2].like &&
		  k.a.pieces.v[2].like != k.a.pieces.v[0].like);
	cr_expect_eq(k.a.pieces.v[3].like, 0);
	cr_expect_eq(k.a.pieces.v[4].like, 0);
	cr_joined(&k, "rank 0 rank 1");
}

Test(assemble, stretches_are_cut_where_any_begins)
{
	static const uint64_t flat[3][2] = { { 0, 5 }, { 3, 8 }, { 0, 8 } };
	struct kit k;

	setup(&k);
	for (int i = 0; i < 3; i++) {
		const uint64_t zero = 0, eight = 8,
			       len = flat[i][1] - flat[i][0];
		const struct ck_extent x = { .shape = &len,
					     .src = k.a.files.v[i % 2].src,
					     .off = flat[i][0],
					     .dtype = CK_DT_U8,
					     .rank = 1 };
		struct ck_asm_tensor *t = ck_asm_tensor(&k.a, 0, "t", 1);
		struct ck_asm_piece *p = ck_asm_piece(&k.a, t, k.file[i % 2]);

		cr_assert(p &&
			  !ck_asm_set_box(&k.a, p, &zero, &eight, &eight, 1) &&
			  !ck_asm_set_extent(&k.a, p, &x));
		p->is_flat = i < 2;
		memcpy(p->flat, flat[i], sizeof(p->flat));
	}
	cr_expect_str_eq(joined(&k), "");
	cr_expect_eq(k.img.tensors[0].nr, 3, "%u", k.img.tensors[0].nr);
	teardown(&k);
}

Test(assemble, pieces_are_sorted_and_names_are_tied)
{
	struct ck_asm_tensor *t;
	struct kit k;
	uint32_t first;

	setup(&k);
	piece(&k, 1, 4, 20, true);
	piece(&k, 0, 4, 20, true);
	piece(&k, 1, 0, 10, true);
	cr_assert_eq(ck_asm_sort(&k.a), 0);
	t = &k.a.tensors.v[0];
	first = t->first;
	cr_expect_eq(first, 2);
	cr_expect_eq(k.a.pieces.v[first].next, 1);
	cr_expect_eq(t->last, 0);
	cr_assert_eq(ck_asm_add_alias(&k.a, t, "tied", 4), 0);
	cr_assert_eq(ck_asm_join(&k.a, &err), 0);
	teardown(&k);
}
