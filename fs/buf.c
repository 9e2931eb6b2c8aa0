/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf.c - one buffer a thread
 *
 * The kernel pins every page of a reply; in one huge page that is cheapest,
 * so the buffer lies alone in one.
 */
#include "fs/buf.h"

#include "fs/kernel.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

#define HUGE (UINT64_C(2) << 20)

_Static_assert(FS_MAX_IO <= HUGE, "a reply fits into one huge page");

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int key_err;

static void drop(void *buf)
{
	munmap(buf, HUGE);
}

static void make_key(void)
{
	key_err = pthread_key_create(&key, drop);
}

static void *map_aligned(void)
{
	char *at = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t skip;

	if (at == MAP_FAILED)
		return NULL;
	skip = (size_t)(-(uintptr_t)at & (HUGE - 1));
	if (skip)
		munmap(at, skip);
	munmap(at + skip + HUGE, HUGE - skip);
	madvise(at + skip, HUGE, MADV_HUGEPAGE);
	return at + skip;
}

void *fs_buf(void)
{
	void *buf;

	pthread_once(&once, make_key);
	if (key_err)
		return NULL;
	buf = pthread_getspecific(key);
	if (buf)
		return buf;
	buf = map_aligned();
	if (buf && pthread_setspecific(key, buf)) {
		drop(buf);
		buf = NULL;
	}
	return buf;
}
