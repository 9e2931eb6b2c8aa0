/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loaders.c - N processes that begin at once, each with the whole of FILE in
 * memory of its own when it ends; prints how many seconds all of them took
 *
 *	loaders read|map N FILE
 *
 * read: 1 MiB at a time.  map: a map is copied.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK ((size_t)1 << 20)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool by_read(int fd, char *to, size_t size)
{
	size_t off = 0;
	ssize_t n = 1;

	while (off < size && n > 0) {
		n = read(fd, to + off, size - off < BLOCK ? size - off : BLOCK);
		off += n > 0 ? (size_t)n : 0;
	}
	return off == size;
}

static bool by_map(int fd, char *to, size_t size)
{
	void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return false;
	memcpy(to, at, size);
	return true;
}

static int load(const char *path, bool map)
{
	int fd = open(path, O_RDONLY);
	struct stat st;
	char *to;

	if (fd < 0 || fstat(fd, &st))
		return 1;
	to = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (to == MAP_FAILED)
		return 1;
	return !(map ? by_map : by_read)(fd, to, (size_t)st.st_size);
}

int main(int argc, char **argv)
{
	int nr = argc == 4 ? atoi(argv[2]) : 0, bad = 0, status, go[2];
	char byte;
	double start;

	if (nr < 1 || pipe(go))
		return 2;
	for (int i = 0; i < nr; i++) {
		if (fork())
			continue;
		close(go[1]);
		if (read(go[0], &byte, 1)) /* until all are there */
			_exit(1);
		_exit(load(argv[3], !strcmp(argv[1], "map")));
	}
	start = now();
	close(go[1]);
	while (wait(&status) > 0)
		bad |= status;
	printf("%.3f\n", now() - start);
	return bad != 0;
}
