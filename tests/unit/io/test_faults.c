/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that fail, shrink, change or go while they are served: the right
 * bytes from a replica, or an error, and never anything else.  sk_read()
 * aborts on a wrong byte.
 */
#include "tests/lib/shardkit.h"

#include "core/io/read_priv.h"
#include "tests/lib/faults.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t origin[8];
static const char *const engines[] = { "plain", "uring" };
static unsigned told;
static uint32_t told_chunk;
static char told_line[CK_ERR_MAX];

static void on_fault(void *ctx, uint32_t tensor, uint32_t chunk,
		     const struct ck_err *err)
{
	(void)ctx, (void)tensor;
	told++;
	told_chunk = chunk;
	snprintf(told_line, sizeof(told_line), "%s", err->msg);
}

static void clear(void)
{
	fault_set(0, 0, 0);
}

TestSuite(faults, .fini = clear, .timeout = 60);

/* Rows in files s0..s3; with @twice each once more in r0..r3. */
static void rows(struct shardkit *k, bool twice)
{
	uint64_t start[2] = { 0 }, len[2];
	char name[] = "r0";

	sk_init(k, CK_DT_F32, 2, (uint64_t[]){ 64, 1000 });
	sk_cut(k, 0, 4);
	len[0] = 16;
	len[1] = 1000;
	for (uint32_t i = 0; twice && i < 4; i++) {
		struct sk_part p = { .file = name,
				     .start = start,
				     .len = len,
				     .replica = true };
		uint32_t ring[2] = { i };

		name[1] = (char)('0' + i);
		start[0] = 16 * i;
		ring[1] = sk_part(k, &p);
		ik_ring(&k->ik, ring, 2);
	}
	k->in.fault = on_fault;
	told = 0;
}

/* Ways to spoil file @name. */
static void cut_short(struct shardkit *k, const char *name)
{
	cr_assert_eq(truncate(sk_path(k, name), 100), 0);
}

static void take_away(struct shardkit *k, const char *name)
{
	cr_assert_eq(unlink(sk_path(k, name)), 0);
}

static void put_other(struct shardkit *k, const char *name)
{
	char junk[65536];

	memset(junk, 1, sizeof(junk));
	sk_put(k, "new", junk, sizeof(junk));
	cr_assert_eq(rename(sk_path(k, "new"), sk_path(k, name)), 0);
}

static void write_into(struct shardkit *k, const char *name)
{
	sk_spoil(k, name, 5000);
}

static void make_link(struct shardkit *k, const char *name)
{
	take_away(k, name);
	cr_assert_eq(symlink("s1", sk_path(k, name)), 0);
}

static const struct {
	void (*spoil)(struct shardkit *k, const char *name);
	int code;
	const char *words;
} ways[] = {
	{ cut_short, EIO, "found 100" },    { take_away, EIO, "s0" },
	{ put_other, ESTALE, "replaced" },  { write_into, ESTALE, "changed" },
	{ make_link, ELOOP, "-o follow=" },
};

Test(faults, a_file_that_is_no_longer_the_one_described)
{
	for (unsigned way = 0; way < 5; way++)
		for (unsigned opened = 0; opened < 2; opened++)
			for (unsigned e = 0; e < 2; e++) {
				struct shardkit k;
				struct ck_err err = { 0 };

				rows(&k, false);
				sk_open(&k, engines[e]);
				if (opened)
					sk_read_all(&k, 3);
				ways[way].spoil(&k, "s0");
				cr_expect_eq(sk_read(&k, 5000, 60000, &err),
					     -ways[way].code, "%u %u: %s", way,
					     opened, err.msg);
				cr_expect(strstr(err.msg, ways[way].words),
					  "%s", err.msg);
				cr_expect_eq(err.code, ways[way].code);
				cr_expect_eq(told, 1u);
				cr_expect_eq(told_chunk, 0u);
				cr_expect_str_eq(told_line, err.msg);
				/* Others are served, and nobody nagged. */
				cr_expect_eq(sk_read(&k, 128000, 64000, NULL),
					     0);
				cr_expect_neq(sk_read(&k, k.size, 0, NULL), 0);
				cr_expect_eq(told, 1u);
				sk_free(&k);
			}
}

