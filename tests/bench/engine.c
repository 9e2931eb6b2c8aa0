/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine - which engine reads a tensor split along dim 1 over 8 shards best
 *
 *	engine DIR [MIB [ROUNDS]]
 *
 * Eight files of MIB/8 in DIR are read as one tensor would be: each request
 * of 1 MiB takes 128 KiB of every shard, scattered row by row.  The engines
 * take turns in one run; figures are medians and the ratio to plain.  Cold
 * means posix_fadvise(DONTNEED) on every shard before the pass; scattered, cold
 * too, that no request follows the one before, so that read-ahead guesses wrong.
 */
#include "core/io/engine_priv.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SHARDS = 8, ROW = 4096, REQUEST = 1 << 20, ENGINES = 3 };

static const struct ck_engine_ops *const engines[ENGINES] = { &ck_engine_plain,
							      &ck_engine_uring,
							      &ck_engine_ring };
static const char *const labels[ENGINES] = { "plain", "hybrid", "ring" };

static int fds[SHARDS];
static uint64_t shard_len;
static unsigned char *buf;
static struct iovec iov[SHARDS][REQUEST / SHARDS / ROW];

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void make_shards(const char *dir)
{
	for (int s = 0; s < SHARDS; s++) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/shard-%d", dir, s);
		fds[s] = open(path, O_RDWR | O_CREAT, 0600);
		if (fds[s] < 0) {
			perror(path);
			exit(2);
		}
		memset(buf, 'a' + s, REQUEST);
		for (uint64_t at = 0; at < shard_len; at += REQUEST)
			if (pwrite(fds[s], buf, REQUEST, (off_t)at) != REQUEST)
				exit(2);
		fdatasync(fds[s]);
		unlink(path);
	}
}

static void drop(void)
{
	for (int s = 0; s < SHARDS; s++)
		posix_fadvise(fds[s], 0, 0, POSIX_FADV_DONTNEED);
}

static void read_request(struct ck_engine *e, uint64_t at)
{
	struct ck_io io[SHARDS];
	const unsigned rows = REQUEST / SHARDS / ROW;

	for (unsigned s = 0; s < SHARDS; s++) {
		for (unsigned r = 0; r < rows; r++) {
			iov[s][r].iov_base = buf + (r * SHARDS + s) * ROW;
			iov[s][r].iov_len = ROW;
		}
		io[s] = (struct ck_io){ .fd = fds[s],
					.off = at,
					.len = REQUEST / SHARDS,
					.iov = iov[s],
					.nr_iov = rows };
	}
	e->ops->run(e, io, SHARDS);
	for (unsigned s = 0; s < SHARDS; s++)
		if (io[s].res ||
		    buf[(rows - 1) * SHARDS * ROW + s * ROW] != 'a' + s)
			exit(1);
}

static double pass(struct ck_engine *e, bool scattered)
{
	const uint64_t nr = shard_len / (REQUEST / SHARDS);
	double start = now();

	/* An odd step visits every place of a power of two once. */
	for (uint64_t i = 0; i < nr; i++) {
		uint64_t at = scattered ? i * 1103515245 % nr : i;

		read_request(e, at * (REQUEST / SHARDS));
	}
	return (double)(shard_len * SHARDS) / 1e9 / (now() - start);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Ends a line: the lowest and the highest of the turns, if there are two. */
static void print_spread(double *turn, unsigned rounds)
{
	qsort(turn, rounds, sizeof(double), by_value);
	if (rounds > 1)
		printf(" - %.2f %.2f", turn[0], turn[rounds - 1]);
	printf("\n");
}

static void compare(const char *what, bool cold, bool scattered,
		    unsigned rounds)
{
	double got[ENGINES][64], ratio[ENGINES][64], plain = 0;

	for (unsigned r = 0; r < rounds; r++) {
		for (unsigned k = 0; k < ENGINES; k++) {
			unsigned i = (k + r) % ENGINES;
			struct ck_engine *e = engines[i]->open(NULL);

			if (!e) {
				got[i][r] = 0;
				continue;
			}
			if (cold)
				drop();
			got[i][r] = pass(e, scattered);
			e->ops->close(e);
		}
	}
	for (unsigned i = 0; i < ENGINES; i++)
		for (unsigned r = 0; r < rounds; r++)
			ratio[i][r] = got[i][r] / got[0][r];
	for (unsigned i = 0; i < ENGINES; i++) {
		qsort(got[i], rounds, sizeof(double), by_value);
		if (!i)
			plain = got[0][rounds / 2];
		printf("result engine_%s_%s %.2f GB/s", what, labels[i],
		       got[i][rounds / 2]);
		print_spread(got[i], rounds);
		printf("result engine_%s_%s_to_plain %.2f ratio", what,
		       labels[i], got[i][rounds / 2] / plain);
		print_spread(ratio[i], rounds);
	}
}

int main(int argc, char **argv)
{
	uint64_t mib = argc > 2 ? strtoull(argv[2], NULL, 10) : 256;
	unsigned rounds = argc > 3 ? (unsigned)atoi(argv[3]) : 5;

	if (argc < 2 || mib < SHARDS || rounds < 1 || rounds > 64) {
		fprintf(stderr, "usage: engine DIR [MIB [ROUNDS]]\n");
		return 2;
	}
	shard_len = mib / SHARDS << 20;
	buf = aligned_alloc(4096, REQUEST);
	if (!buf)
		return 2;
	make_shards(argv[1]);
	compare("warm", false, false, rounds);
	compare("cold", true, false, rounds);
	compare("scattered", true, true, rounds);
	return 0;
}
