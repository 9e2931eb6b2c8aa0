/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opens CKPT RANKS - seconds of opening, median of five; then of each of RANKS
 * processes that open by the catalog of one, the longest; then the lowest and the
 * highest of the five
 */
#include "core/base/clock.h"
#include "core/lib/unshard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static double open_once(const char *path, int image, int *give)
{
	unshard_open_opts opts = { .size = sizeof(opts), .image_fd = image };
	int64_t begun = ck_now_ns();
	unshard_error err;
	unshard_ctx *ctx;
	unshard_ckpt *ck;
	double took;

	if (unshard_ctx_new(&ctx, NULL, &err) ||
	    unshard_open(ctx, path, &opts, &ck, &err) ||
	    (give && unshard_image(ck, give, NULL, &err))) {
		fprintf(stderr, "opens: %s\n", err.text);
		exit(1);
	}
	took = (double)(ck_now_ns() - begun) / 1e9;
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	return took;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int ranks = argc == 3 ? atoi(argv[2]) : 0, image, pipes[2];
	double took[5], longest = 0;

	if (ranks < 1 || pipe(pipes))
		return 2;
	for (int i = 0; i < 5; i++) {
		image = -1;
		took[i] = open_once(argv[1], 0, &image);
	}
	qsort(took, 5, sizeof(*took), by_value);
	for (int i = 0; i < ranks; i++)
		if (!fork()) {
			double t = open_once(argv[1], image, NULL);

			_exit(write(pipes[1], &t, sizeof(t)) != sizeof(t));
		}
	for (int i = 0; i < ranks; i++) {
		double t;

		if (read(pipes[0], &t, sizeof(t)) != sizeof(t))
			return 1;
		longest = t > longest ? t : longest;
	}
	while (wait(NULL) > 0)
		;
	printf("%.4f %.4f %.4f %.4f\n", took[2], longest, took[0], took[4]);
	return 0;
}
