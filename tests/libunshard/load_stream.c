/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load_stream - a load behind what a stream of the caller's has still to do
 *
 * With tests/fakes/cuda.c: a stream that is held up is to copy what memory held
 * before a load.  The load is begun meanwhile; nobody waits.
 */
#include "core/device/cuda_abi.h"
#include "core/lib/unshard.h"
#include "tests/lib/loadkit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CKPT "tests/formats/dcp/1.13/in"
#define HELD (512 << 10) /* bytes, at 1 MiB a second */
#define OLD 0x5a

static unshard_error err;
static struct {
#define FIELD(name, args) unsigned(*name) args;
	CK_CU_CALLS(FIELD)
} cu;

static void ok(int ret)
{
	if (ret)
		fprintf(stderr, "%d: %s\n", ret, err.text);
	LK_CHECK(!ret);
}

static void use_fake(void)
{
	char path[300];
	void *lib;

	snprintf(path, sizeof(path), "%s/fakes/libcuda.so.1", getenv("B"));
	LK_CHECK(!setenv("FAKE_CUDA", "device=late=0+rate=1M", 1));
	lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	LK_CHECK(lib);
#define FIND(name, args) *(void **)&cu.name = dlsym(lib, #name);
	CK_CU_CALLS(FIND)
}

/* A stream that goes on when another has copied for half a second. */
static struct CUstream_st *held_stream(uint64_t from, unsigned char *to,
				       struct CUstream_st **by)
{
	struct CUstream_st *slow, *held;
	struct CUevent_st *event;

	LK_CHECK(!cu.cuStreamCreate(&slow, CK_CU_STREAM_NON_BLOCKING));
	LK_CHECK(!cu.cuStreamCreate(&held, CK_CU_STREAM_NON_BLOCKING));
	LK_CHECK(!cu.cuMemcpyDtoHAsync_v2(to, from, HELD, slow));
	LK_CHECK(!cu.cuEventCreate(&event, CK_CU_EVENT_BLOCKING_SYNC |
						   CK_CU_EVENT_DISABLE_TIMING));
	LK_CHECK(!cu.cuEventRecord(event, slow));
	LK_CHECK(!cu.cuStreamWaitEvent(held, event, 0));
	LK_CHECK(!cu.cuEventDestroy_v2(event));
	*by = slow;
	return held;
}

static void one(unshard_ctx *ctx, unshard_ckpt *ck)
{
	unshard_load_opts lo = { .size = sizeof(lo) };
	unsigned char *other = malloc(HELD), *was, *host, *now;
	unshard_item item = { .size = sizeof(item) }, here;
	struct CUstream_st *stream, *by;
	uint64_t mem, far;
	unshard_tensor t;
	unshard_req *req;
	int32_t nr;

	ok(unshard_tensor_at(ck, 0, &t, sizeof(t)));
	was = malloc(t.nbytes);
	now = malloc(t.nbytes);
	host = malloc(t.nbytes);
	LK_CHECK(other && was && now && host);
	memset(host, OLD, t.nbytes);
	ok(unshard_device_open(ctx, "cuda", &nr, &err));
	ok(unshard_device_alloc(ctx, nr, t.nbytes, &mem, &err));
	ok(unshard_device_alloc(ctx, nr, HELD, &far, &err));
	ok(unshard_device_copy(ctx, nr, UNSHARD_TO_DEVICE, mem, host, t.nbytes,
			       &err));
	stream = held_stream(far, other, &by);
	LK_CHECK(!cu.cuMemcpyDtoHAsync_v2(was, mem, t.nbytes, stream));
	item.mem = mem;
	item.device = nr;
	lo.stream = stream;
	ok(unshard_load(ck, &item, 1, &lo, &req, &err));
	ok(unshard_wait(req, -1, &err));
	unshard_req_free(req);
	LK_CHECK(!cu.cuStreamSynchronize(stream));
	LK_CHECK(!cu.cuStreamDestroy_v2(stream));
	LK_CHECK(!cu.cuStreamDestroy_v2(by));
	here = item;
	here.device = -1;
	here.mem = (uintptr_t)host;
	ok(unshard_read(ck, &here, &err));
	for (uint64_t i = 0; i < t.nbytes; i++)
		LK_CHECK(was[i] == OLD);
	ok(unshard_device_copy(ctx, nr, UNSHARD_FROM_DEVICE, mem, now, t.nbytes,
			       &err));
	LK_CHECK(!memcmp(now, host, t.nbytes));
	free(other);
	free(was);
	free(now);
	free(host);
}

int main(void)
{
	unshard_open_opts oo = { .size = sizeof(oo),
				 .options = "sandbox=off",
				 .isolation = UNSHARD_IN_PROCESS };
	struct CUctx_st *context;
	unshard_ctx *ctx;
	unshard_ckpt *ck;

	use_fake();
	LK_CHECK(!cu.cuInit(0));
	LK_CHECK(!cu.cuDevicePrimaryCtxRetain(&context, 0));
	LK_CHECK(!cu.cuCtxPushCurrent_v2(context));
	ok(unshard_ctx_new(&ctx, NULL, &err));
	ok(unshard_open(ctx, CKPT, &oo, &ck, &err));
	one(ctx, ck);
	unshard_unref(ck);
	unshard_ctx_free(ctx);
	return 0;
}
