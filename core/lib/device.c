/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device.c - the devices of a context: opened by name, and never closed before it
 *
 * Each has one ring, made when the first load to it begins, for to pin memory
 * takes longer than many a load.
 */
#include "core/lib/lib.h"

#include "core/base/check.h"
#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/comm/comm.h"
#include "core/device/dstore.h"
#include "core/device/ring.h"
#include "core/lib/room.h"
#include "core/load/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 64
#define CHUNK (UINT64_C(8) << 20)
#define RING (UINT64_C(128) << 20)
#define PAGE UINT64_C(4096)

struct ck_lib_devices {
	unsigned nr;
	struct ck_device *dev[MAX_DEVICES];
	struct ck_ring *ring[MAX_DEVICES]; /* or NULL */
	/* Memory of theirs that was given out. */
	CK_VEC(struct given {
		struct ck_device *dev;
		uint64_t mem;
	})
	given;
};

void ck_lib_devices_free(struct ck_lib_devices *all)
{
	for (unsigned i = 0; all && i < all->nr; i++) {
		ck_ring_free(all->ring[i]);
	}
	for (size_t i = 0; all && i < all->given.nr; i++)
		ck_device_free(all->given.v[i].dev, all->given.v[i].mem, NULL);
	for (unsigned i = 0; all && i < all->nr; i++)
		ck_device_close(all->dev[i]);
	if (all)
		free(all->given.v);
	free(all);
}

/* Of the first device that may read files itself. */
static void files_json(unshard_ctx *ctx, struct ck_str *out)
{
	struct ck_err why = { 0 };
	unsigned i = 0;

	pthread_mutex_lock(&ctx->lock);
	while (ctx->devices && i < ctx->devices->nr &&
	       !ctx->devices->dev[i]->ops->files)
		i++;
	if (ctx->devices && i < ctx->devices->nr) {
		struct ck_device *dev = ctx->devices->dev[i];
		struct ck_ring *ring = ctx->devices->ring[i];

		if (!dev->ops->files(dev->dev, &why) && ring &&
		    ck_ring_dstore(ring))
			ck_dstore_why(ck_ring_dstore(ring), why.msg,
				      sizeof(why.msg));
		ck_str_puts(out, ", \"cufile\": ");
		if (*why.msg)
			ck_str_json(out, why.msg, strlen(why.msg));
		else
			ck_str_puts(out, "true");
	}
	pthread_mutex_unlock(&ctx->lock);
}

/* Where there is CUDA at all. */
static void nccl_json(struct ck_str *out)
{
	struct ck_err why = { 0 };
	int version;

	if (ck_device_cuda.probe(&why))
		return;
	version = ck_comm_nccl_version(&why);
	ck_str_puts(out, ", \"nccl\": ");
	if (version > 0)
		ck_str_fmt(out, "%d", version);
	else
		ck_str_json(out, why.msg, strlen(why.msg));
}

void ck_lib_devices_json(unshard_ctx *ctx, struct ck_str *out)
{
	struct ck_err why[8] = { 0 };
	bool first = true;

	ck_str_puts(out, "\"devices\": [");
	for (unsigned i = 0; ck_devices[i]; i++) {
		if (ck_devices[i]->probe(&why[i]))
			continue;
		ck_str_fmt(out, "%s\"%s\"", first ? "" : ", ",
			   ck_devices[i]->name);
		first = false;
	}
	ck_str_puts(out, "]");
	for (unsigned i = 0; ck_devices[i]; i++) {
		if (!why[i].code)
			continue;
		ck_str_fmt(out, ", \"%s\": ", ck_devices[i]->name);
		ck_str_json(out, why[i].msg, strlen(why[i].msg));
	}
	files_json(ctx, out);
	nccl_json(out);
}

/* Under the lock. */
static int open_one(unshard_ctx *ctx, const char *name, int32_t *nr,
		    struct ck_err *err)
{
	struct ck_lib_devices *all = ctx->devices;
	int ret;

	if (!all)
		all = ctx->devices = calloc(1, sizeof(*all));
	if (!all)
		return ck_no_memory(err);
	for (unsigned i = 0; i < all->nr; i++)
		if (!strcmp(all->dev[i]->name, name)) {
			*nr = (int32_t)i + 1;
			return 0;
		}
	if (all->nr == MAX_DEVICES)
		return ck_fail(err, EMFILE, "device %s: %u are open already",
			       name, all->nr);
	ret = ck_device_open(&all->dev[all->nr], name, err);
	if (!ret)
		*nr = (int32_t)++all->nr;
	return ret;
}

int unshard_device_open(unshard_ctx *ctx, const char *name, int32_t *nr,
			unshard_error *err)
{
	struct ck_err why = { 0 };
	int ret = ck_lib_alive(ctx, err);

	if (ret)
		return ret;
	pthread_mutex_lock(&ctx->lock);
	ret = open_one(ctx, name, nr, &why);
	pthread_mutex_unlock(&ctx->lock);
	return ret ? ck_lib_failed(err, ret, &why) : 0;
}

static int device_of(unshard_ctx *ctx, int32_t nr, struct ck_device **out,
		     struct ck_err *err)
{
	*out = NULL;
	pthread_mutex_lock(&ctx->lock);
	if (ctx->devices && nr > 0 && (unsigned)nr <= ctx->devices->nr)
		*out = ctx->devices->dev[nr - 1];
	pthread_mutex_unlock(&ctx->lock);
	return *out ? 0 :
		      ck_fail(err, ENODEV,
			      "device %d: unshard_device_open() gave no such "
			      "number",
			      nr);
}

