/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/loadkit.h"

#include "core/base/check.h"
#include "core/device/device.h"
#include "core/geom/cast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILL 0x5c

static uint64_t rnd(uint64_t *seed, uint64_t n)
{
	return sk_random(seed) % n;
}

/* The whole as one part whose axes lie in another order, some backwards. */
static void turned(struct shardkit *k, uint64_t *seed, uint8_t xform)
{
	static const uint64_t origin[8];
	uint64_t at[8] = { 0 }, step = 1;
	int64_t stride[8];
	struct sk_part p = { .file = "turned",
			     .start = origin,
			     .len = k->shape,
			     .stride = stride,
			     .xform = xform,
			     .pad = rnd(seed, 9000) };

	for (unsigned i = 0; i < k->rank; i++) {
		unsigned d = (unsigned)rnd(seed, k->rank);

		while (at[d])
			d = (d + 1) % k->rank;
		at[d] = 1;
		stride[d] = (int64_t)step * (rnd(seed, 4) ? 1 : -1);
		step *= k->shape[d];
	}
	sk_part(k, &p);
}

/* Rows of the flattened tensor, as FSDP and ZeRO keep them. */
static void flat(struct shardkit *k, unsigned nr)
{
	static const uint64_t origin[8];
	uint64_t all = k->size / k->elem, range[2];
	char name[16];

	for (unsigned i = 0; i < nr; i++) {
		struct sk_part p = { .file = name,
				     .start = origin,
				     .len = k->shape,
				     .flat = range,
				     .pad = i };

		snprintf(name, sizeof(name), "f%u", i);
		range[0] = all * i / nr;
		range[1] = all * (i + 1) / nr;
		sk_part(k, &p);
	}
}

static void replicas(struct shardkit *k, unsigned nr)
{
	uint64_t start[8] = { 0 }, len[8];
	char name[16];

	sk_cut(k, 0, nr);
	memcpy(len, k->shape, sizeof(len));
	len[0] /= nr;
	for (uint32_t i = 0; i < nr; i++) {
		struct sk_part p = { .file = name,
				     .start = start,
				     .len = len,
				     .replica = true };
		uint32_t ring[2] = { i };

		snprintf(name, sizeof(name), "r%u", i);
		start[0] = i * len[0];
		if (i + 1 == nr)
			len[0] = k->shape[0] - start[0];
		ring[1] = sk_part(k, &p);
		ik_ring(&k->ik, ring, 2);
	}
}

void lk_tensor(struct shardkit *k, uint64_t seed)
{
	static const enum ck_dtype dtypes[] = { CK_DT_F32, CK_DT_BF16,
						CK_DT_F16, CK_DT_F64,
						CK_DT_U8,  CK_DT_C64,
						CK_DT_I32 };
	uint64_t shape[4], most[] = { 0, 900000, 1500, 130, 40 };
	unsigned rank = 1 + (unsigned)rnd(&seed, 4);
	unsigned nr = 1 + (unsigned)rnd(&seed, 5);

	for (unsigned d = 0; d < rank; d++)
		shape[d] = 6 + rnd(&seed, most[rank]);
	sk_init(k, dtypes[rnd(&seed, CK_ARRAY_LEN(dtypes))], rank, shape);
	switch (rnd(&seed, 6)) {
	case 0:
		turned(k, &seed, CK_XF_NONE);
		break;
	case 1:
		turned(k, &seed, CK_XF_NONE);
		break;
	case 2:
		flat(k, nr);
		break;
	case 3:
		replicas(k, nr);
		break;
	default:
		sk_cut(k, (unsigned)rnd(&seed, rank), nr);
	}
}

static void random_strides(struct lk_item *it, unsigned rank, uint64_t *seed,
			   uint64_t *first, uint64_t *all)
{
	uint64_t step = 1 + (rnd(seed, 3) == 0);
	bool used[8] = { false };

	*first = rnd(seed, 4);
	for (unsigned i = 0; i < rank; i++) {
		unsigned d = (unsigned)rnd(seed, rank);

		while (used[d])
			d = (d + 1) % rank;
		used[d] = true;
		it->stride[d] = (int64_t)step;
		if (rnd(seed, 3) == 0) {
			*first += step * (it->len[d] - 1);
			it->stride[d] = -it->stride[d];
		}
		step = step * it->len[d] + rnd(seed, 3);
	}
	*all = step + 8;
}

static void row_major(struct lk_item *it, unsigned rank, uint64_t *first,
		      uint64_t *all)
{
	uint64_t step = 1;

	for (unsigned d = rank; d-- > 0; step *= it->len[d])
		it->stride[d] = (int64_t)step;
	*first = 3;
	*all = step + 6;
}

