/* SPDX-License-Identifier: Apache-2.0 */
/* replicas.c - all tensors that have replicas, a thread a tensor */
#include "core/base/pool.h"
#include "core/seal/verify.h"

#include "core/base/check.h"
#include "core/geom/dtype.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct run {
	struct ck_replicas *in;
	const struct ck_catalog *img;
	_Atomic uint32_t next;
	_Atomic uint64_t bytes;
	_Atomic int failed;
	uint64_t total;
	pthread_mutex_t lock;
};

/* Two sources of one tensor. */
struct pair {
	uint32_t a, b;
	struct ck_element_ranges gather;
	struct ck_err why; /* code 0: they differ */
	enum ck_as_sealed a_sealed, b_sealed;
};

struct tensor {
	struct run *run;
	uint32_t t;
	struct pair *v;
	size_t nr;
	bool failed;
};

static struct pair *find(struct tensor *x, uint32_t a, uint32_t b, int code)
{
	struct pair *grown;

	for (size_t i = x->nr; i-- > 0;)
		if (x->v[i].a == a && x->v[i].b == b &&
		    x->v[i].why.code == code)
			return &x->v[i];
	grown = reallocarray(x->v, x->nr + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	x->v = grown;
	grown = &x->v[x->nr++];
	*grown = (struct pair){ .a = a, .b = b };
	grown->gather.elem =
		ck_dtype_info(x->run->img->tensors[x->t].dtype)->size;
	grown->gather.elem += !grown->gather.elem;
	return grown;
}

/* Of all stretches: SAME only where all are. */
static void note_sealed(const struct tensor *x, enum ck_as_sealed *s,
			uint32_t chunk, uint64_t off, uint64_t len)
{
	const struct ck_replicas *in = x->run->in;
	enum ck_as_sealed one;

	if (!in->sealed || *s == CK_SEALED_OTHER)
		return;
	one = in->sealed(in->ctx, x->t, chunk, off, len);
	*s = one > *s ? one : *s;
}

static void differ(void *ctx, uint32_t a, uint32_t b, uint64_t off,
		   uint64_t len, const struct ck_err *why)
{
	struct tensor *x = ctx;
	const struct ck_chunk *chunks = x->run->img->chunks;
	struct pair *p =
		find(x, chunks[a].src, chunks[b].src, why ? why->code : 0);

	if (!p) {
		x->failed = true;
		return;
	}
	if (why)
		p->why = *why;
	note_sealed(x, &p->a_sealed, a, off, len);
	note_sealed(x, &p->b_sealed, b, off, len);
	ck_element_ranges_add(&p->gather, off, len);
}

static void tell(struct tensor *x)
{
	struct run *r = x->run;

	for (size_t i = 0; i < x->nr; i++) {
		struct pair *p = &x->v[i];
		struct ck_quarrel q = { .a = p->a,
					.b = p->b,
					.where.tensor = x->t,
					.a_sealed = p->a_sealed,
					.b_sealed = p->b_sealed,
					.why = p->why.code ? &p->why : NULL };

		ck_element_ranges_end(&p->gather, r->img,
				      &r->img->tensors[x->t], &q.where);
		pthread_mutex_lock(&r->lock);
		r->in->each(r->in->ctx, &q);
		pthread_mutex_unlock(&r->lock);
		x->failed |= p->gather.failed;
		ck_element_ranges_free(&p->gather);
	}
	free(x->v);
}

static bool has_replicas(const struct run *r, uint32_t t)
{
	const struct ck_tensor *ten = &r->img->tensors[t];

	return ten->nr_all > ten->nr && (!r->in->wanted || r->in->wanted[t]);
}

static void work(void *ctx)
{
	struct run *r = ctx;
	uint32_t t;

	while (!r->failed && (t = r->next++) < r->img->nr_tensors) {
		struct tensor x = { .run = r, .t = t };
		struct ck_err err;

		if (!has_replicas(r, t))
			continue;
		if (ck_ckpt_replicas(r->in->ck, t, differ, &x, &err))
			x.failed = true;
		tell(&x);
		if (x.failed)
			r->failed = ENOMEM;
		r->bytes += r->img->tensors[t].size;
	}
}

static void tick(void *ctx)
{
	struct run *r = ctx;

	if (r->in->tick)
		r->in->tick(r->in->ctx, r->bytes, r->total);
}

int ck_replicas_compare(struct ck_replicas *in, struct ck_err *err)
{
	struct run r = { .in = in, .img = ck_ckpt_catalog(in->ck) };
	struct ck_pool_in pool = {
		.jobs = in->jobs, .ctx = &r, .work = work, .tick = tick
	};

	in->nr = 0;
	for (uint32_t t = 0; t < r.img->nr_tensors; t++) {
		if (!has_replicas(&r, t))
			continue;
		in->nr++;
		r.total += r.img->tensors[t].size;
	}
	pthread_mutex_init(&r.lock, NULL);
	ck_pool_run(&pool);
	pthread_mutex_destroy(&r.lock);
	return r.failed ? ck_fail(err, r.failed, "no memory") : 0;
}
