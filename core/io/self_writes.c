/* SPDX-License-Identifier: Apache-2.0 */
/*
 * self_writes.c - a few words a source; those of sources never written stay
 * untouched
 */
#include "core/io/self_writes.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LOCKS 64

struct entry {
	_Atomic uint64_t at; /* the clock at the last begin or end; 0: never */
	/* mean something once @at does */
	_Atomic int64_t mtime_ns, ctime_ns;
	_Atomic uint32_t writers;
	atomic_bool touched; /* and that was not taken */
};

struct ck_self_writes {
	const struct ck_catalog *img;
	_Atomic uint64_t clock, touches;
	pthread_mutex_t lock[LOCKS]; /* by source: of begin and end */
	struct entry v[];
};

struct ck_self_writes *ck_self_writes_new(const struct ck_catalog *img)
{
	struct ck_self_writes *self_writes = calloc(
		1, sizeof(*self_writes) +
			   (size_t)img->nr_srcs * sizeof(self_writes->v[0]));

	if (!self_writes)
		return NULL;
	self_writes->img = img;
	for (unsigned i = 0; i < LOCKS; i++)
		pthread_mutex_init(&self_writes->lock[i], NULL);
	return self_writes;
}

void ck_self_writes_free(struct ck_self_writes *self_writes)
{
	if (!self_writes)
		return;
	for (unsigned i = 0; i < LOCKS; i++)
		pthread_mutex_destroy(&self_writes->lock[i]);
	free(self_writes);
}

static int id_of(int fd, struct ck_id *out)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	*out = ck_id_of(&st);
	return 0;
}

/* Under the lock. */
static void expect(struct entry *e, const struct ck_id *id)
{
	atomic_store(&e->mtime_ns, id->mtime_ns);
	atomic_store(&e->ctime_ns, id->ctime_ns);
}

/* Under the lock: the clock moves on, and the entry with it. */
static void tick(struct ck_self_writes *self_writes, struct entry *e)
{
	atomic_store(&e->at, atomic_fetch_add(&self_writes->clock, 1) + 1);
}

/* Under the lock: @src is @now, and was not written by us. */
static void touched(struct ck_self_writes *self_writes, uint32_t src,
		    const struct ck_id *now)
{
	struct entry *e = &self_writes->v[src];

	/* first: who finds the new times finds that it was touched */
	atomic_store(&e->touched, true);
	atomic_fetch_add(&self_writes->touches, 1);
	expect(e, now);
	tick(self_writes, e);
}

/* Under the lock. */
static int unchanged(struct ck_self_writes *self_writes, uint32_t src, int fd,
		     struct ck_err *err)
{
	const char *name = ck_catalog_str(
		self_writes->img, self_writes->img->srcs[src].name, NULL);
	struct ck_id was = ck_self_writes_id(self_writes, src), now;
	int ret = id_of(fd, &now);

	if (ret)
		return ck_fail(err, -ret, "%s: %s", name, strerror(-ret));
	if (ck_id_compare(&was, &now) == CK_ID_TOUCHED)
		touched(self_writes, src, &now);
	else if (ck_id_compare(&was, &now) != CK_ID_SAME)
		return ck_fail(err, ESTALE, "%s: was changed by somebody else",
			       name);
	return 0;
}

int ck_self_writes_begin(struct ck_self_writes *self_writes, uint32_t src,
			 int fd, uint64_t since, struct ck_err *err)
{
	pthread_mutex_t *lock = &self_writes->lock[src % LOCKS];
	struct entry *e = &self_writes->v[src];
	int ret = 0;

	pthread_mutex_lock(lock);
	/* Nobody of us wrote since it was compared: that look counts. */
	if (!atomic_load(&e->writers) &&
	    !ck_self_writes_still(self_writes, src, since))
		ret = unchanged(self_writes, src, fd, err);
	if (!ret) {
		if (!atomic_load(&e->at))
			expect(e, &self_writes->img->srcs[src].id);
		atomic_fetch_add(&e->writers, 1);
		tick(self_writes, e);
	}
	pthread_mutex_unlock(lock);
	return ret;
}

void ck_self_writes_end(struct ck_self_writes *self_writes, uint32_t src,
			int fd)
{
	pthread_mutex_t *lock = &self_writes->lock[src % LOCKS];
	struct entry *e = &self_writes->v[src];
	struct ck_id now;

	pthread_mutex_lock(lock);
	if (atomic_load(&e->writers) == 1 && !id_of(fd, &now))
		expect(e, &now);
	tick(self_writes, e);
	/* last: who finds no writer finds the new time */
	atomic_fetch_sub(&e->writers, 1);
	pthread_mutex_unlock(lock);
}

struct ck_id ck_self_writes_id(const struct ck_self_writes *self_writes,
			       uint32_t src)
{
	const struct entry *e = &self_writes->v[src];
	struct ck_id id = self_writes->img->srcs[src].id;

	if (atomic_load(&e->at)) {
		id.mtime_ns = atomic_load(&e->mtime_ns);
		id.ctime_ns = atomic_load(&e->ctime_ns);
	}
	return id;
}

void ck_self_writes_touch(struct ck_self_writes *self_writes, uint32_t src,
			  int fd)
{
	pthread_mutex_t *lock = &self_writes->lock[src % LOCKS];
	struct ck_id was, now;

	pthread_mutex_lock(lock);
	was = ck_self_writes_id(self_writes, src);
	if (!ck_self_writes_busy(self_writes, src) && !id_of(fd, &now)) {
		ck_id_as(&now, &was); /* that was compared */
		if (ck_id_compare(&was, &now) == CK_ID_TOUCHED)
			touched(self_writes, src, &now);
	}
	pthread_mutex_unlock(lock);
}

uint64_t ck_self_writes_touches(const struct ck_self_writes *self_writes)
{
	return atomic_load(&self_writes->touches);
}

bool ck_self_writes_take_touch(struct ck_self_writes *self_writes, uint32_t src)
{
	atomic_bool *e = &self_writes->v[src].touched;

	return atomic_load(e) && atomic_exchange(e, false);
}

uint64_t ck_self_writes_clock(const struct ck_self_writes *self_writes)
{
	return atomic_load(&self_writes->clock);
}

bool ck_self_writes_still(const struct ck_self_writes *self_writes,
			  uint32_t src, uint64_t since)
{
	return atomic_load(&self_writes->v[src].at) <= since;
}

bool ck_self_writes_busy(const struct ck_self_writes *self_writes, uint32_t src)
{
	return atomic_load(&self_writes->v[src].writers);
}
