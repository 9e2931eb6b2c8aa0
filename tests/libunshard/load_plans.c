/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_plans - loads at random, byte by byte, and all that may go wrong in one
 *
 * A plain program, so that the thread sanitizer can watch it.
 */
#include "tests/lib/failalloc.h"
#include "tests/lib/faults.h"
#include "tests/lib/loadkit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A sanitizer's own memory is no part of a load's. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static const char *engines[] = { "plain", "uring" };

static struct ck_load_pool *pool_of(unsigned threads)
{
	struct ck_load_pool *pool;
	struct ck_err err = { 0 };

	LK_CHECK(!ck_load_pool_new(&pool, threads, &err));
	return pool;
}

static struct ck_load *start_load(struct ck_load_pool *pool, struct lk_load *l)
{
	struct ck_load *load;
	struct ck_err err = { 0 };
	size_t bad;

	if (ck_load_start(&load, pool, &l->in, &bad, &err)) {
		fprintf(stderr, "item %zu: %s\n", bad, err.msg);
		abort();
	}
	return load;
}

/* Every item comes once, and is whole, or failed as @may says. */
static void take_all(struct ck_load *load, const struct lk_load *l, int may)
{
	bool seen[LK_MAX] = { false };
	int fd = ck_load_fd(load), ret, failed = 0;
	struct ck_err err = { 0 };
	size_t item;

	LK_CHECK(fd >= 0);
	for (unsigned n = 0; n <= l->nr; n++) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		LK_CHECK(poll(&p, 1, 60000) == 1);
		ret = ck_load_next(load, 0, &item, &err);
		if (n == l->nr) {
			LK_CHECK(ret == 1);
			break;
		}
		if (ret == -ETIMEDOUT) { /* it was just being finished */
			n--;
			continue;
		}
		LK_CHECK(ret <= 0 && item < l->nr && !seen[item]);
		seen[item] = true;
		failed += ret != 0;
		LK_CHECK(!ret || (ret == -may && *err.msg));
		LK_CHECK(ret || lk_whole(l, (unsigned)item));
	}
	ret = ck_load_wait(load, -1, &item, &err);
	LK_CHECK(failed ? ret == -may && item < l->nr :
			  !ret && item == SIZE_MAX);
}

static void plans(unsigned nr)
{
	for (unsigned seed = 1; seed <= nr; seed++) {
		struct ck_load_pool *pool = pool_of(1 + seed % 4);
		uint64_t state = seed * 0x9e3779b97f4a7c15u;
		struct ck_load_stats stats;
		struct shardkit k;
		struct lk_load l;
		struct ck_load *load;

		lk_tensor(&k, state);
		sk_open(&k, engines[seed % 2]);
		lk_make(&l, &k, &state, 1 + seed % LK_MAX, false);
		l.in.cache = seed / 2 % 3;
		load = start_load(pool, &l);
		take_all(load, &l, 0);
		ck_load_stats(load, &stats);
		LK_CHECK(stats.done == stats.wanted && !stats.left_to_reader);
		ck_load_free(load);
		ck_load_pool_free(pool);
		lk_free(&l);
		sk_free(&k);
	}
}

/* The same tensor several times: its bytes are read once. */
static void shares(void)
{
	for (unsigned axis = 0; axis < 2; axis++) {
		struct ck_load_pool *pool = pool_of(2);
		struct ck_load_stats stats;
		struct shardkit k;
		struct lk_load l;
		uint64_t state = 1;
		struct ck_load *load;

		sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ 1000, 3000 });
		sk_cut(&k, axis, 3);
		sk_open(&k, engines[axis]);
		lk_make(&l, &k, &state, 4, true);
		l.item[2].dtype = CK_DT_F32; /* its own, said */
		load = start_load(pool, &l);
		take_all(load, &l, 0);
		ck_load_stats(load, &stats);
		LK_CHECK(stats.wanted == 4 * k.size);
		LK_CHECK(stats.source_bytes == k.size);
		ck_load_free(load);
		ck_load_pool_free(pool);
		lk_free(&l);
		sk_free(&k);
	}
}

static void make_big(struct shardkit *k, struct lk_load *l, const char *engine)
{
	uint64_t state = 77;

	sk_init(k, CK_DT_BF16, 2, (uint64_t[]){ 700, 3000 });
	sk_cut(k, 1, 3);
	sk_open(k, engine);
	lk_make(l, k, &state, 6, false);
}

static void load_as(struct ck_load_pool *pool, struct lk_load *l,
		    enum ck_load_cache cache, struct ck_load_stats *stats)
{
	struct ck_load *load;

