/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.c - a libcuda.so.1 of the simulated device, whose faults are scripted
 *
 * FAKE_CUDA="version=12080,stub=1,init=100,count=2,device=rate=1G+fail=copy:3",
 * "batch=1": batches of copies are refused;
 * where what follows "device=" is the simulated device's, with "+" for ",".
 * Addresses of one device are good in its context alone, and
 * calls without a current context fail, as CUDA has it.
 */
#include "core/device/cuda_abi.h"
#include "core/device/device.h"
#include "core/device/simulated_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define MAX 8
#define INVALID_CONTEXT 201
#define UNKNOWN 999

/* Its declarations are checked against ours, as ours are against CUDA's. */
#define DECLARE(name, args) API unsigned name args;
CK_CU_CALLS(DECLARE)
CK_CU_BATCH_12(DECLARE)

static struct {
	void *dev[MAX];
	unsigned refs[MAX];
	pthread_mutex_t lock;
	bool inited;
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Thread_local void *stack[16];
static _Thread_local unsigned depth;

static const struct ck_device_ops *sim = &ck_device_simulated;

/* The number behind "@name=", or @fallback. */
static long told(const char *name, long fallback)
{
	const char *at = getenv("FAKE_CUDA");
	size_t len = strlen(name);

	for (; at && *at; at += strcspn(at, ","), at += *at == ',')
		if (!strncmp(at, name, len) && at[len] == '=')
			return strtol(at + len + 1, NULL, 10);
	return fallback;
}

static void *current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

static unsigned code_of(int ret)
{
	if (!ret)
		return CK_CU_SUCCESS;
	return ret == -ENOMEM ? CK_CU_OUT_OF_MEMORY : UNKNOWN;
}

unsigned cuInit(unsigned flags)
{
	unsigned code = (unsigned)told("init", 0);

	fake.inited = !code && !flags;
	return code;
}

unsigned cuDriverGetVersion(int *version)
{
	if (told("stub", 0))
		return CK_CU_STUB_LIBRARY;
	*version = (int)told("version", 12080);
	return 0;
}

unsigned cuGetErrorName(unsigned error, const char **name)
{
	*name = error == CK_CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" :
		error == CK_CU_NO_DEVICE     ? "CUDA_ERROR_NO_DEVICE" :
					       "CUDA_ERROR_UNKNOWN";
	return 0;
}

unsigned cuGetErrorString(unsigned error, const char **text)
{
	*text = error == CK_CU_OUT_OF_MEMORY ?
			"out of memory" :
		error == CK_CU_NO_DEVICE ?
			"no CUDA-capable device is detected" :
			"unknown error";
	return 0;
}

unsigned cuDeviceGetCount(int *nr)
{
	*nr = (int)told("count", 1);
	return fake.inited ? 0 : 3;
}

unsigned cuDeviceGet(int *dev, int ordinal)
{
	*dev = ordinal;
	return fake.inited && ordinal < MAX ? 0 : CK_CU_INVALID_DEVICE;
}

unsigned cuDeviceGetAttribute(int *value, unsigned what, int dev)
{
	*value = -1;
	return what == CK_CU_HOST_NUMA_ID && dev < MAX ? 0 : 1;
}

unsigned cuDevicePrimaryCtxRetain(struct CUctx_st **ctx, int dev)
{
	const char *script = getenv("FAKE_CUDA");
	const char *at = script ? strstr(script, "device=") : NULL;
	char args[128] = "";
	int ret = 0;

	if (at)
		snprintf(args, sizeof(args), "%s", at + 7);
	for (char *c = args; *c; c++)
		if (*c == '+')
			*c = ',';
	pthread_mutex_lock(&fake.lock);
	if (!fake.refs[dev])
		ret = sim->open(args, &fake.dev[dev], NULL);
	if (!ret)
		fake.refs[dev]++;
	*ctx = fake.dev[dev];
	pthread_mutex_unlock(&fake.lock);
	return code_of(ret);
}

unsigned cuDevicePrimaryCtxRelease_v2(int dev)
{
	pthread_mutex_lock(&fake.lock);
	if (!--fake.refs[dev])
		sim->close(fake.dev[dev]);
	pthread_mutex_unlock(&fake.lock);
	return 0;
}

unsigned cuCtxPushCurrent_v2(struct CUctx_st *ctx)
{
	if (depth == 16)
		return UNKNOWN;
	stack[depth++] = ctx;
	return 0;
}

unsigned cuCtxPopCurrent_v2(struct CUctx_st **ctx)
{
	if (!depth)
		return INVALID_CONTEXT;
	*ctx = stack[--depth];
	return 0;
}

unsigned cuMemGetInfo_v2(size_t *left, size_t *total)
{
	*left = 1000;
	*total = 2000;
	return 0;
}

unsigned cuMemAlloc_v2(unsigned long long *mem, size_t len)
{
	uint64_t at = 0;
	unsigned code = current() ?
				code_of(sim->alloc(current(), len, &at, NULL)) :
				INVALID_CONTEXT;

	*mem = at;
	return code;
}

unsigned cuMemFree_v2(unsigned long long mem)
{
	return current() ? code_of(sim->free(current(), mem, NULL)) :
			   INVALID_CONTEXT;
}

unsigned cuMemHostRegister_v2(void *mem, size_t len, unsigned flags)
{
	if (flags != CK_CU_HOST_REGISTER_PORTABLE)
		return 1;
	return current() ? code_of(sim->pin(current(), mem, len, NULL)) :
			   INVALID_CONTEXT;
}

unsigned cuMemHostUnregister(void *mem)
{
	if (!current())
		return INVALID_CONTEXT;
	sim->unpin(current(), mem);
	return 0;
}

static unsigned queue(const struct ck_device_copy *copy, enum ck_device_way way,
		      struct CUstream_st *stream)
{
	return current() ? code_of(sim->copy(current(), copy, 1, way, stream,
					     NULL)) :
			   INVALID_CONTEXT;
}

unsigned cuMemcpyHtoDAsync_v2(unsigned long long dst, const void *src,
			      size_t len, struct CUstream_st *stream)
{
	return queue(&(struct ck_device_copy){ .dst = dst,
					       .src = (uintptr_t)src,
					       .run = len },
		     CK_DEVICE_IN, stream);
}

/* For tests: how many were queued so. */
API long fake_cuda_fetched(void);
static _Atomic long fetched;

long fake_cuda_fetched(void)
{
	return fetched;
}

unsigned cuMemcpyDtoHAsync_v2(void *dst, unsigned long long src, size_t len,
			      struct CUstream_st *stream)
{
	fetched++;
	return queue(&(struct ck_device_copy){ .dst = (uintptr_t)dst,
					       .src = src,
					       .run = len },
		     CK_DEVICE_OUT, stream);
}

unsigned cuMemcpyDtoDAsync_v2(unsigned long long dst, unsigned long long src,
			      size_t len, struct CUstream_st *stream)
{
	return queue(
		&(struct ck_device_copy){ .dst = dst, .src = src, .run = len },
		CK_DEVICE_INSIDE, stream);
}

/* For tests: how many were queued so. */
API long fake_cuda_batched(void);
static _Atomic long batched;

long fake_cuda_batched(void)
{
	return batched;
}

/* What belongs to the host is not the device's: the way of each. */
unsigned cuMemcpyBatchAsync(unsigned long long *dst, unsigned long long *src,
			    size_t *len, size_t nr,
			    struct ck_cu_attributes *attributes, size_t *first,
			    size_t nr_attributes, size_t *failed,
			    struct CUstream_st *stream)
{
	unsigned code = (unsigned)told("batch", 0);

