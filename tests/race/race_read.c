/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race_read - eight threads read at random, one makes trouble
 *
 * A plain program, for the thread sanitizer: Criterion does not start under
 * it.  Rows with replicas, a transposed tensor with a cache of a few tiles,
 * few descriptors; meanwhile a file of which there is a replica goes and comes
 * back, and reads are made to fail.  sk_read() aborts on a wrong byte.
 */
#include "tests/lib/shardkit.h"
#include "tests/lib/faults.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8 };

static unsigned turns;
static _Atomic unsigned running, failed;

static void *reads(void *arg)
{
	struct shardkit *k = arg;
	uint64_t state = (uintptr_t)&state | 1;

	for (unsigned i = 0; i < turns; i++) {
		uint64_t off = sk_random(&state) % k->size;
		uint64_t len = sk_random(&state) % 200000 + 1;

		if (len > k->size - off)
			len = k->size - off;
		if (sk_read(k, len, off, NULL))
			failed++;
	}
	running--;
	return NULL;
}

static void trouble(struct shardkit *k)
{
	struct timespec ts = { .tv_nsec = 20000000 };

	while (running) {
		rename(sk_path(k, "s1"), sk_path(k, "away"));
		fault_set(5, 2, EIO);
		nanosleep(&ts, NULL);
		rename(sk_path(k, "away"), sk_path(k, "s1"));
		fault_set(3, 4, 0);
		nanosleep(&ts, NULL);
	}
	fault_set(0, 0, 0);
}

static void race(struct shardkit *k, const char *engine, bool troubled)
{
	pthread_t t[THREADS];

	sk_open(k, engine);
	running = THREADS;
	failed = 0;
	for (unsigned i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, reads, k))
			abort();
	if (troubled)
		trouble(k);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	printf("%s: %llu reads, %u failed, %llu tiles hit, %llu missed\n",
	       engine, (unsigned long long)ck_reader_stats(k->r)->reads, failed,
	       (unsigned long long)ck_reader_stats(k->r)->tile_hits,
	       (unsigned long long)ck_reader_stats(k->r)->tile_misses);
	if (!troubled && failed)
		abort();
	sk_close(k);
}

static void add_replicas(struct shardkit *k)
{
	uint64_t start[2] = { 0 }, len[2] = { k->shape[0] / 8, k->shape[1] };
	char name[] = "r0";

	for (uint32_t i = 0; i < 8; i++) {
		struct sk_part p = { .file = name,
				     .start = start,
				     .len = len,
				     .replica = true };
		uint32_t ring[2] = { i };

		name[1] = (char)('0' + i);
		start[0] = i * len[0];
		ring[1] = sk_part(k, &p);
		ik_ring(&k->ik, ring, 2);
	}
}

int main(int argc, char **argv)
{
	static const uint64_t origin[2], rows[] = { 64, 16384 },
					 square[] = { 1000, 1200 };
	static const int64_t across[] = { 1, 1000 };
	struct sk_part p = {
		.file = "s1", .start = origin, .len = square, .stride = across
	};
	const char *engines[] = { "plain", ck_engine_choose("uring", NULL) ?
						   "uring" :
						   "plain" };
	struct shardkit k;

	turns = argc > 1 ? (unsigned)atoi(argv[1]) : 40;
	for (unsigned e = 0; e < 2; e++) {
		sk_init(&k, CK_DT_F32, 2, rows);
		sk_cut(&k, 0, 8);
		add_replicas(&k);
		k.in.max_files = 6;
		race(&k, engines[e], false);
		race(&k, engines[e], true);
		sk_free(&k);
		sk_init(&k, CK_DT_F32, 2, square);
		sk_part(&k, &p);
		k.in.cache_mem = 4 << 20;
		race(&k, engines[e], false);
		race(&k, engines[e], true);
		sk_free(&k);
	}
	return 0;
}
