/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c - pieces of pairs of tensors, by several threads
 *
 * Each thread takes the next piece, so one big tensor is read by all of them
 * and many small ones too.
 */
#include "mount-helpers/diff/compare.h"

#include "core/base/auto.h"
#include "core/base/check.h"
#include "core/base/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PIECE (UINT64_C(4) << 20) /* bytes of the wider element type */

struct compare {
	const struct compare_in *in;
	pthread_mutex_t lock;
	size_t next; /* pair, and element of it */
	uint64_t next_elem;
	uint64_t bytes, total; /* read, of both */
	int failed;
};

struct piece {
	struct compare_pair *pair;
	const struct ck_tensor *a, *b;
	uint64_t first, nr; /* elements */
};

static uint64_t elements(const struct ck_tensor *t)
{
	return t->size / ck_dtype_info(t->dtype)->size;
}

/* Until something is found that ends it. */
static bool wanted(const struct compare_pair *p)
{
	return !p->by_digest &&
	       (p->kind == COMPARE_EQUAL || p->kind == COMPARE_DIFFERS);
}

/* Under the lock. */
static bool take(struct compare *c, struct piece *out)
{
	const struct ck_catalog *a = ck_ckpt_catalog(c->in->a);
	const struct ck_catalog *b = ck_ckpt_catalog(c->in->b);

	for (; c->next < c->in->nr && !c->failed; c->next++) {
		struct compare_pair *p = &c->in->pair[c->next];
		uint64_t all, wide;

		if (wanted(p)) {
			out->pair = p;
			out->a = &a->tensors[p->a];
			out->b = &b->tensors[p->b];
			all = elements(out->a);
			wide = CK_MAX(ck_dtype_info(out->a->dtype)->size,
				      ck_dtype_info(out->b->dtype)->size);
			out->first = c->next_elem;
			out->nr = CK_MIN(PIECE / wide, all - out->first);
			c->next_elem += out->nr;
			if (out->nr)
				return true;
		}
		c->next_elem = 0;
	}
	return false;
}

static int read_both(struct compare *c, const struct piece *x, char *a, char *b,
		     struct ck_err *err)
{
	uint64_t a_size = ck_dtype_info(x->a->dtype)->size;
	uint64_t b_size = ck_dtype_info(x->b->dtype)->size;
	int ret = ck_ckpt_read(c->in->a, x->pair->a, a, x->nr * a_size,
			       x->first * a_size, err);

	if (!ret)
		ret = ck_ckpt_read(c->in->b, x->pair->b, b, x->nr * b_size,
				   x->first * b_size, err);
	return ret;
}

/* Under the lock: what was found of a piece. */
static void merge(struct compare *c, const struct piece *x,
		  const struct compare_pair *found, int ret,
		  const struct ck_err *err)
{
	struct compare_pair *p = x->pair;

	c->bytes += x->nr * (ck_dtype_info(x->a->dtype)->size +
			     ck_dtype_info(x->b->dtype)->size);
	if (p->kind == COMPARE_UNREADABLE)
		return;
	if (ret) {
		p->kind = COMPARE_UNREADABLE;
		p->why = strdup(err->msg);
		if (!p->why)
			c->failed = -ENOMEM;
		return;
	}
	if (!found->changed)
		return;
	p->kind = COMPARE_DIFFERS;
	if (!p->changed || found->first < p->first)
		p->first = found->first;
	p->changed += found->changed;
	p->nans += found->nans;
	if (found->largest > p->largest ||
	    (found->largest == p->largest && found->at < p->at)) {
		p->largest = found->largest;
		p->at = found->at;
	}
}

static void do_piece(struct compare *c, const struct piece *x, char *a, char *b)
{
	struct compare_pair found = { .largest = -1 };
	struct ck_err err = { 0 };
	uint8_t a_dt = x->a->dtype, b_dt = x->b->dtype;
	int ret = read_both(c, x, a, b, &err);

	/* most pieces of an edited checkpoint are the same */
	if (!ret &&
	    (a_dt != b_dt || memcmp(a, b, x->nr * ck_dtype_info(a_dt)->size)))
		compare_elements(&found, x->first, a_dt, a, b_dt, b, x->nr);
	pthread_mutex_lock(&c->lock);
	merge(c, x, &found, ret, &err);
}

static void work(void *arg)
{
	struct compare *c = arg;
	ck_auto_free char *a = aligned_alloc(4096, PIECE);
	ck_auto_free char *b = aligned_alloc(4096, PIECE);
	struct piece x;

	pthread_mutex_lock(&c->lock);
	if (!a || !b)
		c->failed = -ENOMEM;
	while (take(c, &x)) {
		pthread_mutex_unlock(&c->lock);
		do_piece(c, &x, a, b); /* returns with the lock */
	}
	pthread_mutex_unlock(&c->lock);
}

static uint64_t total_bytes(const struct compare_in *in)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < in->nr; i++) {
		if (!wanted(&in->pair[i]))
			continue;
		sum += ck_ckpt_catalog(in->a)->tensors[in->pair[i].a].size;
		sum += ck_ckpt_catalog(in->b)->tensors[in->pair[i].b].size;
	}
	return sum;
}

static void tick(void *arg)
{
	struct compare *c = arg;
	uint64_t bytes;

	pthread_mutex_lock(&c->lock);
	bytes = c->bytes;
	pthread_mutex_unlock(&c->lock);
	if (c->in->tick)
		c->in->tick(c->in->ctx, bytes, c->total);
}

static void set_dtypes(const struct compare_in *in)
{
	const struct ck_tensor *a = ck_ckpt_catalog(in->a)->tensors;
	const struct ck_tensor *b = ck_ckpt_catalog(in->b)->tensors;

	for (size_t i = 0; i < in->nr; i++) {
		struct compare_pair *p = &in->pair[i];

		if (p->kind == COMPARE_EQUAL && a[p->a].dtype != b[p->b].dtype)
			p->kind = COMPARE_DTYPE;
	}
}

int compare_run(const struct compare_in *in, struct ck_err *err)
{
	struct compare c = { .in = in,
			     .lock = PTHREAD_MUTEX_INITIALIZER,
			     .total = total_bytes(in) };
	struct ck_pool_in pool = { .ctx = &c, .work = work, .tick = tick };

	for (size_t i = 0; i < in->nr; i++)
		in->pair[i].largest = -1;
	ck_pool_run(&pool);
	if (c.failed)
		return ck_fail(err, -c.failed, "no memory");
	set_dtypes(in);
	return 0;
}
