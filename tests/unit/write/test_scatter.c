/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes at random into tensors that are cut, turned, mirrored, flat, swapped
 * and copied; then each file is what the tensor's bytes make of it, with no
 * byte of a gap changed.
 */
#include "core/write/writer.h"

#include "core/base/auto.h"
#include "tests/lib/shardkit.h"
#include "tests/lib/faults.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct kit {
	struct shardkit k;
	struct ck_writer *w;
	struct ck_edit *e;
	const struct sk_part *part;
	unsigned nr;
};

static void open_kit(struct kit *t, const char *engine,
		     const struct sk_part *part, unsigned nr)
{
	struct ck_err err = { 0 };

	t->part = part;
	t->nr = nr;
	for (unsigned i = 0; i < nr; i++)
		sk_part(&t->k, &part[i]);
	t->k.in.write = true;
	sk_open(&t->k, engine);
	cr_assert_eq(ck_writer_new(&t->w, t->k.r, &err), 0, "%s", err.msg);
	t->e = ck_edit_new(t->w);
	cr_assert(t->e);
}

static void close_kit(struct kit *t)
{
	ck_edit_free(t->e);
	ck_writer_free(t->w);
	sk_close(&t->k);
	sk_free(&t->k);
}

static void write_at(struct kit *t, uint64_t off, uint64_t len, uint64_t seed)
{
	struct ck_err err = { 0 };

	for (uint64_t i = 0; i < len; i++)
		t->k.want[off + i] = (unsigned char)(seed + i * 13);
	cr_assert_eq(
		ck_writer_write(t->w, t->e, 0, t->k.want + off, len, off, &err),
		0, "%s", err.msg);
}

/* Every file, also what lies between and around its elements. */
static void check_files(struct kit *t)
{
	for (unsigned i = 0; i < t->nr; i++) {
		const struct sk_part *p = &t->part[i];
		uint64_t len, first;
		ck_auto_free unsigned char *want =
			sk_bytes(&t->k, p, &len, &first);
		ck_auto_free unsigned char *got = malloc(p->pad + len + 7);
		FILE *f = fopen(sk_path(&t->k, p->file), "r");

		cr_assert(f);
		cr_assert_eq(fread(got, 1, p->pad + len + 7, f),
			     p->pad + len + 7);
		fclose(f);
		for (uint64_t b = 0; b < p->pad; b++)
			cr_assert_eq(got[b], 0xaa, "%s: byte %lu before it",
				     p->file, (unsigned long)b);
		if (!p->xform)
			cr_assert_arr_eq(got + p->pad, want, len, "%s",
					 p->file);
		for (uint64_t b = 0; b < 7; b++)
			cr_assert_eq(got[p->pad + len + b], 0xaa,
				     "%s: after it", p->file);
	}
}

static void churn(struct kit *t, unsigned nr)
{
	uint64_t state = nr, size = t->k.size;
	struct ck_err err = { 0 };

	write_at(t, 0, size, 1);
	sk_read_all(&t->k, 10);
	for (unsigned i = 0; i < nr; i++) {
		uint64_t off = sk_random(&state) % size;
		uint64_t most = sk_random(&state) % 4 ? 50 : size;
		uint64_t len = sk_random(&state) % most;

		len = len < size - off ? len : size - off;
		write_at(t, off, len, i);
		cr_assert_eq(sk_read(&t->k, len, off, &err), 0, "%s", err.msg);
	}
	sk_read_all(&t->k, 20);
	check_files(t);
	cr_expect_eq(ck_edit_sync(t->e, &err), 0, "%s", err.msg);
}

static void both(enum ck_dtype dtype, unsigned rank, const uint64_t *shape,
		 const struct sk_part *part, unsigned nr)
{
	static const char *const engines[] = { "plain", "uring" };

	for (unsigned i = 0; i < 2; i++) {
		struct kit t = { .w = NULL };

		sk_init(&t.k, dtype, rank, shape);
		open_kit(&t, engines[i], part, nr);
		churn(&t, 60);
		close_kit(&t);
	}
}

