/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf.c - a stack of free buffers
 *
 * [ FS_MAX_IO bytes for the reply | struct spare, on a page of its own | ... ]
 *
 * The kernel pins every page of a reply, which is cheapest in one huge page.
 */
#include "fs/kernel/buf.h"

#include "fs/kernel/kernel.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>

#define HUGE (UINT64_C(2) << 20)

_Static_assert(FS_MAX_IO < HUGE, "a reply fits, and the link after it");

struct spare {
	struct spare *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct spare *top;

static struct spare *link_of(void *buf)
{
	return (struct spare *)((char *)buf + FS_MAX_IO);
}

static void *buf_of(struct spare *s)
{
	return (char *)s - FS_MAX_IO;
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

void *fs_buf_get(void)
{
	struct spare *s;

	pthread_mutex_lock(&lock);
	s = top;
	if (s)
		top = s->next;
	pthread_mutex_unlock(&lock);
	return s ? buf_of(s) : map_aligned();
}

void fs_buf_put(void *buf)
{
	struct spare *s;

	if (!buf)
		return;
	s = link_of(buf);
	pthread_mutex_lock(&lock);
	s->next = top;
	top = s;
	pthread_mutex_unlock(&lock);
}

void fs_buf_drain(void)
{
	struct spare *s;

	pthread_mutex_lock(&lock);
	while ((s = top)) {
		top = s->next;
		munmap(buf_of(s), HUGE);
	}
	pthread_mutex_unlock(&lock);
}
