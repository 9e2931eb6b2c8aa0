/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.c - CUDA devices, by the driver that is there when one is named
 *
 * libcuda.so.1 is opened then, and never closed.  The context is the device's
 * primary one, which is PyTorch's and the runtime's, too; it is current in the
 * calling thread only while a call lasts.
 */
#include "core/device/cuda_abi.h"
#include "core/device/cufile.h"
#include "core/device/device.h"

#include "core/base/check.h"
#include "core/base/number.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"
#define OLDEST 11000 /* 1000 * major + 10 * minor */
#define BATCH 64 /* copies of one call */
#define MAX_PITCH (UINT64_C(1) << 31)

#define FIELD(name, args) unsigned(*name) args;
#define NAME(name, args) #name,

static struct {
	pthread_mutex_t lock;
	bool ready;
	CK_CU_CALLS(FIELD)
	/* Or NULL: */
	CK_CU_BATCH_12(FIELD)
	CK_CU_BATCH_13(FIELD)
} cu = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct cuda {
	int device;
	struct CUctx_st *ctx;
};

/* ---- the library ---- */

static int failed(unsigned code, const char *call, struct ck_err *err)
{
	const char *name = NULL, *text = NULL;
	int as = EREMOTEIO;

	if (code == CK_CU_OUT_OF_MEMORY)
		as = ENOMEM;
	if (code == CK_CU_NO_DEVICE || code == CK_CU_INVALID_DEVICE)
		as = ENODEV;
	cu.cuGetErrorName(code, &name);
	cu.cuGetErrorString(code, &text);
	return ck_fail(err, as, "%s: %s (%s, %u)", call,
		       text ? text : "it fails", name ? name : "unknown", code);
}

/* What it is asked of first: no device is woken up by it. */
static int check_version(struct ck_err *err)
{
	int version = 0;
	unsigned code = cu.cuDriverGetVersion(&version);

	if (code == CK_CU_STUB_LIBRARY)
		return ck_fail(err, ENODEV,
			       LIBRARY " is the stub that programs are linked "
				       "with, not a driver");
	if (code)
		return ck_fail(err, ENODEV,
			       LIBRARY ": cuDriverGetVersion fails with %u",
			       code);
	if (version < OLDEST)
		return ck_fail(err, ENODEV,
			       LIBRARY
			       ": the driver is of CUDA %d.%d, expected "
			       "%d.%d and newer",
			       version / 1000, version % 1000 / 10,
			       OLDEST / 1000, OLDEST % 1000 / 10);
	return 0;
}

static int find_calls(void *lib, struct ck_err *err)
{
	static const char *const names[] = { CK_CU_CALLS(NAME) };
	void **to[] = {
#define PLACE(name, args) (void **)&cu.name,
		CK_CU_CALLS(PLACE)
	};

	for (unsigned i = 0; i < CK_ARRAY_LEN(names); i++) {
		*to[i] = dlsym(lib, names[i]);
		if (!*to[i])
			return ck_fail(err, ENODEV,
				       LIBRARY ": has no %s: the driver is too "
					       "old",
				       names[i]);
	}
	*(void **)&cu.cuMemcpyBatchAsync = dlsym(lib, "cuMemcpyBatchAsync");
	*(void **)&cu.cuMemcpyBatchAsync_v2 =
		dlsym(lib, "cuMemcpyBatchAsync_v2");
	return 0;
}

/* Of the first object, which is the program: that it asks for an interpreter. */
static int is_dynamic(struct dl_phdr_info *info, size_t size, void *out)
{
	bool *dynamic = out;

	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		*dynamic |= info->dlpi_phdr[i].p_type == PT_INTERP;
	return 1;
}

static int load(struct ck_err *err)
{
	bool dynamic = false;
	void *lib;
	int ret;

	dl_iterate_phdr(is_dynamic, &dynamic);
	if (!dynamic)
		return ck_fail(err, ENODEV,
			       "this program is linked statically and can load "
			       "no " LIBRARY);
	lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib)
		return ck_fail(err, ENODEV, "%s", dlerror());
	ret = find_calls(lib, err);
	return ret ? ret : check_version(err);
}

static int probe(struct ck_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&cu.lock);
	if (!cu.ready)
		ret = load(err);
	cu.ready = !ret;
	pthread_mutex_unlock(&cu.lock);
	return ret;
}

/* ---- a device ---- */

static int enter(const struct cuda *c, struct ck_err *err)
{
	unsigned code = cu.cuCtxPushCurrent_v2(c->ctx);

	return code ? failed(code, "cuCtxPushCurrent", err) : 0;
}

/* @code of @call, which was made since enter(). */
static int leave(unsigned code, const char *call, struct ck_err *err)
{
	struct CUctx_st *was;

	cu.cuCtxPopCurrent_v2(&was);
	return code ? failed(code, call, err) : 0;
}