#define V(...)              \
	(const uint64_t[])  \
	{                   \
		__VA_ARGS__ \
	}
#define S(...)              \
	(const int64_t[])   \
	{                   \
		__VA_ARGS__ \
	}

Test(scatter, cut_along_the_last_axis, .timeout = 60)
{
	const struct sk_part part[] = {
		{ .file = "a", .start = V(0, 0), .len = V(40, 900), .pad = 13 },
		{ .file = "b", .start = V(0, 900), .len = V(40, 100) },
		{ .file = "c", .start = V(0, 1000), .len = V(40, 1), .pad = 5 },
	};

	both(CK_DT_F32, 2, V(40, 1001), part, 3);
}

Test(scatter, turned_strided_and_mirrored, .timeout = 60)
{
	const struct sk_part part[] = {
		{ .file = "turned",
		  .start = V(0, 0),
		  .len = V(30, 70),
		  .stride = S(1, 30),
		  .pad = 3 },
		{ .file = "gaps",
		  .start = V(30, 0),
		  .len = V(20, 70),
		  .stride = S(1000, 3) },
		{ .file = "mirror",
		  .start = V(50, 0),
		  .len = V(50, 70),
		  .stride = S(-70, -1),
		  .pad = 9 },
	};

	both(CK_DT_I16, 2, V(100, 70), part, 3);
}

Test(scatter, all_replicas, .timeout = 60)
{
	struct kit t = { .w = NULL };
	const struct sk_part part[] = {
		{ .file = "one", .start = V(0, 0), .len = V(50, 60) },
		{ .file = "two",
		  .start = V(0, 0),
		  .len = V(50, 60),
		  .stride = S(1, 50),
		  .pad = 100,
		  .replica = true },
		{ .file = "three",
		  .start = V(0, 0),
		  .len = V(50, 60),
		  .stride = S(61, 1),
		  .pad = 1,
		  .replica = true },
	};

	sk_init(&t.k, CK_DT_F64, 2, V(50, 60));
	for (unsigned i = 0; i < 3; i++)
		sk_part(&t.k, &part[i]);
	ik_ring(&t.k.ik, (const uint32_t[]){ 0, 1, 2 }, 3);
	open_kit(&t, "plain", part, 0);
	t.nr = 3;
	churn(&t, 60);
	close_kit(&t);
}

Test(scatter, flat_pieces, .timeout = 60)
{
	const struct sk_part part[] = {
		{ .file = "a",
		  .start = V(0, 0),
		  .len = V(40, 50),
		  .flat = V(0, 777) },
		{ .file = "b",
		  .start = V(0, 0),
		  .len = V(40, 50),
		  .flat = V(777, 2000),
		  .pad = 11 },
	};

	both(CK_DT_BF16, 2, V(40, 50), part, 2);
}

/* Parts of elements are read, changed and written. */
Test(scatter, transforms_and_their_inverse, .timeout = 60)
{
	static const struct {
		uint8_t xform;
		enum ck_dtype dtype;
	} all[] = { { CK_XF_BYTESWAP, CK_DT_F32 },
		    { CK_XF_CONJ, CK_DT_C64 },
		    { CK_XF_NEG, CK_DT_I32 },
		    { CK_XF_NEG, CK_DT_F16 } };

	for (unsigned i = 0; i < 4; i++) {
		const struct sk_part part[] = {
			{ .file = "a",
			  .start = V(0, 0),
			  .len = V(30, 20),
			  .stride = S(1, 30),
			  .pad = 2,
			  .xform = all[i].xform },
			{ .file = "b",
			  .start = V(0, 20),
			  .len = V(30, 600),
			  .pad = 8,
			  .xform = all[i].xform },
		};

		both(all[i].dtype, 2, V(30, 620), part, 2);
	}
}

