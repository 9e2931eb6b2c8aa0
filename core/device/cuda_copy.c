/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_copy.c - copies of CUDA: runs, many of them at once, and with steps */
#include "core/device/cuda_priv.h"

#include "core/base/check.h"

#define BATCH 64 /* copies of one call */
#define MAX_PITCH (UINT64_C(1) << 31)

static unsigned copy_run(uint64_t dst, uint64_t src, uint64_t len,
			 enum ck_device_way way, void *stream)
{
	switch (way) {
	case CK_DEVICE_IN:
		return ck_cu.cuMemcpyHtoDAsync_v2(
			dst, (const void *)(uintptr_t)src, len, stream);
	case CK_DEVICE_OUT:
		return ck_cu.cuMemcpyDtoHAsync_v2((void *)(uintptr_t)dst, src,
						  len, stream);
	default:
		return ck_cu.cuMemcpyDtoDAsync_v2(dst, src, len, stream);
	}
}

static struct ck_cu_side side(uint64_t at, uint64_t pitch, bool host)
{
	struct ck_cu_side s = { .type = host ? CK_CU_MEMORY_HOST :
					       CK_CU_MEMORY_DEVICE,
				.pitch = pitch };

	if (host)
		s.host = (void *)(uintptr_t)at;
	else
		s.device = at;
	return s;
}

/* Along the inner axis of @c, from other places. */
static unsigned copy_2d(const struct ck_device_copy *c, uint64_t dst,
			uint64_t src, enum ck_device_way way, void *stream)
{
	unsigned in = c->nax - 1;
	const struct ck_cu_2d copy = {
		.src = side(src, c->ax[in].src, way == CK_DEVICE_IN),
		.dst = side(dst, c->ax[in].dst, way == CK_DEVICE_OUT),
		.width = c->run,
		.height = c->ax[in].n,
	};

	return ck_cu.cuMemcpy2DAsync_v2(&copy, stream);
}

static struct ck_cu_side_3d side_3d(struct ck_cu_side s, uint64_t slice)
{
	return (struct ck_cu_side_3d){ .type = s.type,
				       .host = s.host,
				       .device = s.device,
				       .pitch = s.pitch,
				       .height = slice / s.pitch };
}

static unsigned copy_3d(const struct ck_device_copy *c, enum ck_device_way way,
			void *stream)
{
	const struct ck_cu_3d copy = {
		.src = side_3d(side(c->src, c->ax[1].src, way == CK_DEVICE_IN),
			       c->ax[0].src),
		.dst = side_3d(side(c->dst, c->ax[1].dst, way == CK_DEVICE_OUT),
			       c->ax[0].dst),
		.width = c->run,
		.height = c->ax[1].n,
		.depth = c->ax[0].n,
	};

	return ck_cu.cuMemcpy3DAsync_v2(&copy, stream);
}

static unsigned copy_one(const struct ck_device_copy *c, enum ck_device_way way,
			 void *stream)
{
	struct ck_device_runs it = { c, 0, 0 };
	unsigned in = c->nax - 1, code = 0;
	uint64_t dst, src;

	if (c->nax && c->ax[in].dst < MAX_PITCH && c->ax[in].src < MAX_PITCH) {
		if (c->nax == 1)
			return copy_2d(c, c->dst, c->src, way, stream);
		if (!(c->ax[0].dst % c->ax[1].dst) &&
		    !(c->ax[0].src % c->ax[1].src))
			return copy_3d(c, way, stream);
		for (uint64_t i = 0; i < c->ax[0].n && !code; i++)
			code = copy_2d(c, c->dst + i * c->ax[0].dst,
				       c->src + i * c->ax[0].src, way, stream);
		return code;
	}
	while (!code && ck_device_run(&it, &dst, &src))
		code = copy_run(dst, src, c->run, way, stream);
	return code;
}

/* How many of the first copies are one run each, up to @most. */
static size_t runs_of(const struct ck_device_copy *copy, size_t nr, size_t most)
{
	size_t n = 0;

	while (n < CK_MIN(nr, most) && !copy[n].nax)
		n++;
	return n;
}

/* In one call; of one that is refused, any may have been queued. */
static unsigned copy_batch(const struct ck_device_copy *copy, size_t nr,
			   void *stream)
{
	struct ck_cu_attributes how = { .order = CK_CU_SRC_ORDER_STREAM };
	unsigned long long dst[BATCH], src[BATCH];
	size_t len[BATCH], first = 0, failed_at;

	for (size_t i = 0; i < nr; i++) {
		dst[i] = copy[i].dst;
		src[i] = copy[i].src;
		len[i] = copy[i].run;
	}
	if (ck_cu.cuMemcpyBatchAsync_v2)
		return ck_cu.cuMemcpyBatchAsync_v2(dst, src, len, nr, &how,
						   &first, 1, stream);
	return ck_cu.cuMemcpyBatchAsync(dst, src, len, nr, &how, &first, 1,
					&failed_at, stream);
}

unsigned ck_cuda_copy(const struct ck_device_copy *copy, size_t nr,
		      enum ck_device_way way, void *stream)
{
	bool batches = ck_cu.cuMemcpyBatchAsync_v2 || ck_cu.cuMemcpyBatchAsync;
	unsigned code = 0;
	size_t n;

	for (size_t i = 0; i < nr && !code; i += n) {
		n = batches ? runs_of(copy + i, nr - i, BATCH) : 0;
		if (n > 1 && !copy_batch(copy + i, n, stream))
			continue;
		batches = batches && n < 2; /* once refused, one by one */
		n = 1;
		code = copy_one(&copy[i], way, stream);
	}
	return code;
}