	lk_reset(l);
	l->in.cache = cache;
	load = start_load(pool, l);
	take_all(load, l, 0);
	ck_load_stats(load, stats);
	ck_load_free(load);
}

/* Cancelled when @at reads were made, or before. */
static void cancel(struct ck_load_pool *pool, struct lk_load *l, uint64_t at)
{
	static unsigned char was[1 << 26];
	struct ck_load *load = start_load(pool, l);
	struct timespec moment = { .tv_nsec = 200000 };
	struct ck_load_stats stats = { 0 };
	uint64_t all = 0;
	int ret;

	while (stats.source_ops < at && stats.done < stats.wanted + !at)
		ck_load_stats(load, &stats);
	ck_load_cancel(load);
	ret = ck_load_wait(load, -1, NULL, NULL);
	LK_CHECK(!ret || ret == -ECANCELED);
	for (unsigned i = 0; i < l->nr; i++) {
		LK_CHECK(ret || lk_whole(l, i));
		LK_CHECK(all + l->v[i].bytes <= sizeof(was));
		memcpy(was + all, l->v[i].mem, l->v[i].bytes);
		all += l->v[i].bytes;
	}
	nanosleep(&moment, NULL);
	all = 0;
	for (unsigned i = 0; i < l->nr; all += l->v[i++].bytes)
		LK_CHECK(!memcmp(was + all, l->v[i].mem, l->v[i].bytes));
	ck_load_free(load);
}

static void cancels(unsigned nr)
{
	struct ck_load_pool *pool = pool_of(3);
	struct ck_load_stats stats;
	struct shardkit k;
	struct lk_load l;

	make_big(&k, &l, "plain");
	load_as(pool, &l, CK_LOAD_CACHED, &stats);
	for (uint64_t at = 0; at <= stats.source_ops; at++)
		cancel(pool, &l, at);
	/* freed while under way, and the pool at once */
	for (unsigned at = 0; at < nr; at++) {
		ck_load_free(start_load(pool, &l));
		if (at % 8)
			continue;
		ck_load_pool_free(pool);
		pool = pool_of(3);
	}
	ck_load_pool_free(pool);
	lk_free(&l);
	sk_free(&k);
}

static int stop_at_half(void *arg, uint64_t done, uint64_t total)
{
	uint64_t *last = arg;

	LK_CHECK(done >= *last && done <= total);
	*last = done;
	return 0;
}

static void progress(void)
{
	struct ck_load_pool *pool = pool_of(2);
	struct shardkit k;
	struct lk_load l;
	struct ck_load *load;
	uint64_t last = 0, total = 0;

	make_big(&k, &l, "uring");
	for (unsigned i = 0; i < l.nr; i++)
		total += l.v[i].wanted;
	l.in.progress = stop_at_half;
	l.in.arg = &last;
	load = start_load(pool, &l);
	LK_CHECK(!ck_load_wait(load, -1, NULL, NULL));
	LK_CHECK(last == total);
	ck_load_free(load);
	ck_load_pool_free(pool);
	lk_free(&l);
	sk_free(&k);
}

/* @n completions in a row from the @at-th on fail. */
static void completions(unsigned nr)
{
	static const int codes[] = { EIO, 0, EINTR };

	for (unsigned e = 0; e < 2; e++) {
		struct ck_load_pool *pool = pool_of(2);
		struct shardkit k;
		struct lk_load l;

		make_big(&k, &l, engines[e]);
		for (unsigned at = 1; at <= nr; at++) {
			unsigned c = at % 3, times = c ? 1 : 1 + at % 50;
			struct ck_load *load;

			lk_reset(&l);
			l.in.cache = at / 3 % 3;
			fault_set((long)at, times, codes[c]);
			load = start_load(pool, &l);
			take_all(load, &l, EIO);
			if (c)
				LK_CHECK(!ck_load_wait(load, -1, NULL, NULL));
			ck_load_free(load);
			fault_set(0, 0, 0);
		}
		ck_load_pool_free(pool);
		lk_free(&l);
		sk_free(&k);
	}
}