Test(faults, a_replica_answers_for_a_corrupt_file)
{
	for (unsigned way = 0; way < 5; way++) {
		struct shardkit k;

		rows(&k, true);
		sk_open(&k, engines[way % 2]);
		sk_read_all(&k, 3);
		ways[way].spoil(&k, "s0");
		ways[way].spoil(&k, "s2");
		ways[way].spoil(&k, "r1");
		sk_read_all(&k, 20);
		cr_expect_eq(told, 2u);
		ways[way].spoil(&k, "r2");
		cr_expect_neq(sk_read(&k, 10, 128000, NULL), 0);
		cr_expect_eq(told, 3u);
		sk_free(&k);
	}
}

Test(faults, a_file_that_comes_back_is_served_again)
{
	struct shardkit k;

	rows(&k, false);
	sk_open(&k, "plain");
	sk_read_all(&k, 3);
	rename(sk_path(&k, "s0"), sk_path(&k, "away"));
	sk_put(&k, "s0", "other", 5);
	sk_read(&k, 100, 0, NULL);
	rename(sk_path(&k, "away"), sk_path(&k, "s0"));
	cr_expect_eq(sk_read(&k, 100, 0, NULL), 0);
	sk_free(&k);
}

/* Each of the first completions fails, is short, fails for good. */
static void all_faults(struct shardkit *k, bool replicas)
{
	for (unsigned e = 0; e < 2; e++) {
		sk_open(k, engines[e]);
		for (long nth = 1; nth <= 24; nth++) {
			struct ck_err err = { 0 };
			int ret;

			fault_set(nth, 1, 0);
			cr_expect_eq(sk_read(k, k->size, 0, &err), 0, "%s",
				     err.msg);
			fault_set(nth, 1, EIO);
			ret = sk_read(k, k->size, 0, &err);
			if (ck_faults[CK_FAULT_READ].left || replicas)
				cr_expect_eq(ret, 0, "%ld: %s", nth, err.msg);
			else
				cr_expect(ret == 0 || ret == -EIO);
			fault_set(nth, 1000, ENOMEM);
			ret = sk_read(k, k->size, 0, &err);
			/* Else there are fewer than @nth of them. */
			cr_expect(ret == -ENOMEM || (!ret && nth > 1), "%d",
				  ret);
			clear();
		}
		fault_set(1, 100000, EIO);
		cr_expect_eq(sk_read(k, k->size, 0, NULL), -EIO);
		clear();
		sk_close(k);
	}
	sk_free(k);
}

Test(faults, completions_of_rows)
{
	struct shardkit k;

	rows(&k, false);
	all_faults(&k, false);
}

Test(faults, completions_of_replicas)
{
	struct shardkit k;

	rows(&k, true);
	all_faults(&k, true);
}

Test(faults, completions_of_columns)
{
	struct shardkit k;

	sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 40, 8 * 500 });
	sk_cut(&k, 1, 8);
	all_faults(&k, false);
}

Test(faults, completions_of_staged_reads_and_tiles)
{
	struct shardkit k;
	struct sk_part p = { .file = "t", .start = origin };

	sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 2000, 40 });
	p.len = k.shape;
	p.stride = (int64_t[]){ 1, 9000 };
	sk_part(&k, &p);
	k.in.cache_mem = 4000;
	all_faults(&k, false);
}

Test(faults, tiles_of_a_changed_file_are_not_used)
{
	struct shardkit k;
	struct sk_part p = { .file = "t", .start = origin };

	sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 4000, 100 });
	p.len = k.shape;
	p.stride = (int64_t[]){ 1, 4000 };
	sk_part(&k, &p);
	sk_open(&k, "plain");
	cr_assert_eq(sk_read(&k, 4000, 0, NULL), 0);
	cr_assert_eq(sk_read(&k, 4000, 4000, NULL), 0);
	cr_expect_eq(k.r->stats.tile_hits, 1u);
	write_into(&k, "t");
	cr_expect_eq(sk_read(&k, 4000, 8000, NULL), -ESTALE);
	sk_free(&k);
}

/* A tile with a bad part: the good bytes of its stretch are still served. */
Test(faults, a_bad_part_in_a_tile)
{
	struct shardkit k;
	uint64_t start[2] = { 0 }, len[2] = { 4000, 50 };
	struct sk_part p = { .file = "a",
			     .start = start,
			     .len = len,
			     .stride = (int64_t[]){ 1, 4000 } };

	sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 8000, 50 });
	sk_part(&k, &p);
	start[0] = 4000;
	p.file = "b";
	sk_part(&k, &p);
	sk_open(&k, "plain");
	take_away(&k, "b");
	cr_expect_eq(sk_read(&k, 20000, 4000 * 200 - 20000, NULL), 0);
	cr_expect_eq(sk_read(&k, 20000, 4000 * 200, NULL), -EIO);
	for (uint64_t at = 0; at < 4000 * 200; at += 20000)
		cr_expect_eq(sk_read(&k, 20000, at, NULL), 0);
	sk_free(&k);
}

