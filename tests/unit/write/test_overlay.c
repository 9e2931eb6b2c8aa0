/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overlays, cut off and damaged at every byte: what is found is the state of
 * some commit, the last one that was whole, or a line says what is wrong.
 */
#include "core/write/overlay_priv.h"
#include "tests/lib/imagekit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE_A 10000
#define SIZE_B 4097
#define COMMITS 3

static char top[] = "/tmp/ck-overlay-XXXXXX";
static struct imagekit kit;
static struct ck_catalog img;

struct state {
	unsigned char a[SIZE_A], b[SIZE_B];
};

/* After each commit, from none on; and how long the log was then. */
static struct state state[COMMITS + 1];
static off_t log_len[COMMITS + 1];
static int fds[2];

static void make_file(const char *name, unsigned char *bytes, size_t len,
		      int *fd)
{
	*fd = open(name, O_RDWR | O_CREAT, 0644);
	for (size_t i = 0; i < len; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 256);
	cr_assert_eq(write(*fd, bytes, len), (ssize_t)len);
}

static void enter(void)
{
	cr_assert(mkdtemp(top));
	cr_assert_eq(chdir(top), 0);
	cr_assert_eq(mkdir("o", 0755), 0);
	ik_src(&kit, CK_SRC_FILE, "a", SIZE_A);
	ik_src(&kit, CK_SRC_MEM, "", 10);
	ik_src(&kit, CK_SRC_FILE, "b", SIZE_B);
	kit.srcs.v[0].id.size = SIZE_A;
	kit.srcs.v[2].id.size = SIZE_B;
	img = ik_image(&kit);
	make_file("a", state[0].a, SIZE_A, &fds[0]);
	make_file("b", state[0].b, SIZE_B, &fds[1]);
}