/* One more allocation fails each time, until none does. */
static void allocations(void)
{
	struct shardkit k;
	struct lk_load l;
	bool more = true;

	make_big(&k, &l, "uring");
	for (unsigned long nth = 1; more; nth++) {
		struct ck_load_pool *pool = NULL;
		struct ck_load *load = NULL;
		struct ck_err err = { 0 };
		size_t item;
		int ret;

		lk_reset(&l);
		failalloc_arm(nth);
		ret = ck_load_pool_new(&pool, 2, &err);
		if (!ret)
			ret = ck_load_start(&load, pool, &l.in, &item, &err);
		LK_CHECK(!ret || ret == -ENOMEM);
		while (load && ret != 1) {
			ret = ck_load_next(load, -1, &item, &err);
			LK_CHECK(ret <= 1);
			LK_CHECK(ret || lk_whole(&l, (unsigned)item));
			LK_CHECK(ret >= 0 || ret == -ENOMEM);
		}
		ck_load_free(load);
		ck_load_pool_free(pool);
		more = failalloc_happened();
	}
	lk_free(&l);
	sk_free(&k);
}

#define SYS_CACHESTAT 451

/* Pages of the shard that are in memory; -1: it cannot be asked. */
static int64_t cached(const char *path)
{
	uint64_t all[2] = { 0, 0 }, got[5] = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	long ret = syscall(SYS_CACHESTAT, fd, all, got, 0);

	LK_CHECK(fd >= 0 && !close(fd));
	return ret ? -1 : (int64_t)got[0];
}

/* Onto storage, and out of memory; false: this file system keeps its files. */
static bool evict(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	LK_CHECK(fd >= 0 && !fsync(fd));
	LK_CHECK(!posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) && !close(fd));
	return !cached(path);
}

/* The page cache afterwards is as it was. */
static void uncached(void)
{
	struct ck_load_pool *pool = pool_of(1);
	struct ck_load_stats stats;
	struct shardkit k;
	struct lk_load l;
	int64_t some;

	make_big(&k, &l, "uring");
	load_as(pool, &l, CK_LOAD_DIRECT, &stats);
	/* past it where that can be, and else it is said */
	LK_CHECK(stats.direct == stats.source_bytes || *stats.why);
	if (!evict(sk_path(&k, "s1"))) {
		printf("the page cache cannot be looked at\n");
	} else {
		load_as(pool, &l, CK_LOAD_DROPPED, &stats);
		some = cached(sk_path(&k, "s1"));
		load_as(pool, &l, CK_LOAD_CACHED, &stats);
		LK_CHECK(some < cached(sk_path(&k, "s1")));
		some = cached(sk_path(&k, "s1"));
		load_as(pool, &l, CK_LOAD_DROPPED, &stats);
		LK_CHECK(cached(sk_path(&k, "s1")) == some);
		LK_CHECK(evict(sk_path(&k, "s1")));
		load_as(pool, &l, CK_LOAD_DIRECT, &stats);
		LK_CHECK(*stats.why || !cached(sk_path(&k, "s1")));
	}
	ck_load_pool_free(pool);
	lk_free(&l);
	sk_free(&k);
}

/* What is torn, gone or replaced fails what needs it, and nothing else. */
static void torn(void)
{
	static const uint64_t from[] = { 400 }, rows[] = { 400 };
	struct ck_load_pool *pool = pool_of(2);
	struct ck_err err = { 0 };
	struct shardkit k;
	struct lk_load l;
	struct ck_load *load;
	uint64_t state = 5;
	size_t item;

	sk_init(&k, CK_DT_F32, 1, (uint64_t[]){ 700000 });
	sk_cut(&k, 0, 2);
	sk_open(&k, "uring");
	lk_make(&l, &k, &state, 3, true);
	l.item[1].len = rows; /* from 0 on */
	l.item[2].start = from;
	l.item[2].len = rows;
	l.item[2].optional = true;
	LK_CHECK(!truncate(sk_path(&k, "s1"), 1000));
	load = start_load(pool, &l);
	LK_CHECK(ck_load_wait(load, -1, &item, &err) == -EIO && item == 0);
	LK_CHECK(strstr(err.msg, "t: s1: ") == err.msg);
	LK_CHECK(strstr(err.msg, "found 1000"));
	for (int ret = 0; ret != 1;) {
		ret = ck_load_next(load, -1, &item, NULL);
		LK_CHECK(ret == 1 || !item == !!ret);
	}
	LK_CHECK(!memcmp(l.item[1].mem, k.want, 1600));
	LK_CHECK(!memcmp(l.item[2].mem, k.want + 1600, 1600));
	ck_load_free(load);
	ck_load_pool_free(pool);
	lk_free(&l);
	sk_free(&k);
}

static void replaced_while_loading(void)
{
	struct ck_load_pool *pool = pool_of(2);
	struct shardkit k;
	struct lk_load l;

	for (unsigned i = 0; i < 20; i++) {
		struct ck_load *load;

		make_big(&k, &l, engines[i % 2]);
		load = start_load(pool, &l);
		sk_spoil(&k, "s1", 300000);
		take_all(load, &l, ESTALE);
		ck_load_free(load);
		lk_free(&l);
		sk_free(&k);
	}
	ck_load_pool_free(pool);
}

