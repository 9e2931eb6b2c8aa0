/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own.c - a few words a source; those of sources never written stay untouched
 */
#include "core/io/own.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LOCKS 64

struct entry {
	_Atomic uint64_t at; /* the clock at the last begin or end; 0: never */
	_Atomic int64_t mtime_ns; /* means something once @at does */
	_Atomic uint32_t writers;
};

struct ck_own {
	const struct ck_image *img;
	_Atomic uint64_t clock;
	pthread_mutex_t lock[LOCKS]; /* by source: of begin and end */
	struct entry v[];
};

struct ck_own *ck_own_new(const struct ck_image *img)
{
	struct ck_own *own = calloc(
		1, sizeof(*own) + (size_t)img->nr_srcs * sizeof(own->v[0]));

	if (!own)
		return NULL;
	own->img = img;
	for (unsigned i = 0; i < LOCKS; i++)
		pthread_mutex_init(&own->lock[i], NULL);
	return own;
}

void ck_own_free(struct ck_own *own)
{
	if (!own)
		return;
	for (unsigned i = 0; i < LOCKS; i++)
		pthread_mutex_destroy(&own->lock[i]);
	free(own);
}

static int mtime_of(int fd, int64_t *out)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	*out = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	return 0;
}

static int unchanged(const struct ck_own *own, uint32_t src, int fd,
		     struct ck_err *err)
{
	const char *name =
		ck_image_str(own->img, own->img->srcs[src].name, NULL);
	int64_t mtime = 0;
	int ret = mtime_of(fd, &mtime);

	if (ret)
		return ck_fail(err, -ret, "%s: %s", name, strerror(-ret));
	if (mtime != ck_own_mtime(own, src))
		return ck_fail(err, ESTALE, "%s: was changed by somebody else",
			       name);
	return 0;
}

/* Under the lock: the clock moves on, and the entry with it. */
static void tick(struct ck_own *own, struct entry *e)
{
	atomic_store(&e->at, atomic_fetch_add(&own->clock, 1) + 1);
}

int ck_own_begin(struct ck_own *own, uint32_t src, int fd, uint64_t since,
		 struct ck_err *err)
{
	pthread_mutex_t *lock = &own->lock[src % LOCKS];
	struct entry *e = &own->v[src];
	int ret = 0;

	pthread_mutex_lock(lock);
	/* Nobody of us wrote since it was compared: that look counts. */
	if (!atomic_load(&e->writers) && !ck_own_still(own, src, since))
		ret = unchanged(own, src, fd, err);
	if (!ret) {
		if (!atomic_load(&e->at))
			atomic_store(&e->mtime_ns,
				     own->img->srcs[src].id.mtime_ns);
		atomic_fetch_add(&e->writers, 1);
		tick(own, e);
	}
	pthread_mutex_unlock(lock);
	return ret;
}

void ck_own_end(struct ck_own *own, uint32_t src, int fd)
{
	pthread_mutex_t *lock = &own->lock[src % LOCKS];
	struct entry *e = &own->v[src];
	int64_t mtime;

	pthread_mutex_lock(lock);
	if (atomic_load(&e->writers) == 1 && !mtime_of(fd, &mtime))
		atomic_store(&e->mtime_ns, mtime);
	tick(own, e);
	/* last: who finds no writer finds the new time */
	atomic_fetch_sub(&e->writers, 1);
	pthread_mutex_unlock(lock);
}

int64_t ck_own_mtime(const struct ck_own *own, uint32_t src)
{
	const struct entry *e = &own->v[src];

	return atomic_load(&e->at) ? atomic_load(&e->mtime_ns) :
				     own->img->srcs[src].id.mtime_ns;
}

uint64_t ck_own_clock(const struct ck_own *own)
{
	return atomic_load(&own->clock);
}

bool ck_own_still(const struct ck_own *own, uint32_t src, uint64_t since)
{
	return atomic_load(&own->v[src].at) <= since;
}

bool ck_own_busy(const struct ck_own *own, uint32_t src)
{
	return atomic_load(&own->v[src].writers);
}