static int gone(const char *path, const struct stat *st, int type,
		struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void leave(void)
{
	close(fds[0]);
	close(fds[1]);
	ik_free(&kit);
	cr_assert_eq(chdir("/"), 0);
	nftw(top, gone, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(overlay, .init = enter, .fini = leave, .timeout = 120);

static int try_open(struct ck_overlay **o, bool write, struct ck_err *err)
{
	struct ck_overlay_in in = {
		.dir = "o", .img = &img, .sealed = "", .write = write
	};

	*err = (struct ck_err){ 0 };
	return ck_overlay_open(o, &in, err);
}

static struct ck_overlay *must_open(bool write)
{
	struct ck_overlay *o;
	struct ck_err err;

	cr_assert_eq(try_open(&o, write, &err), 0, "%s", err.msg);
	return o;
}

static void put(struct ck_overlay *o, uint32_t src, size_t off, size_t len,
		unsigned char v)
{
	const struct ck_file_layer *over = ck_overlay_layer(o);
	unsigned char *data = malloc(len);
	struct iovec iov[2] = { { data, len / 3 },
				{ data + len / 3, len - len / 3 } };

	memset(data, v, len);
	cr_assert_eq(over->put(over->ctx, src, fds[src / 2], iov, off, len), 0);
	free(data);
}

static void commit(struct ck_overlay *o)
{
	const struct ck_file_layer *over = ck_overlay_layer(o);
	struct ck_err err;

	cr_assert_eq(over->sync(over->ctx, &err), 0, "%s", err.msg);
}

/* All bytes of a source, as they were read, with the overlay over them. */
static void read_all(struct ck_overlay *o, uint32_t src, unsigned char *out,
		     size_t len)
{
	const struct ck_file_layer *over = ck_overlay_layer(o);
	struct iovec iov[3] = { { out, 5 },
				{ out + 5, 0 },
				{ out + 5, len - 5 } };

	cr_assert_eq(pread(fds[src / 2], out, len, 0), (ssize_t)len);
	cr_assert_eq(over->patch(over->ctx, src, iov, 0, len), 0);
}

static bool is_state(struct ck_overlay *o, unsigned n)
{
	struct state now;

	read_all(o, 0, now.a, SIZE_A);
	read_all(o, 2, now.b, SIZE_B);
	return !memcmp(&now, &state[n], sizeof(now));
}

static off_t length(void)
{
	struct stat st;

	cr_assert_eq(stat("o/overlay.log", &st), 0);
	return st.st_size;
}

static void edit(struct ck_overlay *o, unsigned n, uint32_t src, size_t off,
		 size_t len)
{
	put(o, src, off, len, (unsigned char)(0xa0 + n));
	memset((src ? state[n].b : state[n].a) + off, (int)(0xa0 + n), len);
}

/* Three commits; each changes both files, some blocks in part or again. */
static void make(void)
{
	static const size_t at[COMMITS][3] = { { 0, 100, 4096 },
					       { 4000, 6000, 10 },
					       { 9999, 1, 4000 } };
	struct ck_overlay *o = must_open(true);

	log_len[0] = length();
	for (unsigned n = 1; n <= COMMITS; n++) {
		state[n] = state[n - 1];
		edit(o, n, 0, at[n - 1][0], at[n - 1][1]);
		edit(o, n, 2, at[n - 1][2], 1);
		commit(o);
		log_len[n] = length();
		cr_assert(is_state(o, n));
	}
	put(o, 0, 50, 60, 0xee); /* never committed */
	ck_overlay_free(o);
}

static unsigned char *slurp(const char *name, size_t *len)
{
	FILE *f = fopen(name, "r");
	unsigned char *bytes = malloc(1 << 20);

	*len = fread(bytes, 1, 1 << 20, f);
	fclose(f);
	return bytes;
}

static void spill(const char *name, const unsigned char *bytes, size_t len)
{
	FILE *f = fopen(name, "w");

	cr_assert_eq(fwrite(bytes, 1, len, f), len);
	fclose(f);
}

/* How many commits are whole in a log of @len bytes. */
static unsigned whole(size_t len)
{
	unsigned n = 0;

	while (n < COMMITS && (off_t)len >= log_len[n + 1])
		n++;
	return n;
}

Test(overlay, reads_what_was_committed)
{
	struct ck_overlay_stats st;
	struct ck_overlay *o;
	uint64_t off = 0, len;

	make();
	o = must_open(false);
	cr_assert(is_state(o, COMMITS));
	ck_overlay_stats(o, &st);
	cr_assert_eq(st.commits, COMMITS);
	cr_assert_gt(st.lost, 0);
	cr_assert(ck_overlay_next(o, 0, &off, &len));
	cr_assert_eq(off, 0);
	cr_assert_eq(len, SIZE_A); /* all its blocks, the last one short */
	off = 4096;
	cr_assert(ck_overlay_next(o, 2, &off, &len));
	cr_assert_eq(off + len, SIZE_B);
	off = 0;
	cr_assert_not(ck_overlay_next(o, 1, &off, &len));
	ck_overlay_free(o);
	o = must_open(true); /* cuts off what was never committed */
	ck_overlay_free(o);
	cr_assert_eq(length(), log_len[COMMITS]);
}

static _Atomic bool over_now;
static _Atomic unsigned long times_read;

/* Block 1 of file "a" is of one value throughout, whenever it is read. */
static void *read_on(void *ctx)
{
	const struct ck_file_layer *over = ck_overlay_layer(ctx);
	unsigned char v[4096];
	unsigned long nr = 0;

	for (; !atomic_load(&over_now); nr++) {
		struct iovec iov = { v, sizeof(v) };

		cr_assert_eq(pread(fds[0], v, sizeof(v), 4096), 4096);
		cr_assert_eq(over->patch(over->ctx, 0, &iov, 4096, 4096), 0);
		cr_assert(!nr || !memcmp(v, v + 1, sizeof(v) - 1), "a mixture");
	}
	atomic_fetch_add(&times_read, nr);
	return NULL;
}

/* The same region again and again: the log stays short, and right. */
Test(overlay, written_over_and_over)
{
	const off_t most = 2 * (SIZE_A + SIZE_B) + 20000 + 8192;
	struct ck_overlay_stats st;
	struct ck_overlay *o;
	struct state want;
	pthread_t reader;
	unsigned shorter = 0;

	ck_overlay_slack = 20000;
	o = must_open(true);
	spill("o/overlay.log.new", (const unsigned char *)"left by a crash",
	      15);
	want = state[0];
	put(o, 0, 4096, 4096, 1);
	commit(o);
	cr_assert_eq(pthread_create(&reader, NULL, read_on, o), 0);
	for (unsigned n = 1; n <= 400; n++) {
		off_t before = length();

		put(o, 0, 4096, 4096, (unsigned char)n);
		memset(want.a + 4096, (int)(n & 255), 4096);
		if (n % 3 == 0) {
			put(o, 2, n % 4000, 90, (unsigned char)n);
			memset(want.b + n % 4000, (int)(n & 255), 90);
		}
		commit(o);
		shorter += length() < before;
		cr_assert_leq(length(), most, "%ld bytes", (long)length());
		state[1] = want;
		cr_assert(is_state(o, 1), "after %u", n);
		if (n % 50)
			continue;
		atomic_store(&over_now, true);
		pthread_join(reader, NULL);
		atomic_store(&over_now, false);
		ck_overlay_free(o);
		o = must_open(true);
		cr_assert(is_state(o, 1), "opened anew after %u", n);
		cr_assert_eq(pthread_create(&reader, NULL, read_on, o), 0);
	}
	atomic_store(&over_now, true);
	pthread_join(reader, NULL);
	cr_assert_gt(shorter, 20);
	cr_assert_gt(atomic_load(&times_read), 0);
	cr_assert_neq(access("o/overlay.log.new", F_OK), 0);
	ck_overlay_free(o);
	o = must_open(false);
	ck_overlay_stats(o, &st);
	cr_assert_eq(st.lost, 0);
	cr_assert_eq(st.log_bytes, (uint64_t)length());
	cr_assert(is_state(o, 1));
	ck_overlay_free(o);
}

/* Whichever file a crash leaves under the log's name is right. */
Test(overlay, cut_off_after_it_was_made_short)
{
	struct ck_overlay *o = must_open(true);
	unsigned char *bytes;
	size_t len;

	ck_overlay_slack = 20000;
	for (unsigned n = 1; n <= 9; n++) {
		put(o, 0, 0, 4096, (unsigned char)n);
		commit(o);
	}
	state[1] = state[0];
	memset(state[1].a, 9, 4096);
	cr_assert_leq(length(), 4 * 4200);
	put(o, 0, 4096, 100, 33);
	ck_overlay_free(o);
	bytes = slurp("o/overlay.log", &len);
	for (size_t n = len - 4096; n <= len; n += 64) {
		spill("o/overlay.log", bytes, n);
		o = must_open(false);
		cr_assert(is_state(o, 1), "cut at %zu", n);
		ck_overlay_free(o);
	}
	free(bytes);
}

Test(overlay, cut_off_at_every_byte)
{
	unsigned char *bytes;
	size_t len;

	make();
	bytes = slurp("o/overlay.log", &len);
	for (size_t n = 0; n <= len; n++) {
		struct ck_overlay_stats st;
		struct ck_overlay *o;

		/* Where records are all data, not every byte is as good. */
		if (n % 4 && n > 200 && n + 200 < len)
			continue;
		spill("o/overlay.log", bytes, n);
		o = must_open(n % 2);
		cr_assert(is_state(o, whole(n)), "cut at %zu", n);
		ck_overlay_stats(o, &st);
		cr_assert_eq(st.damaged, 0, "cut at %zu", n);
		if (n % 2) { /* goes on from there */
			struct state was = state[whole(n)];

			put(o, 0, 7, 3, 0x77);
			commit(o);
			memset(was.a + 7, 0x77, 3);
			ck_overlay_free(o);
			o = must_open(false);
			read_all(o, 0, state[0].a, SIZE_A);
			cr_assert(!memcmp(state[0].a, was.a, SIZE_A));
			cr_assert_eq(pread(fds[0], state[0].a, SIZE_A, 0),
				     SIZE_A);
		}
		ck_overlay_free(o);
	}
	free(bytes);
}

Test(overlay, damaged_at_every_byte)
{
	unsigned char *bytes;
	size_t len;

	make();
	bytes = slurp("o/overlay.log", &len);
	for (size_t n = 0; n < len; n++) {
		struct ck_overlay_stats st;
		struct ck_overlay *o;
		struct ck_err err;
		int ret;

		if (n % 8 && n > 400)
			continue;
		bytes[n] ^= 0x40;
		spill("o/overlay.log", bytes, len);
		bytes[n] ^= 0x40;
		ret = try_open(&o, true, &err);
		/* The last commit itself: as if it had not come so far, but
		 * that it is said, and kept. */
		if ((off_t)n < log_len[COMMITS] - 40) {
			cr_assert_eq(ret, -EIO, "byte %zu", n);
			cr_assert(strstr(err.msg, "is damaged at byte"));
			cr_assert_eq(length(), (off_t)len, "it was cut");
			continue;
		}
		cr_assert_eq(ret, 0, "byte %zu: %s", n, err.msg);
		cr_assert(is_state(o, COMMITS - ((off_t)n < log_len[COMMITS])));
		ck_overlay_stats(o, &st);
		if ((off_t)n < log_len[COMMITS]) {
			cr_assert_eq(st.damaged, log_len[COMMITS] - 40);
			cr_assert_eq(st.aside, st.lost);
		}
		ck_overlay_free(o);
		unlink("o/overlay.log.lost");
	}
	free(bytes);
}

Test(overlay, head_damaged_at_every_byte)
{
	unsigned char *bytes;
	size_t len;

	make();
	bytes = slurp("o/overlay.head", &len);
	for (size_t n = 0; n < len; n++) {
		struct ck_overlay *o;
		struct ck_err err;
		int ret;

		spill("o/overlay.head", bytes, n);
		ret = try_open(&o, true, &err);
		cr_assert(ret == -EINVAL || ret == -ESTALE, "cut at %zu", n);
		bytes[n] ^= 1;
		spill("o/overlay.head", bytes, len);
		bytes[n] ^= 1;
		ret = try_open(&o, true, &err);
		cr_assert(ret == -EINVAL || ret == -ESTALE, "byte %zu", n);
	}
	free(bytes);
}

Test(overlay, for_this_checkpoint_only)
{
	struct ck_overlay *o;
	struct ck_err err;

	cr_assert_eq(try_open(&o, false, &err), -ENOENT);
	make();
	kit.srcs.v[2].id.mtime_ns++;
	cr_assert_eq(try_open(&o, true, &err), -ESTALE);
	cr_assert(strstr(err.msg, "b is not the file"), "%s", err.msg);
	kit.srcs.v[2].id.mtime_ns--;
	kit.srcs.v[0].id.size++;
	cr_assert_eq(try_open(&o, true, &err), -ESTALE);
	cr_assert(strstr(err.msg, "a is not the file"), "%s", err.msg);
	kit.srcs.v[0].id.size--;
	o = must_open(true);
	cr_assert(is_state(o, COMMITS));
	ck_overlay_free(o);
}

Test(overlay, one_writer)
{
	struct ck_overlay *o, *second;
	struct ck_err err;

	make();
	o = must_open(true);
	cr_assert_eq(try_open(&second, true, &err), -EBUSY);
	cr_assert_eq(ck_overlay_discard("o", &err), -EBUSY);
	second = must_open(false);
	ck_overlay_free(second);
	ck_overlay_free(o);
	cr_assert_eq(ck_overlay_discard("o", &err), 0, "%s", err.msg);
	cr_assert_eq(rmdir("o"), 0);
}

/* 400 random edits against plain memory, opened again now and then. */
Test(overlay, random_edits)
{
	struct ck_overlay *o = must_open(true);
	unsigned seed = 5;

	for (unsigned i = 0; i < 400; i++) {
		uint32_t src = rand_r(&seed) % 2 ? 2 : 0;
		size_t size = src ? SIZE_B : SIZE_A;
		size_t off = (size_t)rand_r(&seed) % size;
		size_t len = 1 + (size_t)rand_r(&seed) % (size - off);
		unsigned char v = (unsigned char)rand_r(&seed);

		put(o, src, off, len, v);
		memset((src ? state[0].b : state[0].a) + off, v, len);
		cr_assert(is_state(o, 0), "edit %u", i);
		if (i % 40 == 39) {
			commit(o);
			ck_overlay_free(o);
			o = must_open(true);
			cr_assert(is_state(o, 0), "opened after edit %u", i);
		}
	}
	ck_overlay_free(o);
}
