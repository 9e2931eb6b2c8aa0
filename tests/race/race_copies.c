/* SPDX-License-Identifier: Apache-2.0 */
/*
 * race_copies - copies that are filled, read, pushed out and outdated at once
 *
 * Eight readers of three files, by reads of all sizes, with room for two copies;
 * a ninth thread changes the inodes of the files, and no byte, so that copies
 * become old while they are filled.  Each byte is compared, and the thread
 * sanitizer watches.
 */
#include "tests/lib/copykit.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 8, TURNS = 12 };

static struct copykit k;
static _Atomic unsigned running, wrong, past;

static uint64_t next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* As the kernel: a number that is left to others is looked up again, once. */
static bool opened(unsigned t, struct fs_copy_open *o)
{
	uint64_t ino = fs_passed_ino(k.passed, 1000 + t);
	int ret = copykit_open(&k, t, (unsigned)(ino >> 28) & 15, o);

	if (ret == -ESTALE) {
		ino = fs_passed_ino(k.passed, 1000 + t);
		ret = copykit_open(&k, t, (unsigned)(ino >> 28) & 15, o);
	}
	past += ret == -ESTALE;
	return !ret;
}

static void *reads(void *arg)
{
	uint64_t seed = 88172645463325252u + (uintptr_t)arg;

	for (unsigned i = 0; i < TURNS; i++) {
		unsigned t = (unsigned)(next(&seed) % COPYKIT_TENSORS);
		uint64_t step = 1000 + next(&seed) % (2u << 20);
		struct fs_copy_open o;
		bool right;

		if (!opened(t, &o))
			continue;
		if (copykit_read_all(&k, t, &o, step, 0, &right) || !right)
			wrong++;
		if (copykit_read(&k, t, &o, 1000, next(&seed) % (3u << 20), 0,
				 &right) ||
		    !right)
			wrong++;
		copykit_close(&k, &o);
	}
	running--;
	return NULL;
}

static void *touches(void *arg)
{
	(void)arg;
	for (unsigned i = 0; running; i++) {
		copykit_touch(&k, i % COPYKIT_TENSORS);
		usleep(20000);
	}
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS], toucher;

	copykit_start(&k);
	for (unsigned turn = 0; turn < 2; turn++) { /* the second one touches */
		copykit_serve(&k, 2 * CK_COPY_SIZE, false, k.kept_fd);
		running = THREADS;
		for (unsigned i = 0; i < THREADS; i++)
			if (pthread_create(&thread[i], NULL, reads,
					   (void *)(uintptr_t)(i + 100 * turn)))
				abort();
		if (turn && pthread_create(&toucher, NULL, touches, NULL))
			abort();
		for (unsigned i = 0; i < THREADS; i++)
			pthread_join(thread[i], NULL);
		if (turn)
			pthread_join(toucher, NULL);
		printf("turn %u: %u wrong, %u opens refused twice, %llu held\n",
		       turn, wrong, past,
		       (unsigned long long)k.kernel.cache.held);
		if (wrong || (!turn && past) ||
		    k.kernel.cache.held > 2 * CK_COPY_SIZE)
			return 1;
		copykit_unserve(&k);
	}
	copykit_end(&k);
	return 0;
}
