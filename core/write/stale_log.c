/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stale_log.c - pieces of replaced bytes, found by key and block of 64 KiB
 *
 * A piece has what was there and then what came, from the first byte of the
 * block that changed to the last.
 */
#include "core/write/stale_log.h"

#include "core/base/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024u
#define BLOCK (UINT64_C(64) << 10)

struct piece {
	struct piece *next, **at; /* in its bucket */
	struct piece *mate; /* of the same write */
	struct ck_pre_image_at where;
	uint64_t len;
	unsigned char bytes[];
};

struct ck_stale_log {
	pthread_mutex_t lock;
	uint64_t max;
	_Atomic uint64_t bytes;
	unsigned users; /* its owner, and each write */
	struct piece *bucket[BUCKETS];
};

struct ck_pre_image {
	struct ck_stale_log *all;
	struct piece *first;
	bool merged;
};

struct ck_stale_log *ck_stale_log_new(uint64_t max)
{
	struct ck_stale_log *all = calloc(1, sizeof(*all));

	if (!all)
		return NULL;
	all->max = max;
	all->users = 1;
	pthread_mutex_init(&all->lock, NULL);
	return all;
}

void ck_stale_log_free(struct ck_stale_log *all)
{
	unsigned left;

	if (!all)
		return;
	pthread_mutex_lock(&all->lock);
	left = --all->users;
	pthread_mutex_unlock(&all->lock);
	if (left)
		return;
	pthread_mutex_destroy(&all->lock);
	free(all);
}

uint64_t ck_stale_log_bytes(const struct ck_stale_log *all)
{
	return atomic_load(&all->bytes);
}

struct ck_pre_image *ck_pre_image_new(struct ck_stale_log *all)
{
	struct ck_pre_image *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->all = all;
	pthread_mutex_lock(&all->lock);
	all->users++;
	pthread_mutex_unlock(&all->lock);
	return f;
}

static uint64_t room_of(uint64_t len)
{
	return sizeof(struct piece) + 2 * len;
}

void ck_pre_image_end(struct ck_pre_image *f)
{
	struct piece *p, *mate;

	if (!f)
		return;
	pthread_mutex_lock(&f->all->lock);
	for (p = f->first; p; p = p->mate) {
		*p->at = p->next;
		if (p->next)
			p->next->at = p->at;
		atomic_fetch_sub(&f->all->bytes, room_of(p->len));
	}
	pthread_mutex_unlock(&f->all->lock);
	for (p = f->first; p; p = mate) {
		mate = p->mate;
		free(p);
	}
	ck_stale_log_free(f->all);
	free(f);
}

bool ck_pre_image_merged(const struct ck_pre_image *f)
{
	return f && f->merged;
}

void ck_pre_image_set_merged(struct ck_pre_image *f)
{
	f->merged = true;
}

static struct piece **bucket_of(struct ck_stale_log *all, uint32_t key,
				uint64_t block)
{
	return &all->bucket[(key * UINT64_C(2654435761) + block) % BUCKETS];
}

/* Under no lock, for @p is not to be found yet. */
static void add(struct ck_pre_image *f, struct piece *p)
{
	struct piece **at =
		bucket_of(f->all, p->where.key, p->where.off / BLOCK);

	pthread_mutex_lock(&f->all->lock);
	p->next = *at;
	p->at = at;
	if (p->next)
		p->next->at = &p->next;
	*at = p;
	p->mate = f->first;
	f->first = p;
	pthread_mutex_unlock(&f->all->lock);
}

/* From the first byte that changed to the last; false: none did. */
static bool trim(const unsigned char *was, const unsigned char *now,
		 uint64_t len, uint64_t *from, uint64_t *to)
{
	if (!memcmp(was, now, len))
		return false;
	for (*from = 0; was[*from] == now[*from];)
		++*from;
	for (*to = len; was[*to - 1] == now[*to - 1];)
		--*to;
	return true;
}

