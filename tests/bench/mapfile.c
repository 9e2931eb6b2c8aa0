/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapfile.c - how fast a map of a file is read
 *
 *	mapfile HOW FILE		two passes in order over one map; GB/s of each
 *	mapfile random N THREADS FILE	N faults by each thread; us: median, 99 %, longest
 *
 * HOW: order (no advice), sequential, willneed, or populate (MADV_POPULATE_READ
 * of 16 MiB at a time).  The kernel is asked to forget the file first.  What is
 * copied at once is small: of more than a cache holds, memcpy() takes from four
 * pages in turn, which is not in order.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK ((size_t)256 << 10)
#define POPULATE ((size_t)16 << 20)
#define PAGE 4096u
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

static const unsigned char *at;
static size_t size;
static char block[BLOCK];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void map(const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st))
		die(path);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	size = (size_t)st.st_size;
	at = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (at == MAP_FAILED)
		die("mmap");
	close(fd);
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static double pass(const char *how)
{
	void *start = (void *)(uintptr_t)at;
	double begin = now();

	if (!strcmp(how, "sequential"))
		madvise(start, size, MADV_SEQUENTIAL);
	else if (!strcmp(how, "willneed"))
		madvise(start, size, MADV_WILLNEED);
	for (size_t off = 0; off < size; off += BLOCK) {
		if (!strcmp(how, "populate") && off % POPULATE == 0 &&
		    madvise((char *)start + off, least(POPULATE, size - off),
			    MADV_POPULATE_READ))
			die("MADV_POPULATE_READ");
		memcpy(block, at + off, least(BLOCK, size - off));
		__asm__ volatile("" : : "r"(block) : "memory");
	}
	return (double)size / (now() - begin) / 1e9;
}

/* ---- faults ---- */

static size_t count;
static double *took;

static void *faults(void *first)
{
	double *mine = first;
	uint64_t seed = (uint64_t)(mine - took) + 88172645463325252u;

	for (size_t i = 0; i < count; i++) {
		double begin = now();

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		(void)*(const volatile unsigned char *)(at + seed % size);
		mine[i] = (now() - begin) * 1e6;
	}
	return NULL;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void random_faults(size_t threads)
{
	pthread_t *t = calloc(threads, sizeof(*t));
	size_t all = threads * count;

	took = calloc(all, sizeof(*took));
	if (!t || !took)
		die("calloc");
	madvise((void *)(uintptr_t)at, size, MADV_RANDOM);
	for (size_t i = 0; i < threads; i++)
		if (pthread_create(&t[i], NULL, faults, took + i * count))
			die("pthread_create");
	for (size_t i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	qsort(took, all, sizeof(*took), ascending);
	printf("%.1f %.1f %.1f\n", took[all / 2], took[all - 1 - all / 100],
	       took[all - 1]);
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "random")) {
		count = strtoul(argv[2], NULL, 10);
		map(argv[4]);
		random_faults(strtoul(argv[3], NULL, 10));
	} else if (argc == 3) {
		double first;

		map(argv[2]);
		first = pass(argv[1]);
		printf("%.3f %.3f\n", first, pass("order"));
	} else {
		fprintf(stderr, "usage: mapfile HOW FILE\n");
		return 2;
	}
	return 0;
}
