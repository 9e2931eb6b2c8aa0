/* SPDX-License-Identifier: Apache-2.0 */
/*
 * openfile.c - prints how many microseconds an open and close of FILE take, the
 * median of N; as user and group UID, if that is not 0
 *
 *	openfile FILE N UID
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int order(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static int become(uid_t uid)
{
	return uid && (setgroups(0, NULL) || setgid(uid) || setuid(uid));
}

int main(int argc, char **argv)
{
	size_t nr = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
	int64_t *took = calloc(nr + 1, sizeof(*took));

	if (!nr || !took || become((uid_t)strtoul(argv[3], NULL, 10)))
		return 2;
	for (size_t i = 0; i < nr; i++) {
		int64_t start = now_ns();
		int fd = open(argv[1], O_RDONLY);

		if (fd < 0) {
			fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
			return 1;
		}
		took[i] = now_ns() - start;
		close(fd);
	}
	qsort(took, nr, sizeof(*took), order);
	printf("%.1f\n", (double)took[nr / 2] / 1000);
	free(took);
	return 0;
}