static int find_device(int ordinal, int *dev, struct ck_err *err)
{
	unsigned code = cu.cuInit(0);
	int nr = 0;

	if (code == CK_CU_STUB_LIBRARY)
		return ck_fail(err, ENODEV,
			       LIBRARY " is the stub that programs are linked "
				       "with, not a driver");
	if (code)
		return failed(code, "cuInit", err);
	code = cu.cuDeviceGetCount(&nr);
	if (code)
		return failed(code, "cuDeviceGetCount", err);
	if (ordinal >= nr)
		return ck_fail(
			err, ENODEV,
			"there %s %d CUDA device%s here, counted from 0; "
			"the number is that of this machine, or of "
			"CUDA_VISIBLE_DEVICES, not a rank's",
			nr == 1 ? "is" : "are", nr, nr == 1 ? "" : "s");
	code = cu.cuDeviceGet(dev, ordinal);
	return code ? failed(code, "cuDeviceGet", err) : 0;
}

static int cuda_open(const char *args, void **out, struct ck_err *err)
{
	uint64_t ordinal = 0;
	struct cuda *c;
	unsigned code;
	int ret;

	if (*args && !ck_decimal(args, strlen(args), 1 << 16, &ordinal))
		return ck_fail(err, EINVAL, "\"%.40s\": expected a number",
			       args);
	ret = probe(err);
	if (ret)
		return ret;
	c = calloc(1, sizeof(*c));
	if (!c)
		return ck_no_memory(err);
	ret = find_device((int)ordinal, &c->device, err);
	if (!ret) {
		code = cu.cuDevicePrimaryCtxRetain(&c->ctx, c->device);
		if (code)
			ret = failed(code, "cuDevicePrimaryCtxRetain", err);
	}
	if (ret) {
		free(c);
		return ret;
	}
	*out = c;
	return 0;
}

static void cuda_close(void *dev)
{
	struct cuda *c = dev;

	cu.cuDevicePrimaryCtxRelease_v2(c->device);
	free(c);
}

static int pin(void *dev, void *mem, size_t len, struct ck_err *err)
{
	int ret = enter(dev, err);

	return ret ? ret :
		     leave(cu.cuMemHostRegister_v2(
				   mem, len, CK_CU_HOST_REGISTER_PORTABLE),
			   "cuMemHostRegister", err);
}

static void unpin(void *dev, void *mem)
{
	if (!enter(dev, NULL))
		leave(cu.cuMemHostUnregister(mem), "", NULL);
}

static int cuda_alloc(void *dev, size_t len, uint64_t *mem, struct ck_err *err)
{
	size_t left = 0, total = 0;
	unsigned long long at = 0;
	unsigned code;
	int ret = enter(dev, err);

	if (ret)
		return ret;
	code = cu.cuMemAlloc_v2(&at, len ? len : 1);
	if (code == CK_CU_OUT_OF_MEMORY)
		cu.cuMemGetInfo_v2(&left, &total);
	ret = leave(code, "cuMemAlloc", err);
	*mem = at;
	if (!total)
		return ret;
	return ck_fail(err, ENOMEM,
		       "%zu bytes of memory: it has %zu, of which %zu are left",
		       len, total, left);
}

static int cuda_free(void *dev, uint64_t mem, struct ck_err *err)
{
	int ret = enter(dev, err);

	return ret ? ret : leave(cu.cuMemFree_v2(mem), "cuMemFree", err);
}

/* ---- streams and events ---- */

static int stream(void *dev, void **out, struct ck_err *err)
{
	struct CUstream_st *s = NULL;
	int ret = enter(dev, err);

	if (!ret)
		ret = leave(cu.cuStreamCreate(&s, CK_CU_STREAM_NON_BLOCKING),
			    "cuStreamCreate", err);
	*out = s;
	return ret;
}

static void stream_free(void *dev, void *stream)
{
	if (enter(dev, NULL))
		return;
	cu.cuStreamSynchronize(stream);
	leave(cu.cuStreamDestroy_v2(stream), "", NULL);
}

static int event(void *dev, void *stream, void **out, struct ck_err *err)
{
	struct CUevent_st *e = NULL;
	unsigned code;
	int ret = enter(dev, err);

	if (ret)
		return ret;
	code = cu.cuEventCreate(&e, CK_CU_EVENT_BLOCKING_SYNC |
					    CK_CU_EVENT_DISABLE_TIMING);
	if (code)
		return leave(code, "cuEventCreate", err);
	code = cu.cuEventRecord(e, stream);
	if (code)
		cu.cuEventDestroy_v2(e);
	*out = e;
	return leave(code, "cuEventRecord", err);
}

static int wait_for(void *dev, void *event, struct ck_err *err)
{
	int ret = enter(dev, err);

	return ret ? ret :
		     leave(cu.cuEventSynchronize(event), "cuEventSynchronize",
			   err);
}