Test(faults, holes_and_absent_parts)
{
	struct shardkit k;
	struct ck_err err = { 0 };
	uint64_t start[2] = { 0 }, len[2] = { 10, 100 };
	struct sk_part p = { .file = "a", .start = start, .len = len };
	uint32_t c;

	sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 40, 100 });
	sk_part(&k, &p);
	start[0] = 10;
	p.file = "b";
	c = sk_part(&k, &p);
	k.ik.srcs.v[k.ik.chunks.v[c].src].kind = CK_SRC_ABSENT;
	start[0] = 20;
	p.file = "c";
	c = sk_part(&k, &p);
	k.ik.chunks.v[c].op = CK_OP_ADD;
	sk_open(&k, "plain");
	cr_expect_eq(sk_read(&k, 4000, 0, &err), 0);
	cr_expect_eq(sk_read(&k, 4001, 0, &err), -EIO);
	cr_expect(strstr(err.msg, "b"), "%s", err.msg);
	cr_expect_eq(sk_read(&k, 4, 9000, &err), -EOPNOTSUPP);
	cr_expect(strstr(err.msg, "partial sums"), "%s", err.msg);
	cr_expect_eq(sk_read(&k, 4, 13000, &err), -EIO);
	cr_expect(strstr(err.msg, "the first such byte of the tensor is"), "%s",
		  err.msg);
	sk_free(&k);
}

/* A hostile catalog may say anything of where bytes are. */
Test(faults, places_outside_of_the_file)
{
	static const uint64_t offs[] = { 1000, UINT64_MAX, UINT64_MAX - 4000,
					 UINT64_C(1) << 62, 8 };

	for (unsigned i = 0; i < 5; i++)
		for (unsigned transposed = 0; transposed < 2; transposed++) {
			struct shardkit k;
			struct sk_part p = { .file = "a", .start = origin };
			const int64_t stride[] = { 1, 50 };
			uint32_t c;

			sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 50, 20 });
			p.len = k.shape;
			p.stride = transposed ? stride : NULL;
			c = sk_part(&k, &p);
			k.ik.chunks.v[c].off = offs[i];
			sk_open(&k, "uring");
			cr_expect_eq(sk_read(&k, 4000, 0, NULL), -EIO);
			sk_free(&k);
		}
}

/* Deferred parts: what resolves them is asked once, and may fail. */
static struct ck_resolved *resolved;
static unsigned asked;
static int answer; /* 0: placed; < 0: later; > 0: bad with it */
static bool spoils; /* the replica */

static int resolve(void *ctx, uint32_t chunk, struct ck_err *err)
{
	struct shardkit *k = ctx;
	const struct ck_chunk *c = &k->img.chunks[chunk];
	struct ck_place place = { .off = c->off };
	char byte;

	asked++;
	cr_assert_eq(ck_reader_source(k->r, c->src, &byte, 1, 0, err), 0);
	if (answer < 0)
		return ck_fail(err, -answer, "not now");
	if (answer > 0)
		return ck_resolved_put_bad(resolved, chunk, answer);
	return ck_resolved_put(resolved, chunk, &place, 2);
}

static void deferred(struct shardkit *k, bool twice)
{
	uint64_t start[2] = { 0 }, len[2] = { 20, 100 };
	struct sk_part p = { .start = start, .len = len, .item_len = 8000 };

	sk_init(k, CK_DT_F32, 2, (uint64_t[]){ 40, 100 });
	p.file = "a";
	sk_part(k, &p);
	start[0] = 20;
	p.file = "b";
	sk_part(k, &p);
	if (twice) {
		p.item_len = 0;
		p.replica = true;
		p.file = "c";
		ik_ring(&k->ik, (uint32_t[]){ 1, sk_part(k, &p) }, 2);
	}
	if (spoils) {
		struct stat st;

		sk_spoil(k, "c", 40);
		cr_assert_eq(stat(sk_path(k, "c"), &st), 0);
		k->ik.srcs.v[k->ik.chunks.v[2].src].id = ck_id_of(&st);
	}
	resolved = ck_resolved_new(3);
	asked = 0;
	k->in.resolved = resolved;
	k->in.resolve = resolve;
	k->in.resolve_ctx = k;
	sk_open(k, "uring");
}