	if (nr_attributes != 1 || *first || !stream ||
	    attributes->order != CK_CU_SRC_ORDER_STREAM || attributes->flags)
		code = 1;
	*failed = SIZE_MAX;
	for (size_t i = 0; i < nr && !code; i++) {
		const struct ck_device_copy copy = { .dst = dst[i],
						     .src = src[i],
						     .run = len[i] };
		bool to = ck_sim_bytes(current(), dst[i], 1);
		bool from = ck_sim_bytes(current(), src[i], 1);

		code = queue(&copy,
			     !from ? CK_DEVICE_IN :
			     to	   ? CK_DEVICE_INSIDE :
				     CK_DEVICE_OUT,
			     stream);
		batched += !code;
	}
	return code;
}

static enum ck_device_way way_of(unsigned src, unsigned dst)
{
	if (src == CK_CU_MEMORY_HOST)
		return CK_DEVICE_IN;
	return dst == CK_CU_MEMORY_HOST ? CK_DEVICE_OUT : CK_DEVICE_INSIDE;
}

static uint64_t place(unsigned type, const void *host, uint64_t device)
{
	return type == CK_CU_MEMORY_HOST ? (uintptr_t)host : device;
}

unsigned cuMemcpy2DAsync_v2(const struct ck_cu_2d *c,
			    struct CUstream_st *stream)
{
	const struct ck_device_copy copy = {
		.dst = place(c->dst.type, c->dst.host, c->dst.device),
		.src = place(c->src.type, c->src.host, c->src.device),
		.run = c->width,
		.nax = 1,
		.ax = { { c->height, c->dst.pitch, c->src.pitch } },
	};

