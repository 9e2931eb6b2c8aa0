/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readfile.c - how fast files are read, one block after the other
 *
 *	readfile [-c] [-f FILE]... [-m] BLOCK FILE...	prints GB/s
 *	readfile -r N BLOCK FILE	reads N blocks at random; median us, 99 %
 *
 * -c: ask the kernel to forget the files first, -f: that one too.  -m: by
 * mmap, a block being copied at a time.  A file that ends early or an error is exit code 1.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char *block;
static size_t block_len;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t by_read(int fd)
{
	uint64_t sum = 0;
	ssize_t got;

	while ((got = read(fd, block, block_len)) > 0)
		sum += (uint64_t)got;
	return got ? 0 : sum;
}

static uint64_t by_mmap(int fd, uint64_t size)
{
	const char *at = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);

	if (at == MAP_FAILED)
		return 0;
	for (uint64_t off = 0; off < size; off += block_len)
		memcpy(block, at + off,
		       size - off < block_len ? size - off : block_len);
	munmap((void *)(uintptr_t)at, size);
	return size;
}

/* Seconds, or less than 0 where it was not read whole; adds to *bytes. */
static double one(const char *path, bool map, uint64_t *bytes)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	double start = now();
	uint64_t got;

	if (fd < 0 || fstat(fd, &st))
		return -1;
	got = map ? by_mmap(fd, (uint64_t)st.st_size) : by_read(fd);
	close(fd);
	*bytes += got;
	return got == (uint64_t)st.st_size ? now() - start : -1;
}

static int by_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Blocks begin at multiples of themselves, each time the same ones. */
static int at_random(const char *path, size_t nr)
{
	double *took = calloc(nr, sizeof(*took));
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t lot = 88172645463325252u;

	if (!took || !nr || fd < 0 || fstat(fd, &st) ||
	    (size_t)st.st_size < block_len)
		return 1;
	for (size_t i = 0; i < nr; i++) {
		double start;
		off_t at;

		lot ^= lot << 13;
		lot ^= lot >> 7;
		lot ^= lot << 17;
		at = (off_t)(lot % ((size_t)st.st_size / block_len) *
			     block_len);
		start = now();
		if (pread(fd, block, block_len, at) != (ssize_t)block_len)
			return 1;
		took[i] = now() - start;
	}
	close(fd);
	qsort(took, nr, sizeof(*took), by_double);
	printf("%.2f %.2f\n", took[nr / 2] * 1e6, took[nr * 99 / 100] * 1e6);
	free(took);
	return 0;
}

static void forget(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	fdatasync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

int main(int argc, char **argv)
{
	bool cold = false, map = false;
	size_t random = 0;
	uint64_t bytes = 0;
	double seconds = 0;
	int c;

	while ((c = getopt(argc, argv, "cf:mr:")) != -1) {
		cold = cold || c == 'c';
		map = map || c == 'm';
		if (c == 'f')
			forget(optarg);
		if (c == 'r')
			random = strtoull(optarg, NULL, 10);
	}
	if (argc - optind < 2) {
		fprintf(stderr, "usage: readfile [-c] [-f FILE]... [-m] [-r N] "
				"BLOCK FILE...\n");
		return 2;
	}
	block_len = strtoull(argv[optind++], NULL, 10);
	block = aligned_alloc(4096, (block_len + 4095) & ~(size_t)4095);
	if (!block)
		return 1;
	if (random)
		return at_random(argv[optind], random);
	for (int i = optind; cold && i < argc; i++)
		forget(argv[i]);
	for (int i = optind; i < argc; i++) {
		double took = one(argv[i], map, &bytes);

		if (took < 0) {
			perror(argv[i]);
			return 1;
		}
		seconds += took;
	}
	printf("%.3f\n", (double)bytes / seconds / 1e9);
	return 0;
}
