/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline - a load to a device is as fast as the slower of storage and device
 *
 *	pipeline MIB
 *
 * Both are made up, and throttled: storage computes its bytes by the clock, the
 * device is the simulated one.  Figures are shares of the rate of the slower side.
 */
#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/device/ring.h"
#include "tests/lib/loadkit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MB 1e6
#define MAX 8

/* Bytes of the tensor at so many a second, of all threads together. */
struct storage {
	const unsigned char *bytes;
	double rate;
	_Atomic int64_t busy_until;
};

static void sleep_until(int64_t ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static int read_slowly(void *ctx, uint32_t src, void *buf, uint64_t len,
		       uint64_t off, struct ck_err *err)
{
	struct storage *s = ctx;
	int64_t was = s->busy_until, end;

	(void)src, (void)err;
	do
		end = CK_MAX(was, ck_now_ns()) +
		      (int64_t)((double)len * 1e9 / s->rate);
	while (!atomic_compare_exchange_weak(&s->busy_until, &was, end));
	memcpy(buf, s->bytes + off, len);
	sleep_until(end);
	return 0;
}

static void check(int ret, const struct ck_err *err)
{
	if (!ret)
		return;
	fprintf(stderr, "%s\n", err->msg);
	exit(1);
}

struct one {
	struct ck_device *dev;
	struct ck_ring *ring;
	uint64_t mem;
	struct ck_load_item item;
	struct ck_load *load;
};

/* Seconds of one load to each of @nr devices, at once. */
static double run(struct shardkit *k, double device_rate, unsigned nr)
{
	struct one v[MAX];
	struct ck_load_pool *pool;
	struct ck_err err = { 0 };
	char name[64];
	int64_t begun;
	double took;

	check(ck_load_pool_new(&pool, 4, &err), &err);
	for (unsigned i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "simulated:%u,late=20,rate=%.0f",
			 i, device_rate);
		check(ck_device_open(&v[i].dev, name, &err), &err);
		check(ck_device_alloc(v[i].dev, k->size, &v[i].mem, &err),
		      &err);
		check(ck_load_ring_new(&v[i].ring, pool, v[i].dev, 8, 1 << 20,
				       &err),
		      &err);
		v[i].item = (struct ck_load_item){
			.mem = (void *)(uintptr_t)v[i].mem
		};
	}
	begun = ck_now_ns();
	for (unsigned i = 0; i < nr; i++)
		check(ck_load_start(&v[i].load, pool,
				    &(struct ck_load_in){ .reader = k->r,
							  .ring = v[i].ring,
							  .item = &v[i].item,
							  .nr = 1 },
				    NULL, &err),
		      &err);
	for (unsigned i = 0; i < nr; i++)
		check(ck_load_wait(v[i].load, -1, NULL, &err), &err);
	took = (double)(ck_now_ns() - begun) / 1e9;
	for (unsigned i = 0; i < nr; i++) {
		ck_load_free(v[i].load);
		ck_ring_free(v[i].ring);
		ck_device_close(v[i].dev);
	}
	ck_load_pool_free(pool);
	return took;
}

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median of three, and the lowest and the highest. */
static void measure(const char *name, struct shardkit *k, double device_rate,
		    unsigned nr, double slower, double least)
{
	double bytes = (double)k->size, took[3];

	for (unsigned i = 0; i < 3; i++)
		took[i] = run(k, device_rate, nr);
	qsort(took, 3, sizeof(took[0]), by_time);
	printf("result %s_rate %.0f MB/s - %.0f %.0f\n", name,
	       bytes / took[1] / MB, bytes / took[2] / MB,
	       bytes / took[0] / MB);
	printf("result %s %.3f of_the_slower >=%.2f %.3f %.3f\n", name,
	       bytes / took[1] / slower, least, bytes / took[2] / slower,
	       bytes / took[0] / slower);
}

int main(int argc, char **argv)
{
	uint64_t size = (argc > 1 ? strtoull(argv[1], NULL, 10) : 256) << 20;
	struct storage s = { .rate = 200 * MB };
	struct ck_made made = { &s, read_slowly };
	struct shardkit k;

	sk_init(&k, CK_DT_U8, 1, &size);
	sk_cut(&k, 0, 1);
	k.in.made = &made;
	s.bytes = k.want;
	sk_open(&k, "plain");
	measure("slow_storage", &k, 1250 * MB, 1, 200 * MB, 0.95);
	s.rate = 1250 * MB;
	measure("slow_device", &k, 200 * MB, 1, 200 * MB, 0.95);
	s.rate = 10000 * MB;
	measure("eight_devices", &k, 50 * MB, 8, 50 * MB, 0.90);
	sk_free(&k);
	return 0;
}
