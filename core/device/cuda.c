/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.c - CUDA devices, by the driver that is there when one is named
 *
 * libcuda.so.1 is opened then, and never closed.  The context is the device's
 * primary one, which is PyTorch's and the runtime's, too; it is current in the
 * calling thread only while a call lasts.
 */
#include "core/device/cuda_priv.h"
#include "core/device/cufile.h"
#include "core/device/vendor.h"

#include "core/base/number.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"
#define OLDEST 11000 /* 1000 * major + 10 * minor */

#define NAME(name, args) #name,

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool ready;
struct ck_cuda_calls ck_cu;

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
	ck_cu.cuGetErrorName(code, &name);
	ck_cu.cuGetErrorString(code, &text);
	return ck_fail(err, as, "%s: %s (%s, %u)", call,
		       text ? text : "it fails", name ? name : "unknown", code);
}

/* What it is asked of first: no device is woken up by it. */
static int check_version(struct ck_err *err)
{
	int version = 0;
	unsigned code = ck_cu.cuDriverGetVersion(&version);

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

static int find_calls(struct ck_err *err)
{
	static const char *const names[] = { CK_CU_CALLS(NAME) NULL };
	void **const to[] = {
#define PLACE(name, args) (void **)&ck_cu.name,
		CK_CU_CALLS(PLACE)
	};
	void *lib;
	int ret = ck_vendor_open(LIBRARY, names, to, &lib, err);

	if (ret)
		return ret;
	*(void **)&ck_cu.cuMemcpyBatchAsync = dlsym(lib, "cuMemcpyBatchAsync");
	*(void **)&ck_cu.cuMemcpyBatchAsync_v2 =
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
	int ret;

	dl_iterate_phdr(is_dynamic, &dynamic);
	if (!dynamic)
		return ck_fail(err, ENODEV,
			       "this program is linked statically and can load "
			       "no " LIBRARY);
	ret = find_calls(err);
	return ret ? ret : check_version(err);
}

static int probe(struct ck_err *err)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	if (!ready)
		ret = load(err);
	ready = !ret;
	pthread_mutex_unlock(&lock);
	return ret;
}

/* ---- a device ---- */

static int enter(void *dev, struct ck_err *err)
{
	const struct cuda *c = dev;
	unsigned code = ck_cu.cuCtxPushCurrent_v2(c->ctx);

	return code ? failed(code, "cuCtxPushCurrent", err) : 0;
}

/* @code of @call, which was made since enter(). */
static int leave(unsigned code, const char *call, struct ck_err *err)
{
	struct CUctx_st *was;

	ck_cu.cuCtxPopCurrent_v2(&was);
	return code ? failed(code, call, err) : 0;
}

static int find_device(int ordinal, int *dev, struct ck_err *err)
{
	unsigned code = ck_cu.cuInit(0);
	int nr = 0;

	if (code == CK_CU_STUB_LIBRARY)
		return ck_fail(err, ENODEV,
			       LIBRARY " is the stub that programs are linked "
				       "with, not a driver");
	if (code)
		return failed(code, "cuInit", err);
	code = ck_cu.cuDeviceGetCount(&nr);
	if (code)
		return failed(code, "cuDeviceGetCount", err);
	if (ordinal >= nr)
		return ck_fail(
			err, ENODEV,
			"there %s %d CUDA device%s here, counted from 0; "
			"the number is that of this machine, or of "
			"CUDA_VISIBLE_DEVICES, not a rank's",
			nr == 1 ? "is" : "are", nr, nr == 1 ? "" : "s");
	code = ck_cu.cuDeviceGet(dev, ordinal);
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
		code = ck_cu.cuDevicePrimaryCtxRetain(&c->ctx, c->device);
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

	ck_cu.cuDevicePrimaryCtxRelease_v2(c->device);
	free(c);
}

static int pin(void *dev, void *mem, size_t len, struct ck_err *err)
{
	int ret = enter(dev, err);

	return ret ? ret :
		     leave(ck_cu.cuMemHostRegister_v2(
				   mem, len, CK_CU_HOST_REGISTER_PORTABLE),
			   "cuMemHostRegister", err);
}

