/* SPDX-License-Identifier: Apache-2.0 */
/*
 * msyncfile.c - how fast what was stored through a map is written
 *
 *	msyncfile FILE OFFSET LEN	prints GB/s
 *
 * All of [OFFSET, OFFSET+LEN) is stored into, a byte other than the last time,
 * and then synced by one msync: its time counts, and that of the stores.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static unsigned char *map(const char *name, size_t *size)
{
	int fd = open(name, O_RDWR);
	struct stat st;
	void *m;

	if (fd < 0 || fstat(fd, &st)) {
		perror(name);
		exit(1);
	}
	*size = (size_t)st.st_size;
	m = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return m;
}

int main(int argc, char **argv)
{
	size_t size, off, len;
	unsigned char *m;
	double start;

	if (argc != 4)
		return 2;
	m = map(argv[1], &size);
	off = (size_t)atol(argv[2]);
	len = (size_t)atol(argv[3]);
	if (off > size || len > size - off)
		return 2;
	start = now();
	memset(m + off, m[off] + 1, len);
	if (msync(m, size, MS_SYNC)) {
		perror("msync");
		return 1;
	}
	printf("%.3f\n", (double)len / (now() - start) / 1e9);
	return 0;
}
