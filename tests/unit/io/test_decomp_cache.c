/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed items: decoded once, bounded, and refused by one line. */
#include "tests/lib/shardkit.h"

#include "core/base/limits.h"
#include "core/base/helpers.h"
#include "core/io/read_priv.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

TestSuite(decomp_cache, .timeout = 60);

enum { ROWS = 100, COLS = 1000, ITEM = ROWS * COLS * 4 };

/* What a test does to the compressed bytes; returns how many there are. */
typedef size_t (*spoil_fn)(unsigned char *z, size_t len, size_t room);

/* Tensor of @nr items, each compressed behind 100 other bytes in file z<i>. */
static void items(struct shardkit *k, unsigned nr, spoil_fn spoil)
{
	uint64_t start[2] = { 0 }, len[2] = { ROWS, COLS };
	size_t room = ZSTD_compressBound(ITEM) + 1000;

	sk_init(k, CK_DT_F32, 2, (uint64_t[]){ ROWS * nr, COLS });
	for (uint64_t i = 0; i < k->size; i++)
		k->want[i] = (unsigned char)(i / 100 * 7);
	for (unsigned i = 0; i < nr; i++) {
		struct sk_part p = { .file = "raw",
				     .start = start,
				     .len = len };
		unsigned char *z = calloc(1, room + 100);
		uint32_t c, parent, src;
		char name[16];
		size_t n;

		snprintf(name, sizeof(name), "z%u", i);
		start[0] = i * ROWS;
		n = ZSTD_compress(z + 100, room, k->want + i * ITEM, ITEM, 3);
		if (spoil)
			n = spoil(z + 100, n, room);
		sk_put(k, name, z, 100 + n);
		free(z);
		c = sk_part(k, &p);
		parent = sk_src(k, name);
		src = ik_src(&k->ik, CK_SRC_CODEC, name, n);
		k->ik.srcs.v[src].off = 100;
		k->ik.srcs.v[src].parent = parent;
		k->ik.srcs.v[src].codec = CK_CODEC_ZSTD;
		k->ik.chunks.v[c].src = src;
		k->ik.chunks.v[c].off = 0;
	}
}

Test(decomp_cache, decoded_once)
{
	struct shardkit k;
	uint64_t size;

	items(&k, 3, NULL);
	sk_open(&k, "uring");
	sk_read_all(&k, 50);
	cr_expect_eq(k.r->stats.spooled_bytes, k.size);
	cr_expect_eq(ck_reader_source_size(k.r, 2, &size, NULL), 0);
	cr_expect_eq(size, (uint64_t)ITEM);
	sk_free(&k);
}

static unsigned names_in(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned nr = 0;

	while (readdir(d))
		nr++;
	closedir(d);
	return nr;
}

Test(decomp_cache, leaves_no_name_behind)
{
	struct shardkit k;
	unsigned before;

	items(&k, 2, NULL);
	before = names_in(k.dir);
	sk_open(&k, "plain");
	sk_read_all(&k, 1);
	cr_expect_eq(names_in(k.dir), before);
	sk_free(&k);
}

Test(decomp_cache, idle_items_make_room)
{
	struct shardkit k;

	items(&k, 4, NULL);
	k.in.spool_max = 2 * ITEM + 1000;
	sk_open(&k, "plain");
	for (unsigned round = 0; round < 2; round++)
		for (unsigned i = 0; i < 4; i++)
			cr_expect_eq(sk_read(&k, ITEM, i * ITEM, NULL), 0);
	cr_expect_eq(k.r->stats.spooled_bytes, 8u * ITEM);
	cr_expect_eq(sk_read(&k, 100, 3 * ITEM, NULL), 0);
	cr_expect_eq(sk_read(&k, 100, 2 * ITEM, NULL), 0);
	cr_expect_eq(k.r->stats.spooled_bytes, 8u * ITEM);
	sk_free(&k);
}

static size_t cut(unsigned char *z, size_t len, size_t room)
{
	(void)z, (void)room;
	return len - 5;
}

static size_t flip(unsigned char *z, size_t len, size_t room)
{
	(void)room;
	z[1] ^= 0x10;
	return len;
}

static size_t junk(unsigned char *z, size_t len, size_t room)
{
	(void)room;
	memset(z + len, 'x', 50);
	return len + 50;
}

static size_t none(unsigned char *z, size_t len, size_t room)
{
	(void)z, (void)len, (void)room;
	return 0;
}