int ck_lib_device(unshard_ctx *ctx, int32_t nr, struct ck_device **out,
		  struct ck_err *err)
{
	*out = NULL;
	return nr == 0 || nr == -1 ? 0 : device_of(ctx, nr, out, err);
}

/* How much of each kind; what was said is taken as it is. */
static void ring_size(const unshard_ctx *ctx, unsigned *slots, uint64_t *chunk)
{
	uint64_t ring = ctx->ring, share;

	*chunk = ctx->chunk ? ctx->chunk : CHUNK;
	*chunk = CK_MAX((*chunk + PAGE - 1) / PAGE * PAGE, CK_LOAD_CHUNK_MIN);
	if (!ring) {
		share = ck_lib_memory_room() / 16 /
			CK_MAX(ctx->local_ranks, 1u);
		ring = CK_MIN(RING, share);
	}
	if (ctx->depth)
		ring = CK_MIN(ring, ctx->depth * *chunk);
	*slots = (unsigned)CK_MIN(CK_MAX(ring / *chunk, (uint64_t)2),
				  (uint64_t)512);
}

int ck_lib_ring(unshard_ctx *ctx, int32_t nr, struct ck_ring **out,
		struct ck_err *err)
{
	struct ck_device *dev;
	struct ck_ring **ring;
	unsigned slots;
	uint64_t chunk;
	int ret;

	*out = NULL;
	if (nr == 0 || nr == -1)
		return 0;
	ret = device_of(ctx, nr, &dev, err);
	if (ret)
		return ret;
	ring_size(ctx, &slots, &chunk);
	pthread_mutex_lock(&ctx->lock);
	ring = &ctx->devices->ring[nr - 1];
	if (!*ring)
		ret = ck_load_ring_new(ring, ctx->pool, dev, slots, chunk, err);
	*out = *ring;
	pthread_mutex_unlock(&ctx->lock);
	return ret;
}

static int give(unshard_ctx *ctx, struct ck_device *dev, uint64_t len,
		uint64_t *mem, struct ck_err *err)
{
	struct given *g;
	int ret = ck_device_alloc(dev, len, mem, err);

	if (ret)
		return ret;
	pthread_mutex_lock(&ctx->lock);
	g = ck_vec_push(&ctx->devices->given);
	if (g)
		*g = (struct given){ dev, *mem };
	pthread_mutex_unlock(&ctx->lock);
	if (g)
		return 0;
	ck_device_free(dev, *mem, NULL);
	return ck_no_memory(err);
}

static int take_back(unshard_ctx *ctx, struct ck_device *dev, uint64_t mem,
		     struct ck_err *err)
{
	struct ck_lib_devices *all = ctx->devices;
	size_t i;

	pthread_mutex_lock(&ctx->lock);
	for (i = all->given.nr; i > 0; i--)
		if (all->given.v[i - 1].dev == dev &&
		    all->given.v[i - 1].mem == mem)
			break;
	if (i)
		all->given.v[i - 1] = all->given.v[--all->given.nr];
	pthread_mutex_unlock(&ctx->lock);
	if (!i)
		return ck_fail(err, EINVAL,
			       "device %s: 0x%llx is no memory that "
			       "unshard_device_alloc() gave",
			       dev->name, (unsigned long long)mem);
	return ck_device_free(dev, mem, err);
}

int unshard_device_alloc(unshard_ctx *ctx, int32_t nr, uint64_t len,
			 uint64_t *mem, unshard_error *err)
{
	struct ck_err why = { 0 };
	struct ck_device *dev;
	int ret = ck_lib_alive(ctx, err);

	if (ret)
		return ret;
	ret = device_of(ctx, nr, &dev, &why);
	if (!ret)
		ret = give(ctx, dev, len, mem, &why);
	return ret ? ck_lib_failed(err, ret, &why) : 0;
}

int unshard_device_free(unshard_ctx *ctx, int32_t nr, uint64_t mem,
			unshard_error *err)
{
	struct ck_err why = { 0 };
	struct ck_device *dev;
	int ret = ck_lib_alive(ctx, err);

	if (ret)
		return ret;
	ret = device_of(ctx, nr, &dev, &why);
	if (!ret)
		ret = take_back(ctx, dev, mem, &why);
	return ret ? ck_lib_failed(err, ret, &why) : 0;
}

int unshard_device_copy(unshard_ctx *ctx, int32_t nr, int way, uint64_t mem,
			void *host, uint64_t len, unshard_error *err)
{
	struct ck_err why = { 0 };
	struct ck_device *dev;
	int ret = ck_lib_alive(ctx, err);

	if (ret)
		return ret;
	ret = device_of(ctx, nr, &dev, &why);
	if (!ret && way != UNSHARD_TO_DEVICE && way != UNSHARD_FROM_DEVICE)
		ret = ck_fail(&why, EINVAL, "way %d: expected 0 or 1", way);
	if (!ret && len)
		ret = way == UNSHARD_TO_DEVICE ?
			      ck_device_put(dev, mem, host, len, &why) :
			      ck_device_get(dev, host, mem, len, &why);
	return ret ? ck_lib_failed(err, ret, &why) : 0;
}