/* Of one block. */
static bool keep_piece(struct ck_pre_image *f, const struct ck_pre_image_at *at,
		       const unsigned char *was, const unsigned char *now,
		       uint64_t len)
{
	uint64_t room = room_of(len);
	struct piece *p = NULL;

	if (atomic_fetch_add(&f->all->bytes, room) + room <= f->all->max)
		p = malloc(room);
	if (!p) {
		atomic_fetch_sub(&f->all->bytes, room);
		return false;
	}
	p->where = *at;
	p->len = len;
	memcpy(p->bytes, was, len);
	memcpy(p->bytes + len, now, len);
	add(f, p);
	return true;
}

bool ck_pre_image_keep(struct ck_pre_image *f, const struct ck_pre_image_at *at,
		       const void *was, const void *now, uint64_t len)
{
	const unsigned char *x = was, *y = now;
	bool all = true;

	for (uint64_t i = 0, n; i < len; i += n) {
		struct ck_pre_image_at piece = *at;
		uint64_t from, to;

		n = CK_MIN(len - i, BLOCK - (at->off + i) % BLOCK);
		if (!trim(x + i, y + i, n, &from, &to))
			continue;
		piece.off = at->off + i + from;
		all &= keep_piece(f, &piece, x + i + from, y + i + from,
				  to - from);
	}
	return all;
}

/* ---- pages ---- */

struct page {
	const struct ck_pre_image_at *at;
	const unsigned char *buf, *is;
	unsigned char *out; /* NULL: as @buf up to now */
	uint64_t len;
};

/* Bytes [from, from+n) of the page: a loop that has no branch. */
static bool has_old(const unsigned char *buf, const unsigned char *was,
		    const unsigned char *now, uint64_t n)
{
	unsigned any = 0;

	for (uint64_t i = 0; i < n; i++)
		any |= (unsigned)(buf[i] == was[i]) & (was[i] != now[i]);
	return any;
}

static void put_back(unsigned char *out, const unsigned char *buf,
		     const unsigned char *is, const unsigned char *was,
		     const unsigned char *now, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		out[i] = buf[i] == was[i] && was[i] != now[i] ? is[i] : out[i];
}

static int merge_piece(struct page *g, const struct piece *p)
{
	uint64_t from = CK_MAX(p->where.off, g->at->off);
	uint64_t to = CK_MIN(p->where.off + p->len, g->at->off + g->len);
	const unsigned char *was = p->bytes, *now = p->bytes + p->len;

	if (from >= to || p->where.key != g->at->key ||
	    (p->where.file && p->where.file == g->at->file &&
	     p->where.as == g->at->as))
		return 0;
	was += from - p->where.off;
	now += from - p->where.off;
	from -= g->at->off;
	to -= g->at->off;
	if (!has_old(g->buf + from, was, now, to - from))
		return 0;
	if (!g->out) {
		g->out = malloc(g->len);
		if (!g->out)
			return -ENOMEM;
		memcpy(g->out, g->buf, g->len);
	}
	put_back(g->out + from, g->buf + from, g->is + from, was, now,
		 to - from);
	return 0;
}

int ck_stale_log_merge(struct ck_stale_log *all,
		       const struct ck_pre_image_at *at, const void *buf,
		       const void *is, uint64_t len, unsigned char **out)
{
	struct page g = { .at = at, .buf = buf, .is = is, .len = len };
	uint64_t block = at->off / BLOCK, end = CK_DIV_UP(at->off + len, BLOCK);
	int ret = 0;

	pthread_mutex_lock(&all->lock);
	for (; !ret && atomic_load(&all->bytes) && block < end; block++)
		for (struct piece *p = *bucket_of(all, at->key, block);
		     p && !ret; p = p->next)
			if (p->where.off / BLOCK == block)
				ret = merge_piece(&g, p);
	pthread_mutex_unlock(&all->lock);
	*out = g.out;
	return ret;
}
