/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_partial_writes.c - where a write failed that had written some of its
 * copies
 *
 * Of a page of a map only what differs from what is there counts, and what is
 * shown is one of the copies.  Where they may differ, everything counts, so
 * that whoever stores the same bytes again has them all alike.
 */
#include "core/ckpt/ckpt_priv.h"

#include "core/base/check.h"

#include <string.h>

void ck_partial_writes_init(struct ck_partial_writes *u)
{
	pthread_mutex_init(&u->lock, NULL);
}

void ck_partial_writes_destroy(struct ck_partial_writes *u)
{
	pthread_mutex_destroy(&u->lock);
}

/* Under the lock. */
static void add(struct ck_partial_writes *u, uint32_t tensor, uint64_t from,
		uint64_t to)
{
	if (from >= to)
		return;
	if (u->nr == CK_PARTIAL_WRITES_MAX) {
		memmove(u->v, u->v + 1,
			(CK_PARTIAL_WRITES_MAX - 1) * sizeof(*u->v));
		u->nr--;
	}
	u->v[u->nr++] = (struct ck_partial_writes_part){ tensor, from, to };
}

/* Under the lock: what of part @i is in [*from, *to); false: nothing. */
static bool meets(const struct ck_partial_writes *u, unsigned i,
		  uint32_t tensor, uint64_t *from, uint64_t *to)
{
	const struct ck_partial_writes_part *p = &u->v[i];

	if (p->tensor != tensor || p->from >= *to || p->to <= *from)
		return false;
	*from = CK_MAX(*from, p->from);
	*to = CK_MIN(*to, p->to);
	return true;
}

/* Under the lock. */
static void drop(struct ck_partial_writes *u, uint32_t tensor, uint64_t from,
		 uint64_t to)
{
	for (unsigned i = u->nr; i-- > 0;) {
		struct ck_partial_writes_part p = u->v[i];
		uint64_t a = from, b = to;

		if (!meets(u, i, tensor, &a, &b))
			continue;
		u->v[i] = u->v[--u->nr];
		add(u, tensor, p.from, a);
		add(u, tensor, b, p.to);
	}
}

void ck_partial_writes_add(struct ck_partial_writes *u, uint32_t tensor,
			   uint64_t from, uint64_t to)
{
	pthread_mutex_lock(&u->lock);
	drop(u, tensor, from, to); /* once is enough */
	add(u, tensor, from, to);
	pthread_mutex_unlock(&u->lock);
}

void ck_partial_writes_drop(struct ck_partial_writes *u, uint32_t tensor,
			    uint64_t from, uint64_t to)
{
	pthread_mutex_lock(&u->lock);
	drop(u, tensor, from, to);
	pthread_mutex_unlock(&u->lock);
}

void ck_partial_writes_spoil(struct ck_partial_writes *u, uint32_t tensor,
			     uint64_t from, uint64_t to,
			     const unsigned char *buf, unsigned char *was)
{
	pthread_mutex_lock(&u->lock);
	for (unsigned i = 0; i < u->nr; i++) {
		uint64_t a = from, b = to;

		if (!meets(u, i, tensor, &a, &b))
			continue;
		for (uint64_t k = a - from; k < b - from; k++)
			was[k] = (unsigned char)~buf[k];
	}
	pthread_mutex_unlock(&u->lock);
}