static void unpin(void *dev, void *mem)
{
	if (!enter(dev, NULL))
		leave(ck_cu.cuMemHostUnregister(mem), "", NULL);
}

static int cuda_alloc(void *dev, size_t len, uint64_t *mem, struct ck_err *err)
{
	size_t left = 0, total = 0;
	unsigned long long at = 0;
	unsigned code;
	int ret = enter(dev, err);

	if (ret)
		return ret;
	code = ck_cu.cuMemAlloc_v2(&at, len ? len : 1);
	if (code == CK_CU_OUT_OF_MEMORY)
		ck_cu.cuMemGetInfo_v2(&left, &total);
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

	return ret ? ret : leave(ck_cu.cuMemFree_v2(mem), "cuMemFree", err);
}

/* ---- streams and events ---- */

static int stream(void *dev, void **out, struct ck_err *err)
{
	struct CUstream_st *s = NULL;
	int ret = enter(dev, err);

	if (!ret)
		ret = leave(ck_cu.cuStreamCreate(&s, CK_CU_STREAM_NON_BLOCKING),
			    "cuStreamCreate", err);
	*out = s;
	return ret;
}

static void stream_free(void *dev, void *stream)
{
	if (enter(dev, NULL))
		return;
	ck_cu.cuStreamSynchronize(stream);
	leave(ck_cu.cuStreamDestroy_v2(stream), "", NULL);
}

static int event(void *dev, void *stream, void **out, struct ck_err *err)
{
	struct CUevent_st *e = NULL;
	unsigned code;
	int ret = enter(dev, err);

	if (ret)
		return ret;
	code = ck_cu.cuEventCreate(&e, CK_CU_EVENT_BLOCKING_SYNC |
					       CK_CU_EVENT_DISABLE_TIMING);
	if (code)
		return leave(code, "cuEventCreate", err);
	code = ck_cu.cuEventRecord(e, stream);
	if (code)
		ck_cu.cuEventDestroy_v2(e);
	*out = e;
	return leave(code, "cuEventRecord", err);
}

static int wait_for(void *dev, void *event, struct ck_err *err)
{
	int ret = enter(dev, err);

	return ret ? ret :
		     leave(ck_cu.cuEventSynchronize(event),
			   "cuEventSynchronize", err);
}

static int is_done(void *dev, void *event, struct ck_err *err)
{
	int ret = enter(dev, err);
	unsigned code;

	if (ret)
		return ret;
	code = ck_cu.cuEventQuery(event);
	ret = leave(code == CK_CU_NOT_READY ? 0 : code, "cuEventQuery", err);
	return ret ? ret : code != CK_CU_NOT_READY;
}

static int after(void *dev, void *stream, void *event, struct ck_err *err)
{
	int ret = enter(dev, err);

	return ret ? ret :
		     leave(ck_cu.cuStreamWaitEvent(stream, event, 0),
			   "cuStreamWaitEvent", err);
}

static void event_free(void *dev, void *event)
{
	if (!enter(dev, NULL))
		leave(ck_cu.cuEventDestroy_v2(event), "", NULL);
}

static int copy(void *dev, const struct ck_device_copy *copy, size_t nr,
		enum ck_device_way way, void *stream, struct ck_err *err)
{
	int ret = enter(dev, err);

	return ret ? ret :
		     leave(ck_cuda_copy(copy, nr, way, stream), "a copy", err);
}

static int node(void *dev)
{
	const struct cuda *c = dev;
	int id = -1;

	if (ck_cu.cuDeviceGetAttribute(&id, CK_CU_HOST_NUMA_ID, c->device))
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

static void cuda_leave(void *dev)
{
	(void)dev;
	out(0);
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
	.is_done = is_done,
	.after = after,
	.event_free = event_free,
	.node = node,
	.files = files,
	.file_open = file_open,
	.file_close = file_close,
	.file_room = file_room,
	.file_room_free = file_room_free,
	.file_read = file_read,
	.enter = enter,
	.leave = cuda_leave,
	.dlpack = 2, /* kDLCUDA */
};