static size_t bomb(unsigned char *z, size_t len, size_t room)
{
	void *zeros = calloc(1, 64 << 20);

	(void)len;
	len = ZSTD_compress(z, room, zeros, 64 << 20, 1);
	free(zeros);
	cr_assert(!ZSTD_isError(len));
	return len;
}

static size_t shorter(unsigned char *z, size_t len, size_t room)
{
	(void)len;
	return ZSTD_compress(z, room, "short", 5, 1);
}

static void refused(spoil_fn spoil, const char *words)
{
	struct shardkit k;
	struct ck_err err = { 0 };

	items(&k, 1, spoil);
	k.in.spool_max = 32 << 20;
	sk_open(&k, "plain");
	for (unsigned i = 0; i < 3; i++) {
		cr_expect_eq(sk_read(&k, 1000, 1000, &err), -EIO);
		cr_expect(strstr(err.msg, words), "%s", err.msg);
		cr_expect(strstr(err.msg, "z0"), "%s", err.msg);
		cr_expect_eq(err.code, EIO);
	}
	sk_free(&k);
}

Test(decomp_cache, bad_items)
{
	refused(cut, "ends inside a frame");
	refused(flip, "compressed item at byte 100");
	refused(junk, "compressed item at byte 100");
	refused(none, "lies outside");
	refused(bomb, "unpacks to more than the tensor has");
	refused(shorter, "but it has 5");
}

/* Little more than the elements, whatever a description may take, is written. */
Test(decomp_cache, what_nobody_wants_is_not_unpacked)
{
	struct shardkit k;

	items(&k, 1, bomb);
	sk_open(&k, "plain");
	cr_expect_eq(sk_read(&k, 1000, 0, NULL), -EIO);
	cr_expect_leq(k.r->stats.spooled_bytes, ITEM + CK_MAX_ITEM_REST);
	cr_expect_gt(k.r->stats.spooled_bytes, (uint64_t)ITEM);
	sk_free(&k);
}

Test(decomp_cache, no_room_in_the_spool)
{
	struct shardkit k;
	struct ck_err err = { 0 };

	items(&k, 1, NULL);
	k.in.spool_max = ITEM - 1;
	sk_open(&k, "plain");
	cr_expect_eq(sk_read(&k, 1000, 0, &err), -EIO);
	cr_expect(strstr(err.msg, "needs more than"), "%s", err.msg);
	sk_free(&k);
}

Test(decomp_cache, a_bad_item_is_decoded_once)
{
	struct shardkit k;
	uint64_t before;

	items(&k, 1, cut);
	sk_open(&k, "plain");
	cr_expect_eq(sk_read(&k, 1000, 0, NULL), -EIO);
	before = k.r->stats.source_bytes;
	cr_expect_eq(sk_read(&k, 1000, 0, NULL), -EIO);
	cr_expect_eq(k.r->stats.source_bytes, before);
	sk_free(&k);
}

static size_t two_frames(unsigned char *z, size_t len, size_t room)
{
	unsigned char *plain = malloc(ITEM);
	size_t n, first = 123457;

	cr_assert_eq(ZSTD_decompress(plain, ITEM, z, len), (size_t)ITEM);
	n = ZSTD_compress(z, room, plain, first, 3);
	n += ZSTD_compress(z + n, room - n, plain + first, ITEM - first, 3);
	free(plain);
	return n;
}

Test(decomp_cache, frames_in_a_row)
{
	struct shardkit k;

	items(&k, 1, two_frames);
	sk_open(&k, "plain");
	sk_read_all(&k, 10);
	sk_free(&k);
}

Test(decomp_cache, the_file_changed_after_decoding)
{
	struct shardkit k;
	struct ck_err err = { 0 };

	items(&k, 1, NULL);
	sk_open(&k, "plain");
	sk_read_all(&k, 1);
	sk_spoil(&k, "z0", 0);
	cr_expect_eq(sk_read(&k, 10, 0, &err), -ESTALE);
	unlink(sk_path(&k, "z0"));
	cr_expect_eq(sk_read(&k, 10, 0, &err), -EIO);
	sk_free(&k);
}

Test(decomp_cache, no_directory)
{
	struct shardkit k;
	struct ck_err err = { 0 };

	items(&k, 1, NULL);
	k.in.spool_dir = "/nonexistent/spool";
	sk_open(&k, "plain");
	cr_expect_eq(sk_read(&k, 10, 0, &err), -EIO);
	cr_expect(strstr(err.msg, "-o spool=DIR"), "%s", err.msg);
	sk_free(&k);
}