static long peak_kib(void)
{
	struct rusage used;

	LK_CHECK(!getrusage(RUSAGE_SELF, &used));
	return used.ru_maxrss;
}

/*
 * A tensor in @nr pieces of eight elements, which lie in one file in any order:
 * the plan is made in windows, and its memory does not grow with them.
 */
static void many_pieces(uint64_t nr)
{
	uint64_t start[2] = { 0 }, len[2] = { 1, 8 }, state = 1, at = 0;
	struct ck_load_pool *pool = pool_of(2);
	struct ck_load_stats stats;
	struct shardkit k;
	struct lk_load l;
	struct ck_load *load;
	unsigned char *file;
	long before;
	uint32_t src;

	sk_init(&k, CK_DT_F32, 2, (uint64_t[]){ nr, 8 });
	file = malloc(k.size);
	LK_CHECK(file);
	for (uint64_t i = 0; i < nr; i++, at = (at + 2654435761u) % nr)
		memcpy(file + at * 32, k.want + i * 32, 32);
	sk_put(&k, "all", file, k.size);
	free(file);
	src = sk_src(&k, "all");
	for (uint64_t i = 0; i < nr; i++, at = (at + 2654435761u) % nr) {
		start[0] = i;
		ik_chunk(&k.ik, &(struct ik_chunk){ .rank = 2,
						    .start = start,
						    .len = len,
						    .off = at * 32,
						    .src = src });
		k.nr_cells++;
	}
	sk_open(&k, engines[1]);
	lk_make(&l, &k, &state, 1, true);
	before = peak_kib();
	load = start_load(pool, &l);
	take_all(load, &l, 0);
	ck_load_stats(load, &stats);
	LK_CHECK(stats.source_bytes < 16 * k.size);
	ck_load_free(load);
	LK_CHECK(SANITIZED || peak_kib() - before < 64 << 10);
	ck_load_pool_free(pool);
	lk_free(&l);
	sk_free(&k);
}

static void refused(void)
{
	static const uint64_t far[] = { 0, 2990 }, len[] = { 1, 11 };
	static const int64_t meet[] = { 10, 1 };
	struct ck_load_pool *pool = pool_of(1);
	struct ck_err err = { 0 };
	struct ck_load_item good;
	struct ck_load *load;
	struct shardkit k;
	struct lk_load l;
	size_t bad;

	make_big(&k, &l, "plain");
	good = l.item[2];
	l.item[2].tensor = 7;
	LK_CHECK(ck_load_start(&load, pool, &l.in, &bad, &err) == -EINVAL);
	LK_CHECK(bad == 2);
	l.item[2] = good;
	l.item[2].start = far;
	l.item[2].len = len;
	LK_CHECK(ck_load_start(&load, pool, &l.in, &bad, &err) == -EINVAL);
	LK_CHECK(bad == 2 && strstr(err.msg, "[2990, 3001)"));
	l.item[2].start = l.item[2].len = NULL;
	l.item[2].stride = meet;
	LK_CHECK(ck_load_start(&load, pool, &l.in, &bad, &err) == -EINVAL);
	LK_CHECK(strstr(err.msg, "meet"));
	l.item[2] = good;
	l.item[2].dtype = CK_DT_I32;
	LK_CHECK(ck_load_start(&load, pool, &l.in, &bad, &err) == -EINVAL);
	l.item[2] = good;
	l.item[2].mem = NULL;
	LK_CHECK(ck_load_start(&load, pool, &l.in, &bad, &err) == -EINVAL);
	l.in.nr = 0;
	load = start_load(pool, &l);
	LK_CHECK(ck_load_next(load, -1, &bad, &err) == 1);
	LK_CHECK(!ck_load_wait(load, -1, &bad, &err));
	ck_load_free(load);
	ck_load_pool_free(pool);
	lk_free(&l);
	sk_free(&k);
}

int main(int argc, char **argv)
{
	unsigned nr = argc > 1 ? (unsigned)atoi(argv[1]) : 200;

	if (!ck_engine_choose("uring", NULL))
		engines[1] = "plain";
	plans(nr);
	shares();
	progress();
	cancels(nr / 2);
	completions(5 * nr);
	uncached();
	allocations();
	torn();
	replaced_while_loading();
	refused();
	many_pieces(5000 * (uint64_t)nr);
	return 0;
}
