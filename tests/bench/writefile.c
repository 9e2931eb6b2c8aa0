/* SPDX-License-Identifier: Apache-2.0 */
/*
 * writefile.c - how fast files are overwritten, one block after the other
 *
 *	writefile WRITERS BLOCK FILE...		prints GB/s
 *
 * Each writer has a descriptor of its own and its own part of all bytes; the
 * time includes the closes.  Files keep their size.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_WRITERS 64

static size_t block_len;
static char **file;
static unsigned nr_files, writers;

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

static uint64_t size_of(const char *name)
{
	struct stat st;

	if (stat(name, &st))
		die(name);
	return (uint64_t)st.st_size;
}

static void write_part(const char *name, const char *block, unsigned nr)
{
	uint64_t size = size_of(name), part = size / writers;
	uint64_t at = nr * part, end = nr + 1 == writers ? size : at + part;
	int fd = open(name, O_WRONLY);

	if (fd < 0)
		die(name);
	while (at < end) {
		size_t n =
			end - at < block_len ? (size_t)(end - at) : block_len;

		if (pwrite(fd, block, n, (off_t)at) != (ssize_t)n)
			die(name);
		at += n;
	}
	if (close(fd))
		die(name);
}

/* As cp and dd have it: else each MiB would be cut in two by the kernel. */
static char *page_aligned(size_t len)
{
	void *at;

	return posix_memalign(&at, 4096, len) ? NULL : at;
}

static void *run(void *ctx)
{
	unsigned nr = (unsigned)(uintptr_t)ctx;
	char *block = page_aligned(block_len);

	if (!block)
		die("memory");
	memset(block, (int)nr + 1, block_len);
	for (unsigned i = 0; i < nr_files; i++)
		write_part(file[i], block, nr);
	free(block);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread[MAX_WRITERS];
	uint64_t sum = 0;
	double start;

	if (argc < 4)
		return 2;
	writers = (unsigned)atoi(argv[1]);
	block_len = (size_t)atol(argv[2]);
	file = argv + 3;
	nr_files = (unsigned)argc - 3;
	if (!writers || writers > MAX_WRITERS || !block_len)
		return 2;
	for (unsigned i = 0; i < nr_files; i++)
		sum += size_of(file[i]);
	start = now();
	for (unsigned i = 0; i < writers; i++)
		if (pthread_create(&thread[i], NULL, run, (void *)(uintptr_t)i))
			die("pthread_create");
	for (unsigned i = 0; i < writers; i++)
		pthread_join(thread[i], NULL);
	printf("%.3f\n", (double)sum / (now() - start) / 1e9);
	return 0;
}
