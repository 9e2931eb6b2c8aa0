/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what is whole: every layout, both engines, byte for byte. */
#include "core/base/check.h"
#include "tests/lib/shardkit.h"

#include "core/io/read_priv.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t origin[8];
static const char *const engines[] = { "plain", "uring" };

TestSuite(read, .timeout = 60);

#define EACH_ENGINE(e)                                              \
	for (const char *e = engines[0], *e##_next = engines[1]; e; \
	     e = e##_next, e##_next = NULL)

static void check(struct shardkit *k, unsigned nr)
{
	EACH_ENGINE(e)
	{
		if (!ck_engine_choose(e, NULL))
			continue;
		sk_open(k, e);
		sk_read_all(k, nr);
		cr_expect_eq(k->r->stats.failed, 0);
		sk_close(k);
	}
	sk_free(k);
}

Test(read, cut_along_rows)
{
	struct shardkit k;

	sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 96, 333 });
	sk_cut(&k, 0, 7);
	check(&k, 200);
}

Test(read, cut_along_columns_with_long_runs)
{
	struct shardkit k;

	sk_init(&k, CK_DT_BF16, 2, (uint64_t[]){ 64, 8 * 2048 });
	sk_cut(&k, 1, 8);
	sk_open(&k, "plain");
	sk_read_all(&k, 1);
	/* One vectored read a shard and piece. */
	cr_expect_leq(k.r->stats.source_reads, 8u * 2 + 8);
	sk_close(&k);
	check(&k, 100);
}

Test(read, cut_along_columns_with_short_runs)
{
	struct shardkit k;

	sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 3000, 8 * 3 });
	sk_cut(&k, 1, 8);
	check(&k, 100);
}

Test(read, cut_in_the_middle_of_three_axes)
{
	struct shardkit k;

	sk_init(&k, CK_DT_U8, 3, (uint64_t[]){ 20, 30, 400 });
	sk_cut(&k, 1, 4);
	check(&k, 200);
}

/* How many files of @dir this process has open. */
static unsigned open_now(const char *dir)
{
	char name[64], to[256];
	unsigned nr = 0;

	for (int i = 0; i < 1024; i++) {
		ssize_t n;

		snprintf(name, sizeof(name), "/proc/self/fd/%d", i);
		n = readlink(name, to, sizeof(to) - 1);
		to[n > 0 ? n : 0] = 0;
		nr += n > 0 && !strncmp(to, dir, strlen(dir)) &&
		      to[strlen(dir)] == '/';
	}
	return nr;
}

Test(read, more_sources_than_a_batch_holds)
{
	struct shardkit k;

	sk_init(&k, CK_DT_U8, 2, (uint64_t[]){ 8, 300 * 700 });
	sk_cut(&k, 1, 300);
	k.in.max_files = 5;
	sk_open(&k, "uring");
	sk_read_all(&k, 10);
	cr_expect_leq(open_now(k.dir), 5u);
	sk_close(&k);
	check(&k, 10);
}

Test(read, few_descriptors)
{
	struct rlimit rl;
	struct shardkit k;

	sk_init(&k, CK_DT_U8, 2, (uint64_t[]){ 8, 100 * 700 });
	sk_cut(&k, 1, 100);
	k.in.max_files = 1000;
	sk_open(&k, "plain");
	getrlimit(RLIMIT_NOFILE, &rl);
	rl.rlim_cur = 40;
	setrlimit(RLIMIT_NOFILE, &rl);
	sk_read_all(&k, 10);
	sk_free(&k);
}

Test(read, more_runs_than_a_plan_holds)
{
	struct shardkit k;

	sk_init(&k, CK_DT_U8, 2, (uint64_t[]){ 5000, 2 * 600 });
	sk_cut(&k, 1, 2);
	check(&k, 5);
}

Test(read, transposed)
{
	struct shardkit k;
	struct sk_part p = { .file = "t", .start = origin, .pad = 3 };

	sk_init(&k, CK_DT_BF16, 2, (uint64_t[]){ 600, 700 });
	p.len = k.shape;
	p.stride = (int64_t[]){ 1, 600 };
	sk_part(&k, &p);
	check(&k, 100);
}

/* Bytes from malloc() in use; a sanitizer's own says 0. */
static size_t allocated(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

Test(read, transposed_with_a_small_cache)
{
	struct shardkit k;
	struct sk_part p = { .file = "t", .start = origin };
	size_t before;

	sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 2000, 700 });
	p.len = k.shape;
	p.stride = (int64_t[]){ 1, 2000 };
	sk_part(&k, &p);
	k.in.cache_mem = 1000;
	sk_open(&k, "plain");
	sk_read_all(&k, 10); /* no tile fits: what a thread keeps it has now */
	sk_close(&k);
	k.in.cache_mem = 1 << 20;
	sk_open(&k, "plain");
	before = allocated();
	sk_read_all(&k, 50);
	cr_expect_leq(allocated(), before + (1 << 20) + 65536);
	sk_close(&k);
	k.in.cache_mem = 1000;
	check(&k, 10);
}