Test(scatter, refused_as_a_whole)
{
	struct kit t = { .w = NULL };
	unsigned char bytes[400] = { 0 };
	struct ck_err err = { 0 };
	const struct sk_part part[] = {
		{ .file = "a", .start = V(0, 0), .len = V(10, 5) },
		{ .file = "b",
		  .start = V(0, 5),
		  .len = V(10, 5),
		  .stride = S(0, 1) }, /* ten rows in one place */
	};

	sk_init(&t.k, CK_DT_F32, 2, V(10, 10));
	open_kit(&t, "plain", part, 2);
	t.nr = 1;
	cr_expect_eq(ck_writer_write(t.w, t.e, 0, bytes, 400, 0, &err), -EROFS);
	cr_expect(strstr(err.msg, "same bytes"), "%s", err.msg);
	check_files(&t);
	cr_expect_eq(ck_writer_write(t.w, t.e, 0, bytes, 10, 395, &err),
		     -EFBIG);
	cr_expect_eq(ck_writer_write(t.w, t.e, 0, bytes, 1, 400, &err), -EFBIG);
	check_files(&t);
	/* the good part alone */
	write_at(&t, 4, 16, 3);
	check_files(&t);
	close_kit(&t);
}

Test(scatter, a_file_that_is_not_ours_any_more)
{
	struct kit t = { .w = NULL };
	unsigned char byte = 1;
	struct ck_err err = { 0 };
	const struct sk_part part = { .file = "a",
				      .start = V(0),
				      .len = V(5000) };
	struct timespec then[2] = { { 1, 0 }, { 1, 0 } };

	sk_init(&t.k, CK_DT_U8, 1, V(5000));
	open_kit(&t, "plain", &part, 1);
	for (unsigned i = 0; i < 50; i++) /* our own are never taken for it */
		write_at(&t, i * 100, 77, i);
	cr_expect_eq(sk_read(&t.k, 5000, 0, &err), 0, "%s", err.msg);
	cr_assert_eq(utimensat(AT_FDCWD, sk_path(&t.k, "a"), then, 0), 0);
	cr_expect_eq(ck_writer_write(t.w, t.e, 0, &byte, 1, 0, &err), -ESTALE);
	cr_expect_eq(sk_read(&t.k, 10, 0, &err), -ESTALE);
	close_kit(&t);
}

Test(scatter, failures_reach_the_caller, .timeout = 60)
{
	struct kit t = { .w = NULL };
	unsigned char *bytes = calloc(1, 60000);
	struct ck_err err = { 0 };
	const struct sk_part part[] = {
		{ .file = "a", .start = V(0, 0), .len = V(60, 500) },
		{ .file = "b", .start = V(0, 500), .len = V(60, 500) },
	};

	sk_init(&t.k, CK_DT_U8, 2, V(60, 1000));
	open_kit(&t, "plain", part, 2);
	for (long nth = 1; nth <= 2; nth++) {
		fault_set_kind(CK_FAULT_WRITE, nth, 1, ENOSPC);
		cr_expect_eq(
			ck_writer_write(t.w, t.e, 0, bytes, 60000, 0, &err),
			-ENOSPC, "%ld", nth);
	}
	write_at(&t, 0, 60000, 5);
	check_files(&t);
	/* one failed sync dooms its file, for every edit, and no other file */
	fault_set_kind(CK_FAULT_SYNC, 1, 1, EIO);
	cr_expect_eq(ck_edit_sync(t.e, &err), -EIO);
	cr_expect_eq(ck_edit_sync(t.e, &err), -EIO);
	{
		struct ck_edit *other = ck_edit_new(t.w);

		cr_expect_eq(
			ck_writer_write(t.w, other, 0, bytes, 500, 500, &err),
			0);
		cr_expect_eq(ck_edit_sync(other, &err), 0, "%s", err.msg);
		cr_expect_eq(
			ck_writer_write(t.w, other, 0, bytes, 500, 0, &err), 0);
		cr_expect_eq(ck_edit_sync(other, &err), -EIO);
		ck_edit_free(other);
	}
	close_kit(&t);
	free(bytes);
}
