/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/cache/truncating_opens.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fs_truncating *newest;

void fs_truncating_add(struct fs_truncating *f, uint64_t ino, pid_t thread)
{
	f->ino = ino;
	f->thread = thread;
	pthread_mutex_lock(&lock);
	f->at = &newest;
	f->next = newest;
	if (f->next)
		f->next->at = &f->next;
	newest = f;
	pthread_mutex_unlock(&lock);
}

void fs_truncating_drop(struct fs_truncating *f)
{
	pthread_mutex_lock(&lock);
	if (f->at) {
		*f->at = f->next;
		if (f->next)
			f->next->at = f->at;
		f->at = NULL;
	}
	pthread_mutex_unlock(&lock);
}

int fs_truncating_call(uint64_t ino, pid_t thread,
		       int (*fn)(void *ctx, struct fs_truncating *f), void *ctx)
{
	struct fs_truncating *f;
	int ret;

	pthread_mutex_lock(&lock);
	for (f = newest; f && (f->ino != ino || f->thread != thread);)
		f = f->next;
	ret = f ? fn(ctx, f) : -EPERM;
	pthread_mutex_unlock(&lock);
	return ret;
}
