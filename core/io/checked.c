/* SPDX-License-Identifier: Apache-2.0 */
/* checked.c - blocks are read whole, hashed, and remembered as good */
#include "core/io/checked.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/helpers.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Stays in the processor's cache, and on the heap: from 128 KiB on malloc() maps. */
#define BUFFER ((uint64_t)64 << 10)
#define TRIES 8

struct file {
	uint64_t size, nr; /* blocks */
	uint64_t *digest;
	_Atomic uint64_t *good,
		*ours; /* a bit a block: compared; written by us */
	_Atomic uint64_t *taken; /* under the lock: being compared */
	_Atomic uint64_t forgot; /* how often */
	bool known;
	bool other_size; /* when it was sealed: size; and none is known */
};

struct ck_checked {
	uint32_t nr;
	unsigned shift;
	struct ck_checked_later later;
	pthread_mutex_t lock;
	pthread_cond_t given_back;
	struct file file[];
};

struct ck_checked *ck_checked_new(uint32_t nr, unsigned shift)
{
	struct ck_checked *s = calloc(1, sizeof(*s) + nr * sizeof(s->file[0]));

	if (s) {
		s->nr = nr;
		s->shift = shift;
		pthread_mutex_init(&s->lock, NULL);
		pthread_cond_init(&s->given_back, NULL);
	}
	return s;
}

void ck_checked_free(struct ck_checked *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->nr; i++) {
		free(s->file[i].digest);
		free((void *)s->file[i].good);
		free((void *)s->file[i].ours);
		free((void *)s->file[i].taken);
	}
	pthread_cond_destroy(&s->given_back);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

int ck_checked_add(struct ck_checked *s, uint32_t src, uint64_t size,
		   const uint64_t *digest, struct ck_err *err)
{
	struct file *f = &s->file[src];
	uint64_t nr =
		(size >> s->shift) + !!(size & ((UINT64_C(1) << s->shift) - 1));

	f->digest = calloc(nr + 1, sizeof(*f->digest));
	f->good = calloc(nr / 64 + 1, sizeof(*f->good));
	f->ours = calloc(nr / 64 + 1, sizeof(*f->ours));
	f->taken = calloc(nr / 64 + 1, sizeof(*f->taken));
	if (!f->digest || !f->good || !f->ours || !f->taken)
		return ck_no_memory(err);
	if (nr)
		memcpy(f->digest, digest, nr * sizeof(*digest));
	f->size = size;
	f->nr = nr;
	f->known = true;
	return 0;
}

void ck_checked_other_size(struct ck_checked *s, uint32_t src, uint64_t was)
{
	s->file[src].size = was;
	s->file[src].other_size = true;
}

static bool is_set(_Atomic uint64_t *bits, uint64_t k)
{
	return atomic_load_explicit(&bits[k / 64], memory_order_acquire) >>
		       (k % 64) &
	       1;
}

static void set(_Atomic uint64_t *bits, uint64_t k)
{
	atomic_fetch_or(&bits[k / 64], UINT64_C(1) << (k % 64));
}

static bool is_good(struct file *f, uint64_t k)
{
	return is_set(f->good, k) || is_set(f->ours, k);
}

static void unset(_Atomic uint64_t *bits, uint64_t k)
{
	atomic_fetch_and(&bits[k / 64], ~(UINT64_C(1) << (k % 64)));
}

/* Unless what was compared is to be forgotten since @forgot was read. */
static void set_good(struct file *f, uint64_t k, uint64_t forgot)
{
	set(f->good, k);
	if (atomic_load(&f->forgot) != forgot)
		unset(f->good, k);
}

/*
 * 1: this thread is to compare the block, and then gives it back; 0: another one did
 * meanwhile, and it is good; -EINTR: nobody wants it any more.
 */
static int take(struct ck_checked *s, struct file *f, uint64_t k)
{
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	while (!is_good(f, k) && is_set(f->taken, k) && !ret)
		if (!ck_stop_wait(&s->given_back, &s->lock))
			ret = -EINTR;
	if (!ret && !is_good(f, k)) {
		set(f->taken, k);
		ret = 1;
	}
	pthread_mutex_unlock(&s->lock);
	return ret;
}

static void give_back(struct ck_checked *s, struct file *f, uint64_t k)
{
	pthread_mutex_lock(&s->lock);
	unset(f->taken, k);
	pthread_cond_broadcast(&s->given_back);
	pthread_mutex_unlock(&s->lock);
}

void ck_checked_forget(struct ck_checked *s, uint32_t src)
{
	struct file *f = &s->file[src];

	if (!f->known)
		return;
	atomic_fetch_add(&f->forgot, 1);
	for (uint64_t i = 0; i <= f->nr / 64; i++)
		atomic_store(&f->good[i], 0);
}

void ck_checked_ask(struct ck_checked *s, const struct ck_checked_later *later)
{
	s->later = *later;
}