static enum ck_dtype random_dtype(const struct shardkit *k, uint64_t *seed)
{
	static const enum ck_dtype to[] = { CK_DT_F32, CK_DT_BF16, CK_DT_F16,
					    CK_DT_F64 };
	enum ck_dtype dtype = to[rnd(seed, CK_ARRAY_LEN(to))];

	if (rnd(seed, 2) || !ck_cast_has(k->dtype, dtype))
		return CK_DT_NONE;
	return dtype;
}

/* What each element of the box is to be in memory. */
static void fill_want(struct lk_item *it, const struct shardkit *k,
		      uint64_t first, enum ck_dtype to)
{
	uint64_t n = 1, size = ck_dtype_info(to)->size;

	for (unsigned d = 0; d < k->rank; d++)
		n *= it->len[d];
	it->wanted = n * k->elem;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t at[8], from = 0, mem = first;
		const unsigned char *v;

		ck_dims_coords(it->len, k->rank, i, at);
		for (unsigned d = 0; d < k->rank; d++) {
			mem += at[d] * (uint64_t)it->stride[d];
			from = from * k->shape[d] + it->start[d] + at[d];
		}
		v = k->want + from * k->elem;
		if (to == k->dtype)
			memcpy(it->want + mem * size, v, size);
		else
			ck_cast_as_torch(k->dtype, v, to, it->want + mem * size,
					 1);
	}
}

static void make_item(struct lk_item *it, struct shardkit *k, uint64_t *seed,
		      bool plain)
{
	enum ck_dtype to = plain ? CK_DT_NONE : random_dtype(k, seed);
	uint64_t first, all, size;
	bool whole = plain || rnd(seed, 4) == 0, dense;

	for (unsigned d = 0; d < k->rank; d++) {
		it->start[d] = whole ? 0 : rnd(seed, k->shape[d]);
		it->len[d] = k->shape[d] - it->start[d];
		if (!whole)
			it->len[d] = 1 + rnd(seed, it->len[d]);
	}
	dense = plain || rnd(seed, 3) == 0;
	if (dense)
		row_major(it, k->rank, &first, &all);
	else
		random_strides(it, k->rank, seed, &first, &all);
	it->in.dtype = to;
	if (to == CK_DT_NONE)
		to = k->dtype;
	size = ck_dtype_info(to)->size;
	it->bytes = all * size;
	it->mem = malloc(it->bytes);
	it->want = malloc(it->bytes);
	LK_CHECK(it->mem && it->want);
	memset(it->mem, FILL, it->bytes);
	memset(it->want, FILL, it->bytes);
	it->in.start = whole ? NULL : it->start;
	it->in.len = whole ? NULL : it->len;
	it->in.stride = dense ? NULL : it->stride;
	it->in.mem = it->mem + first * size;
	fill_want(it, k, first, to);
}

void lk_make(struct lk_load *l, struct shardkit *k, uint64_t *seed, unsigned nr,
	     bool plain)
{
	memset(l, 0, sizeof(*l));
	l->nr = nr;
	for (unsigned i = 0; i < nr; i++) {
		make_item(&l->v[i], k, seed, plain);
		l->item[i] = l->v[i].in;
	}
	l->in = (struct ck_load_in){
		.reader = k->r,
		.item = l->item,
		.nr = nr,
	};
}

void lk_free(struct lk_load *l)
{
	for (unsigned i = 0; i < l->nr; i++) {
		free(l->v[i].mem);
		free(l->v[i].want);
	}
}

void lk_reset(struct lk_load *l)
{
	for (unsigned i = 0; i < l->nr; i++)
		memset(l->v[i].mem, FILL, l->v[i].bytes);
}

void lk_move_in(struct lk_load *l, struct ck_device *dev, uint64_t *mem)
{
	for (unsigned i = 0; i < l->nr; i++) {
		const struct lk_item *it = &l->v[i];
		uint64_t first =
			(uint64_t)((unsigned char *)it->in.mem - it->mem);

		LK_CHECK(!ck_device_alloc(dev, it->bytes, &mem[i], NULL));
		LK_CHECK(!ck_device_put(dev, mem[i], it->mem, it->bytes, NULL));
		l->item[i].mem = (void *)(uintptr_t)(mem[i] + first);
	}
}

bool lk_move_back(const struct lk_load *l, struct ck_device *dev,
		  const uint64_t *mem, unsigned item)
{
	return !ck_device_get(dev, l->v[item].mem, mem[item], l->v[item].bytes,
			      NULL);
}

bool lk_whole(const struct lk_load *l, unsigned item)
{
	return !memcmp(l->v[item].mem, l->v[item].want, l->v[item].bytes);
}
