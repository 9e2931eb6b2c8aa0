/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmap32.c - 32 threads compare their own maps of a file with another file
 *
 *	mmap32 FILE COPY
 *
 * Each thread starts elsewhere and goes backwards through the pages, so that
 * they all fault at once and read-ahead does not do it for them.  Half of the
 * threads read into a mapped page of the same file, too: a fault in the
 * kernel, while a request is made.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREADS 32
#define PAGE 4096

static const char *path;
static const char *copy;
static size_t size;

static const char *map(const char *name, int flags, int *fd)
{
	const char *at;

	*fd = open(name, O_RDONLY);
	if (*fd < 0)
		return NULL;
	at = mmap(NULL, size, PROT_READ, flags, *fd, 0);
	return at == MAP_FAILED ? NULL : at;
}

/* write() from the map: the kernel faults the page in. */
static int through_kernel(const char *at, size_t off, size_t len)
{
	char back[PAGE];
	int p[2], ret = 0;

	if (pipe(p))
		return 1;
	if (write(p[1], at + off, len) != (ssize_t)len ||
	    read(p[0], back, len) != (ssize_t)len ||
	    memcmp(back, copy + off, len))
		ret = 1;
	close(p[0]);
	close(p[1]);
	return ret;
}

static void *run(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	size_t pages = (size + PAGE - 1) / PAGE, begin = pages * me / THREADS;
	int fd;
	const char *at = map(path, me % 4 ? MAP_SHARED : MAP_PRIVATE, &fd);

	if (!at)
		return "cannot map";
	for (size_t i = 0; i < pages; i++) {
		size_t page = (begin + 7 * (pages - i)) % pages;
		size_t off = page * PAGE;
		size_t len = size - off < PAGE ? size - off : PAGE;

		if (me % 2 ? through_kernel(at, off, len) :
			     memcmp(at + off, copy + off, len))
			return "wrong bytes";
	}
	munmap((void *)(uintptr_t)at, size);
	close(fd);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread[THREADS];
	struct stat st;
	int failed = 0, fd;

	if (argc != 3 || stat(argv[2], &st))
		return 2;
	path = argv[1];
	size = (size_t)st.st_size;
	copy = map(argv[2], MAP_SHARED, &fd);
	if (!copy)
		return 2;
	for (unsigned i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, run, (void *)(uintptr_t)i))
			return 2;
	for (unsigned i = 0; i < THREADS; i++) {
		void *why;

		pthread_join(thread[i], &why);
		if (why)
			fprintf(stderr, "thread %u: %s\n", i, (char *)why);
		failed |= why != NULL;
	}
	return failed;
}