void ck_checked_ours(struct ck_checked *s, uint32_t src, uint64_t off,
		     uint64_t len)
{
	struct file *f = &s->file[src];

	if (!f->known || !len || !ck_range_ok(off, len, f->size))
		return;
	for (uint64_t k = off >> s->shift; k <= (off + len - 1) >> s->shift;
	     k++)
		set(f->ours, k);
}

/* One that a file gives in full, or the engine's error. */
static int read_piece(const struct ck_engine_ops *ops, int fd, void *buf,
		      uint64_t len, uint64_t off)
{
	struct ck_engine *e = ck_engine_mine(ops);
	struct iovec iov = { buf, len };
	struct ck_io io = {
		.fd = fd, .off = off, .len = len, .iov = &iov, .nr_iov = 1
	};

	e->ops->run(e, &io, 1);
	return io.res;
}

int ck_checked_hash(const struct ck_engine_ops *engine, int fd, uint64_t off,
		    uint64_t end, uint64_t *digest)
{
	ck_auto_free void *buf = malloc(BUFFER);
	XXH3_state_t *state = XXH3_createState();
	int ret = buf && state ? 0 : -ENOMEM;

	if (state)
		XXH3_64bits_reset(state);
	while (!ret && off < end) {
		uint64_t len = CK_MIN(BUFFER, end - off);

		ret = read_piece(engine, fd, buf, len, off);
		if (!ret)
			XXH3_64bits_update(state, buf, len);
		off += len;
	}
	if (!ret)
		*digest = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return ret;
}

enum { GOOD, BAD, EDITED };

/*
 * One of these, EDITED if it is bad and somebody is at it; or -errno.  What we write meanwhile is good whatever it was, and what somebody
 * else has written is if the manifest says so by now.
 */
static int compare(struct ck_checked *s, const struct ck_engine_ops *engine,
		   uint32_t src, int fd, uint64_t k)
{
	struct file *f = &s->file[src];
	uint64_t off = k << s->shift, is = 0, want = f->digest[k];
	uint64_t end = CK_MIN(off + (UINT64_C(1) << s->shift), f->size);
	int later = 1;

	for (int i = 0; later > 0 && i < TRIES; i++) {
		int ret = ck_checked_hash(engine, fd, off, end, &is);

		if (ret)
			return ret;
		if (is == want || is_good(f, k))
			return GOOD;
		later = s->later.call ?
				s->later.call(s->later.ctx, src, k, &want) :
				0;
	}
	return later ? EDITED : BAD;
}

static int check_block(struct ck_checked *s, const struct ck_engine_ops *engine,
		       uint32_t src, int fd, const char *name, uint64_t k,
		       struct ck_err *err)
{
	struct file *f = &s->file[src];
	uint64_t off = k << s->shift;
	uint64_t end = CK_MIN(off + (UINT64_C(1) << s->shift), f->size);
	uint64_t forgot;
	int ret;

	ret = is_good(f, k) ? 0 : take(s, f, k);
	if (!ret)
		return 0;
	if (ret > 0) {
		forgot = atomic_load(&f->forgot);
		ret = compare(s, engine, src, fd, k);
		if (ret == GOOD)
			set_good(f, k, forgot);
		give_back(s, f, k);
	}
	if (ret <= 0)
		return ret ? ck_fail_at(err, -ret, name, off,
					"%s: block %llu: %s", name,
					(unsigned long long)k, strerror(-ret)) :
			     0;
	return ck_fail_at(
		err, EIO, name, off,
		"%s: block %llu, bytes %llu to %llu: not what was sealed%s",
		name, (unsigned long long)k, (unsigned long long)off,
		(unsigned long long)end,
		ret == EDITED ? ", and is being edited, or was when its mount "
				"died" :
				"");
}

int ck_checked_use(struct ck_checked *s, const struct ck_engine_ops *engine,
		   uint32_t src, int fd, const char *name, uint64_t off,
		   uint64_t len, struct ck_err *err)
{
	struct file *f = &s->file[src];
	int ret;

	if (f->other_size)
		return ck_fail_at(err, EIO, name, CK_NOWHERE,
				  "%s: not what was sealed, which was %llu "
				  "bytes long",
				  name, (unsigned long long)f->size);
	if (!f->known)
		return ck_fail_at(err, EIO, name, CK_NOWHERE,
				  "%s: is not in the manifest", name);
	if (!len || !ck_range_ok(off, len, f->size))
		return 0; /* the reader says what is wrong with that */
	ret = check_block(s, engine, src, fd, name, 0, err);
	if (!ret)
		ret = check_block(s, engine, src, fd, name, f->nr - 1, err);
	for (uint64_t k = off >> s->shift;
	     !ret && k <= (off + len - 1) >> s->shift; k++)
		ret = check_block(s, engine, src, fd, name, k, err);
	return ret;
}
