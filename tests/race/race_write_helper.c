/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race_aid - writers that meet and part, and the thread that helps them
 *
 * One writes alone, then four at once, then one again: the helper takes part
 * in some of the requests, and the thread sanitizer watches.
 */
#include "core/io/write_helper.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 4, FILES = 8, PART = 64 << 10, TURNS = 60 };

static struct ck_write_helper *helper;
static int fd[FILES];

static void must(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "race_aid: %s\n", what);
	exit(1);
}

static void put(char *buf, uint64_t at)
{
	struct iovec iov[FILES];
	struct ck_io io[FILES];

	for (int i = 0; i < FILES; i++) {
		iov[i] = (struct iovec){ buf, PART };
		io[i] = (struct ck_io){ .op = CK_IO_WRITE,
					.fd = fd[i],
					.off = at,
					.len = PART,
					.iov = &iov[i],
					.nr_iov = 1,
					.res = 1 };
	}
	ck_write_helper_run(helper, &ck_engine_plain, io, FILES);
	for (int i = 0; i < FILES; i++)
		must(!io[i].res, "a request that is not done");
}

static void *turns(void *arg)
{
	uint64_t nr = (uintptr_t)arg;
	char *buf = malloc(PART);

	must(buf != NULL, "memory");
	for (int n = 0; n < TURNS; n++) {
		memset(buf, (int)nr + n, PART);
		put(buf, nr * PART);
	}
	free(buf);
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS];

	helper = ck_write_helper_new(true);
	must(helper != NULL, "memory");
	for (int i = 0; i < FILES; i++) {
		fd[i] = memfd_create("aid", MFD_CLOEXEC);
		must(fd[i] >= 0, "files");
	}
	turns(NULL);
	for (uintptr_t k = 0; k < THREADS; k++)
		must(!pthread_create(&t[k], NULL, turns, (void *)k), "thread");
	for (int k = 0; k < THREADS; k++)
		pthread_join(t[k], NULL);
	usleep(100000); /* until they count as parted */
	turns(NULL);
	ck_write_helper_free(helper);
	for (int i = 0; i < FILES; i++)
		close(fd[i]);
	return 0;
}
