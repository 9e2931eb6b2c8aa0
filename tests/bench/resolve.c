/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve.c - what it costs to find out where the bytes of a read are
 *
 * No I/O: requests of 1 MiB, one after the other, through a bfloat16 tensor of
 * [8192, 8192] in columns, and the building of search trees.
 */
#include "core/base/check.h"
#include "core/geom/cursor.h"
#include "tests/lib/imagekit.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SIDE UINT64_C(8192)
#define REQUEST (UINT64_C(1) << 20)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void columns(struct imagekit *k, uint32_t nr)
{
	const uint64_t shape[] = { SIDE, SIDE }, len[] = { SIDE, SIDE / nr };

	for (uint64_t i = 0; i < nr; i++) {
		const uint64_t start[] = { 0, i * len[1] };
		struct ik_chunk c = { .rank = 2, .start = start, .len = len };

		c.src = ik_src(k, CK_SRC_FILE, "f", SIDE * len[1] * 2);
		ik_chunk(k, &c);
	}
	ik_index(k,
		 ik_tensor(k, &(struct ik_tensor){ .dtype = CK_DT_BF16,
						   .rank = 2,
						   .shape = shape,
						   .nr = nr,
						   .nr_all = nr,
						   .covered = SIDE * SIDE }));
}

/* @shift moves the requests off the rows: then each has a head and a tail. */
static void bench_columns(uint32_t nr, uint64_t shift, const char *what)
{
	struct imagekit k = { 0 };
	uint64_t rounds = 20000 / (nr < 64 ? 1 : nr / 64), segs = 0, bytes = 0;
	uint64_t pos = shift;
	struct ck_cursor cur;
	struct ck_catalog img;
	struct ck_seg seg;
	double start;

	columns(&k, nr);
	img = ik_image(&k);
	start = now();
	for (uint64_t i = 0; i < rounds; i++) {
		ck_cursor_init(&cur, &img, NULL, img.tensors, pos, REQUEST);
		for (; ck_cursor_next(&cur, &seg); segs++)
			bytes += seg.nbytes;
		pos += REQUEST;
		if (pos + REQUEST > img.tensors->size)
			pos = shift;
	}
	start = (now() - start) / (double)rounds;
	if (bytes != rounds * REQUEST)
		abort();
	printf("result resolve-%s-%u %.0f ns\n", what, nr, start);
	printf("# %u shards, %s: %.1f segments a request\n", nr, what,
	       (double)segs / (double)rounds);
	ik_free(&k);
}

static void bench_build(uint32_t nr)
{
	uint32_t edge = 1000, *perm = malloc(nr * sizeof(*perm));
	uint64_t *at = malloc(nr * 2 * sizeof(*at));
	uint64_t *end = malloc(nr * 2 * sizeof(*end));
	uint64_t *nodes = malloc(nr * sizeof(*nodes));
	struct ck_tiling_in in = { 2, nr, at, end };
	double start;

	if (!perm || !at || !end || !nodes)
		abort();
	for (uint32_t i = 0; i < nr; i++) {
		perm[i] = i;
		at[2 * i] = i / edge;
		at[2 * i + 1] = i % edge;
		end[2 * i] = at[2 * i] + 1;
		end[2 * i + 1] = at[2 * i + 1] + 1;
	}
	start = now();
	ck_tiling_build(&in, perm, nodes);
	printf("result tiling-build-%u %.3f s <=0.5\n", nr,
	       (now() - start) / 1e9);
	free(perm);
	free(at);
	free(end);
	free(nodes);
}

int main(void)
{
	static const uint32_t counts[] = { 1, 8, 64, 1024 };

	for (size_t i = 0; i < CK_ARRAY_LEN(counts); i++) {
		bench_columns(counts[i], 0, "rows");
		bench_columns(counts[i], 12346, "unaligned");
	}
	bench_build(1000000);
	return 0;
}
