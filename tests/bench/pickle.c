// SPDX-License-Identifier: Apache-2.0
/*
 * pickle.c - how fast and how lean a pickle is parsed
 *
 *	pickle FILE [ROUNDS]
 *
 * The best round counts; memory is bytes of the arena for each of the input.
 */
#include "core/parse/pickle.h"
#include "tests/lib/pickles.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static char *read_file(const char *name, size_t *len)
{
	FILE *f = fopen(name, "rb");
	char *bytes = NULL;
	long size;

	if (!f)
		return NULL;
	if (!fseek(f, 0, SEEK_END) && (size = ftell(f)) > 0) {
		rewind(f);
		bytes = malloc((size_t)size);
		*len = bytes ? fread(bytes, 1, (size_t)size, f) : 0;
	}
	fclose(f);
	return bytes;
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 10;
	double best = 1e30;
	size_t len = 0;
	char *bytes = argc > 1 ? read_file(argv[1], &len) : NULL;
	uint64_t ops = 0, mem = 0;

	if (!bytes) {
		fprintf(stderr, "usage: pickle FILE [ROUNDS]\n");
		return 2;
	}
	for (int i = 0; i < rounds; i++) {
		struct ck_pickle *p;
		struct ck_err err;
		double start = now_ms();

		if (ck_pickle_parse(&p, bytes, len, NULL, NULL, &err)) {
			fprintf(stderr, "%s: %s\n", argv[1], err.msg);
			return 1;
		}
		if (now_ms() - start < best)
			best = now_ms() - start;
		ops = p->nr_ops;
		mem = pickle_memory(p);
		ck_pickle_free(p);
	}
	printf("result pickle_ms %.2f ms\n", best);
	printf("result pickle_ops %.1f M/s\n", (double)ops / best / 1e3);
	printf("result pickle_memory %.2f B/B <=4\n",
	       (double)mem / (double)len);
	free(bytes);
	return 0;
}