	return queue(&copy, way_of(c->src.type, c->dst.type), stream);
}

unsigned cuMemcpy3DAsync_v2(const struct ck_cu_3d *c,
			    struct CUstream_st *stream)
{
	const struct ck_device_copy copy = {
		.dst = place(c->dst.type, c->dst.host, c->dst.device),
		.src = place(c->src.type, c->src.host, c->src.device),
		.run = c->width,
		.nax = 2,
		.ax = { { c->depth, c->dst.pitch * c->dst.height,
			  c->src.pitch * c->src.height },
			{ c->height, c->dst.pitch, c->src.pitch } },
	};

	return queue(&copy, way_of(c->src.type, c->dst.type), stream);
}

unsigned cuStreamCreate(struct CUstream_st **stream, unsigned flags)
{
	void *s = NULL;
	unsigned code = current() && flags == CK_CU_STREAM_NON_BLOCKING ?
				code_of(sim->stream(current(), &s, NULL)) :
				INVALID_CONTEXT;

	*stream = s;
	return code;
}

unsigned cuStreamDestroy_v2(struct CUstream_st *stream)
{
	sim->stream_free(current(), stream);
	return 0;
}

/* An event behind all that is in it. */
unsigned cuStreamSynchronize(struct CUstream_st *stream)
{
	void *event;
	int ret = sim->event(current(), stream, &event, NULL);

	if (ret)
		return code_of(ret);
	ret = sim->wait(current(), event, NULL);
	sim->event_free(current(), event);
	return code_of(ret);
}

/* CUDA's events are made before they are recorded: so is this. */
struct CUevent_st {
	void *event;
};

unsigned cuEventCreate(struct CUevent_st **event, unsigned flags)
{
	if (flags != (CK_CU_EVENT_BLOCKING_SYNC | CK_CU_EVENT_DISABLE_TIMING))
		return 1;
	*event = calloc(1, sizeof(**event));
	return *event ? 0 : CK_CU_OUT_OF_MEMORY;
}

unsigned cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
	return current() ? code_of(sim->event(current(), stream, &event->event,
					      NULL)) :
			   INVALID_CONTEXT;
}

unsigned cuEventQuery(struct CUevent_st *event)
{
	int ret = sim->is_done(current(), event->event, NULL);

	return ret == 1 ? 0 : ret ? code_of(ret) : CK_CU_NOT_READY;
}

unsigned cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event,
			   unsigned flags)
{
	return flags ? 1 :
		       code_of(sim->after(current(), stream, event->event,
					  NULL));
}

unsigned cuEventSynchronize(struct CUevent_st *event)
{
	return code_of(sim->wait(current(), event->event, NULL));
}

unsigned cuEventDestroy_v2(struct CUevent_st *event)
{
	if (event->event)
		sim->event_free(current(), event->event);
	free(event);
	return 0;
}

/* For the fake cuFile: bytes to memory of the current context, now. */
API int fake_cuda_put(uint64_t mem, const void *from, size_t len);
int fake_cuda_put(uint64_t mem, const void *from, size_t len)
{
	unsigned char *to =
		current() ? ck_sim_bytes(current(), mem, len) : NULL;

	if (to)
		memcpy(to, from, len);
	return to ? 0 : -EINVAL;
}

/*
 * For the fake NCCL: where bytes of the current context are, of none where there is
 * a context; and a call when the stream has come there.
 */
API unsigned char *fake_cuda_bytes(uint64_t mem, size_t len);
unsigned char *fake_cuda_bytes(uint64_t mem, size_t len)
{
	static unsigned char none;

	if (!current() || !len)
		return current() ? &none : NULL;
	return ck_sim_bytes(current(), mem, len);
}

API int fake_cuda_call_in(void *stream, void (*call)(void *arg), void *arg);
int fake_cuda_call_in(void *stream, void (*call)(void *arg), void *arg)
{
	return ck_sim_call_in(stream, call, arg);
}