Test(read, channels_last_backwards_and_padded)
{
	struct shardkit k;
	struct sk_part p = { .file = "t", .start = origin, .pad = 100 };

	sk_init(&k, CK_DT_F16, 4, (uint64_t[]){ 5, 7, 11, 13 });
	p.len = k.shape;
	p.stride = (int64_t[]){ 1100, 1, -100, 7 };
	sk_part(&k, &p);
	check(&k, 200);
}

Test(read, backwards_with_long_runs)
{
	struct shardkit k;
	struct sk_part p = { .file = "t", .start = origin, .pad = 100 };

	sk_init(&k, CK_DT_U8, 2, (uint64_t[]){ 50, 1000 });
	p.len = k.shape;
	p.stride = (int64_t[]){ -1500, 1 };
	sk_part(&k, &p);
	check(&k, 100);
}

Test(read, expanded)
{
	struct shardkit k;
	struct sk_part p = { .file = "t", .start = origin, .pad = 9 };

	sk_init(&k, CK_DT_U8, 3, (uint64_t[]){ 40, 30, 600 });
	for (uint64_t i = 0; i < k.size; i += 600)
		memcpy(k.want + i, k.want + i / 18000 * 18000, 600);
	p.len = k.shape;
	p.stride = (int64_t[]){ 600, 0, 1 };
	sk_part(&k, &p);
	check(&k, 100);
}

Test(read, flat_ranges)
{
	struct shardkit k;
	struct sk_part p = { .start = origin };
	const uint64_t cut[] = { 0, 1, 777, 5000, 70 * 90 };
	char name[] = "f0";

	sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 70, 90 });
	p.len = k.shape;
	for (unsigned i = 0; i < 4; i++) {
		name[1] = (char)('0' + i);
		p.file = name;
		p.flat = cut + i;
		p.pad = i * 5;
		sk_part(&k, &p);
	}
	check(&k, 200);
}

/* What is stored is what the transform makes @k->want of. */
static void transformed(enum ck_dtype dtype, uint8_t xform, unsigned part,
			bool rows)
{
	struct shardkit k;
	struct sk_part p = { .file = "x", .start = origin, .xform = xform };
	const int64_t transposed[] = { 1, 31 };
	unsigned char *plain;

	sk_init(&k, dtype, 2, (uint64_t[]){ 31, 400 });
	p.len = k.shape;
	p.stride = rows ? NULL : transposed;
	plain = malloc(k.size);
	memcpy(plain, k.want, k.size);
	for (uint64_t at = 0; at < k.size; at += part) {
		if (xform == CK_XF_BYTESWAP)
			for (unsigned i = 0; i < part; i++)
				k.want[at + i] = plain[at + part - 1 - i];
		else if (xform == CK_XF_NEG || at / part % 2)
			k.want[at + part - 1] ^= 0x80;
	}
	sk_part(&k, &p);
	memcpy(k.want, plain, k.size);
	free(plain);
	check(&k, 300);
}

Test(read, transforms)
{
	for (int rows = 0; rows < 2; rows++) {
		transformed(CK_DT_F32, CK_XF_BYTESWAP, 4, rows);
		transformed(CK_DT_C64, CK_XF_BYTESWAP, 4, rows);
		transformed(CK_DT_F16, CK_XF_NEG, 2, rows);
		transformed(CK_DT_C128, CK_XF_NEG, 8, rows);
		transformed(CK_DT_C64, CK_XF_CONJ, 4, rows);
	}
}

Test(read, negated_integers)
{
	struct ck_seg seg = { .run = 8, .elem = 4, .xform = CK_XF_NEG };
	int32_t v[2] = { 5, -70000 };

	ck_seg_transform(&seg, CK_DT_I32, (unsigned char *)v);
	cr_expect_eq(v[0], -5);
	cr_expect_eq(v[1], 70000);
}

