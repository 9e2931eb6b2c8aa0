/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash.c - digests of blocks, by threads that share out stretches of files
 *
 * A stretch is some blocks of one file.  Who takes one opens the file, and hashes
 * each block as it passes through a buffer that stays in the processor's cache.
 * The kernel reads ahead by itself, in large folios and thus few large requests;
 * what POSIX_FADV_WILLNEED asks for comes in single pages, and took half as long
 * again.
 */
#include "core/manifest/hash.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/manifest/manifest_priv.h"
#include "core/base/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <xxhash.h>

#define STRETCH (UINT64_C(32) << 20) /* bytes */
#define BUFFER ((size_t)256 << 10)

struct run {
	const struct ck_hash_in *in;
	pthread_mutex_t lock;
	size_t file; /* next stretch: of this file, from this block on */
	uint64_t block;
	_Atomic uint64_t bytes;
	_Atomic int stop; /* -errno */
};

struct stretch {
	size_t file;
	uint64_t first, end; /* blocks */
};

static uint64_t blocks_of(const struct run *r, size_t i)
{
	return ck_mf_nr_blocks(r->in->file[i].size, r->in->shift);
}

static bool wanted(const struct run *r, size_t i, uint64_t k)
{
	return !r->in->file[i].known &&
	       (!r->in->want || r->in->want(r->in->ctx, i, k));
}

/* With the lock held: to the next block that is wanted; false: no more. */
static bool seek(struct run *r)
{
	for (; r->file < r->in->nr; r->file++, r->block = 0)
		for (; r->block < blocks_of(r, r->file); r->block++)
			if (wanted(r, r->file, r->block))
				return true;
	return false;
}

static bool take(struct run *r, struct stretch *s)
{
	uint64_t most = CK_MAX(STRETCH >> r->in->shift, 1);
	bool some;

	pthread_mutex_lock(&r->lock);
	some = !r->stop && seek(r);
	if (some) {
		uint64_t end = CK_MIN(blocks_of(r, r->file), r->block + most);

		*s = (struct stretch){ r->file, r->block, r->block + 1 };
		while (s->end < end && wanted(r, r->file, s->end))
			s->end++;
		r->block = s->end;
	}
	pthread_mutex_unlock(&r->lock);
	return some;
}

struct ck_hasher {
	const struct ck_hash_in *in;
	_Atomic uint64_t *bytes;
	XXH3_state_t *state;
	unsigned char *buf;
	int fd; /* of the file last opened, or -1 */
	size_t file;
};

static int hash_block(struct ck_hasher *h, size_t i, uint64_t k,
		      uint64_t *digest, struct ck_err *err)
{
	const struct ck_hash_in *in = h->in;
	const struct ck_hash_file *f = &in->file[i];
	uint64_t at = k << in->shift;
	uint64_t end = CK_MIN((k + 1) << in->shift, f->size);

	XXH3_64bits_reset(h->state);
	while (at < end) {
		ssize_t n;

		n = pread(h->fd, h->buf, CK_MIN(end - at, BUFFER), (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return ck_fail(err, errno, "%s: byte %" PRIu64 ": %s",
				       f->name, at, strerror(errno));
		if (!n)
			return ck_fail(err, EIO,
				       "%s: expected %" PRIu64
				       " bytes, found %" PRIu64,
				       f->name, f->size, at);
		XXH3_64bits_update(h->state, h->buf, (size_t)n);
		if (in->pass)
			in->pass(in->ctx, i, at, h->buf, (size_t)n);
		*h->bytes += (uint64_t)n;
		at += (uint64_t)n;
	}
	*digest = XXH3_64bits_digest(h->state);
	return 0;
}

static int open_file(struct ck_hasher *h, size_t i, struct ck_err *err)
{
	struct stat st;
	int ret;

	if (h->fd >= 0 && h->file == i)
		return 0;
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
	ret = ck_root_open_file(h->in->root, h->in->file[i].name, &h->fd, &st,
				err);
	if (ret)
		return ret;
	h->file = i;
	posix_fadvise(h->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return 0;
}

struct ck_hasher *ck_hasher_new(const struct ck_hash_in *in,
				_Atomic uint64_t *bytes)
{
	struct ck_hasher *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->in = in;
	h->bytes = bytes;
	h->fd = -1;
	h->state = XXH3_createState();
	h->buf = aligned_alloc(4096, BUFFER);
	if (h->state && h->buf)
		return h;
	ck_hasher_free(h);
	return NULL;
}

void ck_hasher_free(struct ck_hasher *h)
{
	if (!h)
		return;
	if (h->fd >= 0)
		close(h->fd);
	XXH3_freeState(h->state);
	free(h->buf);
	free(h);
}

int ck_hasher_run(struct ck_hasher *h, size_t i, uint64_t first, uint64_t end)
{
	const struct ck_hash_in *in = h->in;
	struct ck_err err = { 0 };
	int opened = open_file(h, i, &err), stop = 0;

	for (uint64_t k = first; k < end && !stop; k++) {
		uint64_t digest = 0;
		int ret = opened;

		if (!opened) {
			err.code = 0;
			ret = hash_block(h, i, k, &digest, &err);
		}
		stop = in->block(in->ctx, i, k, digest, ret ? &err : NULL);
	}
	return stop;
}

static void work(void *arg)
{
	struct run *r = arg;
	struct ck_hasher *h = ck_hasher_new(r->in, &r->bytes);
	struct stretch s;

	if (!h)
		r->stop = -ENOMEM;
	while (take(r, &s)) {
		int stop = ck_hasher_run(h, s.file, s.first, s.end);

		if (stop)
			r->stop = stop;
	}
	ck_hasher_free(h);
}

static void tick(void *arg)
{
	struct run *r = arg;

	if (r->in->tick)
		r->in->tick(r->in->ctx, r->bytes);
}

int ck_hash_run(const struct ck_hash_in *in, struct ck_err *err)
{
	struct run r = { .in = in };
	struct ck_pool_in pool = {
		.jobs = in->jobs, .ctx = &r, .work = work, .tick = tick
	};

	pthread_mutex_init(&r.lock, NULL);
	ck_pool_run(&pool);
	pthread_mutex_destroy(&r.lock);
	return r.stop ? ck_fail(err, -r.stop, "%s", strerror(-r.stop)) : 0;
}