static int after(void *dev, void *stream, void *event, struct ck_err *err)
{
	int ret = enter(dev, err);

	return ret ? ret :
		     leave(cu.cuStreamWaitEvent(stream, event, 0),
			   "cuStreamWaitEvent", err);
}

static void event_free(void *dev, void *event)
{
	if (!enter(dev, NULL))
		leave(cu.cuEventDestroy_v2(event), "", NULL);
}

/* ---- copies ---- */

static unsigned copy_run(uint64_t dst, uint64_t src, uint64_t len,
			 enum ck_device_way way, void *stream)
{
	switch (way) {
	case CK_DEVICE_IN:
		return cu.cuMemcpyHtoDAsync_v2(
			dst, (const void *)(uintptr_t)src, len, stream);
	case CK_DEVICE_OUT:
		return cu.cuMemcpyDtoHAsync_v2((void *)(uintptr_t)dst, src, len,
					       stream);
	default:
		return cu.cuMemcpyDtoDAsync_v2(dst, src, len, stream);
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

	return cu.cuMemcpy2DAsync_v2(&copy, stream);
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

	return cu.cuMemcpy3DAsync_v2(&copy, stream);
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
	if (cu.cuMemcpyBatchAsync_v2)
		return cu.cuMemcpyBatchAsync_v2(dst, src, len, nr, &how, &first,
						1, stream);
	return cu.cuMemcpyBatchAsync(dst, src, len, nr, &how, &first, 1,
				     &failed_at, stream);
}

static int copy(void *dev, const struct ck_device_copy *copy, size_t nr,
		enum ck_device_way way, void *stream, struct ck_err *err)
{
	bool batches = cu.cuMemcpyBatchAsync_v2 || cu.cuMemcpyBatchAsync;
	unsigned code = 0;
	int ret = enter(dev, err);
	size_t n;

	if (ret)
		return ret;
	for (size_t i = 0; i < nr && !code; i += n) {
		n = batches ? runs_of(copy + i, nr - i, BATCH) : 0;
		if (n > 1 && !copy_batch(copy + i, n, stream))
			continue;
		batches = batches && n < 2; /* once refused, one by one */
		n = 1;
		code = copy_one(&copy[i], way, stream);
	}
	return leave(code, "a copy", err);
}

static int node(void *dev)
{
	const struct cuda *c = dev;
	int id = -1;

	if (cu.cuDeviceGetAttribute(&id, CK_CU_HOST_NUMA_ID, c->device))
		return -1;
	return id;
}

/* ---- files, by cuFile ---- */

#define ROOM_STEP (UINT64_C(2) << 20) /* such memory begins at a block */

/* @ret of what was done since enter(). */
static int out(int ret)
{
	leave(0, "", NULL);
	return ret;
}

static int files(void *dev, struct ck_err *err)
{
	int ret = enter(dev, err);

	return ret ? ret : out(ck_cufile_start(err));
}

static int file_open(void *dev, int fd, void **file, struct ck_err *err)
{
	int ret = enter(dev, err);

	return ret ? ret : out(ck_cufile_open(fd, file, err));
}

static void file_close(void *dev, void *file)
{
	if (enter(dev, NULL))
		return;
	ck_cufile_close(file);
	out(0);
}

static int file_room(void *dev, size_t len, uint64_t *mem, struct ck_err *err)
{
	int ret;

	len = (len + ROOM_STEP - 1) / ROOM_STEP * ROOM_STEP;
	ret = cuda_alloc(dev, len, mem, err);
	if (ret)
		return ret;
	ret = *mem % 4096 ? ck_fail(err, EINVAL, "memory at no block") :
			    enter(dev, err);
	if (!ret)
		ret = out(ck_cufile_register(*mem, len, err));
	if (ret)
		cuda_free(dev, *mem, NULL);
	return ret;
}

static void file_room_free(void *dev, uint64_t mem)
{
	if (!enter(dev, NULL)) {
		ck_cufile_unregister(mem);
		out(0);
	}
	cuda_free(dev, mem, NULL);
}

static int64_t file_read(void *dev, void *file, uint64_t mem, uint64_t at,
			 size_t len, uint64_t off, struct ck_err *err)
{
	int ret = enter(dev, err);
	int64_t n;

	if (ret)
		return ret;
	n = ck_cufile_read(file, mem, at, len, off, err);
	out(0);
	return n;
}

const struct ck_device_ops ck_device_cuda = {
	.name = "cuda",
	.probe = probe,
	.open = cuda_open,
	.close = cuda_close,
	.pin = pin,
	.unpin = unpin,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.stream = stream,
	.stream_free = stream_free,
	.copy = copy,
	.event = event,
	.wait = wait_for,
	.after = after,
	.event_free = event_free,
	.node = node,
	.files = files,
	.file_open = file_open,
	.file_close = file_close,
	.file_room = file_room,
	.file_room_free = file_room_free,
	.file_read = file_read,
	.dlpack = 2, /* kDLCUDA */
};