Test(faults, deferred_parts_are_resolved_once)
{
	struct shardkit k;

	answer = 0;
	deferred(&k, false);
	sk_read_all(&k, 50);
	cr_expect_eq(asked, 2u);
	cr_expect_eq(k.r->stats.resolved, 2u);
	sk_free(&k);
	ck_resolved_free(resolved);
}

Test(faults, bad_deferred_parts)
{
	struct shardkit k;
	struct ck_err err = { 0 };

	answer = -EAGAIN;
	deferred(&k, false);
	cr_expect_eq(sk_read(&k, k.size, 0, &err), -EAGAIN);
	cr_expect_str_eq(err.msg, "not now");
	answer = EIO;
	cr_expect_eq(sk_read(&k, k.size, 0, &err), -EIO);
	cr_expect_eq(asked, 2u);
	cr_expect_eq(sk_read(&k, 8, 0, &err), -EIO);
	cr_expect(strstr(err.msg, "a: the item"), "%s", err.msg);
	cr_expect_eq(asked, 2u);
	answer = 0;
	cr_expect_eq(sk_read(&k, 8000, 8000, &err), 0);
	sk_free(&k);
	ck_resolved_free(resolved);
}

Test(faults, a_replica_answers_for_a_bad_item)
{
	struct shardkit k;

	answer = EIO;
	deferred(&k, true);
	cr_expect_eq(sk_read(&k, 8000, 8000, NULL), 0);
	cr_expect_eq(sk_read(&k, 8000, 8000, NULL), 0);
	cr_expect_eq(asked, 1u);
	sk_free(&k);
	ck_resolved_free(resolved);
}

static void differ(void *ctx, uint32_t a, uint32_t b, uint64_t off,
		   uint64_t len, const struct ck_err *why)
{
	uint64_t *got = ctx;

	cr_expect_eq(a, 1u);
	cr_expect_eq(b, why ? 1u : 2u);
	cr_expect(why || (off >= 8040 && off + len <= 8046));
	got[0] += !why;
	got[1] += why && !strcmp(why->msg, "not now");
}

static bool counts(void *ctx, uint32_t t, uint32_t chunk, uint64_t off,
		   uint64_t len)
{
	(void)ctx, (void)t, (void)off, (void)len;
	return chunk == 1;
}

static int put(void *ctx, uint32_t t, const void *buf, uint64_t len,
	       uint64_t off, struct ck_err *err)
{
	const struct shardkit *k = ctx;

	(void)t, (void)err;
	answer++;
	cr_expect_arr_eq(buf, k->want + off, len);
	return 0;
}

/* Whatever was resolved before: a file that was touched makes it unknown again. */
Test(faults, replicas_of_an_item_that_is_not_known)
{
	struct shardkit k;
	const struct ck_mend mend = { .ctx = &k, .counts = counts, .put = put };
	uint64_t got[2] = { 0 };
	struct ck_err err = { 0 };

	spoils = true;
	answer = 0;
	deferred(&k, true);
	for (unsigned i = 1; i < 3; i++, ck_resolved_forget(resolved, 1)) {
		uint64_t was = got[0];

		cr_expect_eq(ck_reader_replicas(k.r, 0, differ, got, &err), 0);
		cr_expect(got[0] > was, "that they differ is not seen");
		cr_expect_eq(asked, 2 * i); /* the other part's is known */
		ck_resolved_forget(resolved, 1);
		answer = 0;
		cr_expect_eq(ck_reader_mend(k.r, 0, &mend, &err), 0);
		cr_expect_eq(answer, 1, "that they differ is not mended");
		answer = 0;
	}
	answer = -EAGAIN;
	cr_expect_eq(ck_reader_replicas(k.r, 0, differ, got, &err), 0);
	cr_expect_eq(got[1], 1u);
	cr_expect_eq(ck_reader_mend(k.r, 0, &mend, &err), -EAGAIN);
	cr_expect_str_eq(err.msg, "not now");
	sk_free(&k);
	ck_resolved_free(resolved);
}

Test(faults, environment)
{
	struct ck_err err = { 0 };

	setenv("UNSHARD_FAULT", "read:3:2:5", 1);
	cr_expect_eq(ck_fault_from_env(&err), 0);
	cr_expect_eq(ck_fault(100), 100);
	cr_expect_eq(ck_fault(100), 100);
	cr_expect_eq(ck_fault(100), -5);
	cr_expect_eq(ck_fault(100), -5);
	cr_expect_eq(ck_fault(100), 100);
	setenv("UNSHARD_FAULT", "seek:1", 1);
	cr_expect_eq(ck_fault_from_env(&err), -EINVAL);
}
