/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader - the read path without a mount, warm, against a memcpy
 *
 *	reader [MIB]
 *
 * A tensor cut along dim 1 over 8 shards and one that is stored transposed,
 * both bfloat16 [8192, n], read whole in order, 1 MiB at a time.  Prints GB/s,
 * and how many bytes of the source were read for each one wanted.
 */
#include "tests/lib/shardkit.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { REQUEST = 1 << 20, ROWS = 8192, ROUNDS = 3 };

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static double pass(struct shardkit *k, unsigned char *buf, bool check)
{
	double start = now();

	for (uint64_t at = 0; at < k->size; at += REQUEST) {
		uint64_t n = k->size - at < REQUEST ? k->size - at : REQUEST;

		if (ck_reader_read(k->r, 0, buf, n, at, NULL) ||
		    (check && memcmp(buf, k->want + at, n)))
			abort();
	}
	return (double)k->size / 1e9 / (now() - start);
}

static void measure(struct shardkit *k, const char *name)
{
	unsigned char *buf = malloc(REQUEST);
	double best = 0, copy = 0;

	if (!buf)
		abort();
	sk_open(k, "auto");
	pass(k, buf, true);
	for (int i = 0; i < ROUNDS; i++) {
		double start = now(), got;

		for (uint64_t at = 0; at + REQUEST <= k->size; at += REQUEST) {
			memcpy(buf, k->want + at, REQUEST);
			__asm__ volatile("" : : "r"(buf) : "memory");
		}
		got = (double)k->size / 1e9 / (now() - start);
		copy = got > copy ? got : copy;
		got = pass(k, buf, false);
		best = got > best ? got : best;
	}
	printf("result %s %.2f GB/s\n", name, best);
	printf("result %s_to_memcpy %.3f ratio\n", name, best / copy);
	printf("result %s_amplification %.3f ratio <=1.2\n", name,
	       (double)ck_reader_stats(k->r)->source_bytes /
		       (double)ck_reader_stats(k->r)->bytes);
	free(buf);
	sk_free(k);
}

int main(int argc, char **argv)
{
	uint64_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 64;
	uint64_t shape[2] = { ROWS, mib * 64 };
	static const uint64_t origin[2];
	const int64_t stride[2] = { 1, ROWS };
	struct sk_part p = {
		.file = "t", .start = origin, .len = shape, .stride = stride
	};
	struct shardkit k;

	if (!mib)
		return 2;
	sk_init(&k, CK_DT_BF16, 2, shape);
	sk_cut(&k, 1, 8);
	measure(&k, "columns");
	sk_init(&k, CK_DT_BF16, 2, shape);
	sk_part(&k, &p);
	/* Less than the tensor, so that each pass fills its tiles again. */
	k.in.cache_mem = k.size / 2;
	measure(&k, "transposed");
	return 0;
}