Test(decomp_cache, few_descriptors)
{
	struct rlimit rl;
	struct shardkit k;

	items(&k, 70, NULL);
	getrlimit(RLIMIT_NOFILE, &rl);
	rl.rlim_cur = 80;
	setrlimit(RLIMIT_NOFILE, &rl);
	sk_open(&k, "plain");
	for (unsigned i = 0; i < 70; i++)
		cr_expect_eq(sk_read(&k, 100, i * ITEM, NULL), 0);
	sk_free(&k);
}

/* As on a full disk; once there is room it works. */
Test(decomp_cache, no_room_on_the_disk)
{
	struct rlimit rl;
	struct shardkit k;
	struct ck_err err = { 0 };

	items(&k, 1, NULL);
	sk_open(&k, "plain");
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &rl);
	rl.rlim_cur = 150000;
	setrlimit(RLIMIT_FSIZE, &rl);
	cr_expect_eq(sk_read(&k, 10, 0, &err), -EIO);
	cr_expect(strstr(err.msg, "-o spool=DIR"), "%s", err.msg);
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_FSIZE, &rl);
	cr_expect_eq(sk_read(&k, 10, 0, &err), 0);
	sk_free(&k);
}

/* A tensor of compressed items whose source is compressed again. */
Test(decomp_cache, compressed_twice)
{
	struct shardkit k;

	items(&k, 1, NULL);
	k.ik.srcs.v[k.ik.chunks.v[0].src].parent = k.ik.chunks.v[0].src;
	sk_open(&k, "plain");
	cr_expect_eq(sk_read(&k, 10, 0, NULL), -EIO);
	sk_free(&k);
}

static void *reads(void *arg)
{
	struct shardkit *k = arg;
	uint64_t state = (uintptr_t)&state | 1;

	for (unsigned i = 0; i < 60; i++) {
		uint64_t off = sk_random(&state) % (k->size - 5000);

		cr_assert_eq(sk_read(k, 5000, off, NULL), 0);
	}
	return NULL;
}

Test(decomp_cache, threads_wait_for_one_decoding)
{
	struct shardkit k;
	pthread_t t[8];

	items(&k, 4, NULL);
	sk_open(&k, "plain");
	for (unsigned i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, reads, &k);
	for (unsigned i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	cr_expect_eq(k.r->stats.spooled_bytes, k.size);
	sk_free(&k);
}

static bool after_some(void *left)
{
	return (*(int *)left)-- <= 0;
}

static void count_fault(void *nr, uint32_t tensor, uint32_t chunk,
			const struct ck_err *err)
{
	(void)tensor, (void)chunk, (void)err;
	(*(unsigned *)nr)++;
}

/* Whoever waits can stop: then nothing is wrong with the item. */
Test(decomp_cache, unpacking_stops)
{
	struct shardkit k;
	struct ck_err err = { 0 };
	unsigned faults = 0;
	int left = 1;

	items(&k, 1, NULL);
	k.in.fault = count_fault;
	k.in.fault_ctx = &faults;
	sk_open(&k, "plain");
	ck_stop_after_ms = 0;
	ck_stop_by(after_some, &left);
	cr_expect_eq(sk_read(&k, 10, 0, &err), -EINTR);
	cr_expect(strstr(err.msg, "interrupted"), "%s", err.msg);
	cr_expect_lt(k.r->stats.spooled_bytes, (uint64_t)ITEM);
	cr_expect_eq(faults, 0u);
	ck_stop_by(NULL, NULL);
	cr_expect_eq(sk_read(&k, 10, 0, NULL), 0);
	sk_free(&k);
}

struct waiter {
	struct shardkit *k;
	int ret;
};

static void *waits(void *arg)
{
	struct waiter *w = arg;
	int left = 0;

	ck_stop_by(after_some, &left);
	w->ret = sk_read(w->k, 10, 0, NULL);
	ck_stop_by(NULL, NULL);
	return NULL;
}

/* So can one who waits for another's unpacking, which goes on. */
static bool another_waits(void *arg)
{
	struct waiter *w = arg;
	pthread_t t;

	if (!w->ret) {
		pthread_create(&t, NULL, waits, w);
		pthread_join(t, NULL);
	}
	return false;
}

Test(decomp_cache, waiting_for_another_stops)
{
	struct shardkit k;
	struct waiter w = { .k = &k };

	items(&k, 1, NULL);
	sk_open(&k, "plain");
	ck_stop_after_ms = 0;
	ck_stop_by(another_waits, &w);
	cr_expect_eq(sk_read(&k, 10, 0, NULL), 0);
	ck_stop_by(NULL, NULL);
	cr_expect_eq(w.ret, -EINTR);
	sk_free(&k);
}