Test(read, memory)
{
	struct shardkit k;
	struct sk_part p = { .file = "m", .start = origin };
	uint32_t c;

	sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 60, 50 });
	p.len = k.shape;
	p.stride = (int64_t[]){ 1, 60 };
	c = sk_part(&k, &p);
	k.blob = sk_bytes(&k, &p, &k.blob_len, &(uint64_t){ 0 });
	k.ik.srcs.v[k.ik.chunks.v[c].src].kind = CK_SRC_MEM;
	k.ik.srcs.v[k.ik.chunks.v[c].src].len = k.blob_len;
	sk_open(&k, "plain");
	sk_read_all(&k, 100);
	k.blob_len -= 4;
	k.ik.srcs.v[0].len -= 4;
	sk_close(&k);
	sk_open(&k, "plain");
	cr_expect_eq(sk_read(&k, k.size, 0, NULL), -EIO);
	free(k.blob);
	sk_free(&k);
}

/* What read_box gave is what reads of any length give, put together. */
static void read_in_steps(const struct shardkit *k, const struct ck_box *box,
			  const float *want, uint64_t n)
{
	unsigned char *got = malloc(n + 1);
	uint64_t step = 1;

	for (uint64_t at = 0; at < n; at += step, step = step * 3 % 1021) {
		step = CK_MIN(step, n - at);
		cr_assert_eq(ck_reader_read_box_bytes(k->r, 0, box, got + at,
						      step, at, NULL),
			     0);
	}
	cr_expect_arr_eq(got, want, n);
	cr_expect_eq(ck_reader_read_box_bytes(k->r, 0, box, got, 1, n, NULL),
		     -EINVAL);
	cr_expect_eq(ck_reader_read_box_bytes(k->r, 0, box, got, n, 1, NULL),
		     -EINVAL);
	free(got);
}

Test(read, boxes)
{
	static const uint64_t lens[][2] = {
		{ 90, 70 }, { 1, 70 }, { 90, 1 }, { 13, 21 }, { 0, 5 }
	};
	struct shardkit k;
	struct sk_part p = { .start = origin, .file = "t" };

	sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 90, 70 });
	p.len = k.shape;
	p.stride = (int64_t[]){ 1, 90 };
	sk_part(&k, &p);
	sk_open(&k, "uring");
	for (unsigned i = 0; i < 5; i++) {
		struct ck_box box = { .rank = 2,
				      .len = { lens[i][0], lens[i][1] } };
		float *got = calloc(90 * 70 + 1, 4);
		uint64_t n = box.len[0] * box.len[1] * 4;

		box.start[0] = (90 - box.len[0]) / 2;
		box.start[1] = (70 - box.len[1]) / 2;
		cr_assert_eq(ck_reader_read_box(k.r, 0, &box, got, n, NULL), 0);
		for (uint64_t y = 0; y < box.len[0]; y++)
			cr_expect_arr_eq(got + y * box.len[1],
					 k.want + 4 * ((box.start[0] + y) * 70 +
						       box.start[1]),
					 box.len[1] * 4);
		cr_expect_eq(ck_reader_read_box(k.r, 0, &box, got, n + 4, NULL),
			     -EINVAL);
		read_in_steps(&k, &box, got, n);
		box.start[0] = 91;
		cr_expect_eq(ck_reader_read_box(k.r, 0, &box, got, n, NULL),
			     -EINVAL);
		free(got);
	}
	sk_free(&k);
}

Test(read, ranges_are_checked)
{
	struct shardkit k;
	char buf[16];

	sk_init(&k, CK_DT_U8, 1, (uint64_t[]){ 1000 });
	sk_cut(&k, 0, 2);
	sk_open(&k, "plain");
	cr_expect_eq(ck_reader_read(k.r, 0, buf, 0, 1000, NULL), 0);
	cr_expect_eq(ck_reader_read(k.r, 0, buf, 1, 1000, NULL), -EINVAL);
	cr_expect_eq(ck_reader_read(k.r, 0, buf, UINT64_MAX, 1, NULL), -EINVAL);
	sk_free(&k);
}

/* A transposed tensor in rows: about its own bytes, not a page for each. */
Test(read, rows_of_a_transposed_tensor_are_not_amplified)
{
	struct shardkit k;
	struct sk_part p = { .file = "t", .start = origin };

	sk_init(&k, CK_DT_BF16, 2, (uint64_t[]){ 8192, 1024 });
	p.len = k.shape;
	p.stride = (int64_t[]){ 1, 8192 };
	sk_part(&k, &p);
	k.in.cache_mem = 16 << 20;
	sk_open(&k, "plain");
	for (uint64_t row = 0; row < 8192; row += 64)
		cr_assert_eq(sk_read(&k, 64 * 2048, row * 2048, NULL), 0);
	cr_expect_leq(k.r->stats.source_bytes, k.size + k.size / 5);
	cr_expect_leq(k.r->stats.source_reads, 1024u * 4 + 64);
	cr_expect_eq(k.r->stats.tile_misses, 4u);
	sk_free(&k);
}
