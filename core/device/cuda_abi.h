/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_abi.h - what of CUDA's driver API is called, in declarations of our own
 *
 * No header and no library of CUDA is needed to build.  What stands here is the
 * same since CUDA 11; make check-cuda-abi compares it with the headers of 12 and 13.
 */
#ifndef CK_CUDA_ABI_H
#define CK_CUDA_ABI_H

#include <stddef.h>

enum {
	CK_CU_SUCCESS = 0,
	CK_CU_OUT_OF_MEMORY = 2,
	CK_CU_STUB_LIBRARY = 34,
	CK_CU_NO_DEVICE = 100,
	CK_CU_INVALID_DEVICE = 101,
	CK_CU_NOT_READY = 600
};
enum { CK_CU_MEMORY_HOST = 1, CK_CU_MEMORY_DEVICE = 2 };
enum { CK_CU_HOST_NUMA_ID = 134 }; /* of a device; from CUDA 12.2 on */
enum { CK_CU_STREAM_NON_BLOCKING = 1 };
enum { CK_CU_EVENT_BLOCKING_SYNC = 1, CK_CU_EVENT_DISABLE_TIMING = 2 };
enum { CK_CU_HOST_REGISTER_PORTABLE = 1 };
enum { CK_CU_SRC_ORDER_STREAM = 1 }; /* of a copy of a batch */

#ifndef CK_CU_TYPES /* who compares has CUDA's own */
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;

struct ck_cu_side {
	size_t x, y;
	unsigned type;
	void *host;
	unsigned long long device;
	void *array;
	size_t pitch;
};
struct ck_cu_2d {
	struct ck_cu_side src, dst;
	size_t width, height;
};

struct ck_cu_side_3d {
	size_t x, y, z, lod;
	unsigned type;
	void *host;
	unsigned long long device;
	void *array, *reserved;
	size_t pitch, height;
};
struct ck_cu_3d {
	struct ck_cu_side_3d src, dst;
	size_t width, height, depth;
};

struct ck_cu_location {
	unsigned type;
	int id;
};
struct ck_cu_attributes {
	unsigned order;
	struct ck_cu_location src, dst;
	unsigned flags;
};
#define CK_CU_ATTRIBUTES struct ck_cu_attributes
#define CK_CU_2D struct ck_cu_2d
#define CK_CU_3D struct ck_cu_3d
#endif

/* F(name, arguments); each returns CUresult. */
#define CK_CU_CALLS(F)                                                    \
	F(cuInit, (unsigned flags))                                       \
	F(cuDriverGetVersion, (int *version))                             \
	F(cuGetErrorName, (unsigned error, const char **name))            \
	F(cuGetErrorString, (unsigned error, const char **text))          \
	F(cuDeviceGetCount, (int *nr))                                    \
	F(cuDeviceGet, (int *dev, int ordinal))                           \
	F(cuDeviceGetAttribute, (int *value, unsigned what, int dev))     \
	F(cuDevicePrimaryCtxRetain, (struct CUctx_st * *ctx, int dev))    \
	F(cuDevicePrimaryCtxRelease_v2, (int dev))                        \
	F(cuCtxPushCurrent_v2, (struct CUctx_st * ctx))                   \
	F(cuCtxPopCurrent_v2, (struct CUctx_st * *ctx))                   \
	F(cuMemGetInfo_v2, (size_t * left, size_t * total))               \
	F(cuMemAlloc_v2, (unsigned long long *mem, size_t len))           \
	F(cuMemFree_v2, (unsigned long long mem))                         \
	F(cuMemHostRegister_v2, (void *mem, size_t len, unsigned flags))  \
	F(cuMemHostUnregister, (void *mem))                               \
	F(cuMemcpyHtoDAsync_v2, (unsigned long long dst, const void *src, \
				 size_t len, struct CUstream_st *stream)) \
	F(cuMemcpyDtoHAsync_v2, (void *dst, unsigned long long src,       \
				 size_t len, struct CUstream_st *stream)) \
	F(cuMemcpyDtoDAsync_v2,                                           \
	  (unsigned long long dst, unsigned long long src, size_t len,    \
	   struct CUstream_st *stream))                                   \
	F(cuMemcpy2DAsync_v2,                                             \
	  (const CK_CU_2D *copy, struct CUstream_st *stream))             \
	F(cuMemcpy3DAsync_v2,                                             \
	  (const CK_CU_3D *copy, struct CUstream_st *stream))             \
	F(cuStreamCreate, (struct CUstream_st * *stream, unsigned flags)) \
	F(cuStreamDestroy_v2, (struct CUstream_st * stream))              \
	F(cuStreamSynchronize, (struct CUstream_st * stream))             \
	F(cuStreamWaitEvent, (struct CUstream_st * stream,                \
			      struct CUevent_st * event, unsigned flags)) \
	F(cuEventCreate, (struct CUevent_st * *event, unsigned flags))    \
	F(cuEventRecord,                                                  \
	  (struct CUevent_st * event, struct CUstream_st * stream))       \
	F(cuEventQuery, (struct CUevent_st * event))                      \
	F(cuEventSynchronize, (struct CUevent_st * event))                \
	F(cuEventDestroy_v2, (struct CUevent_st * event))
/* Many copies of one run: CUDA 12.8's, and that of 13, which says of none that failed. */
#define CK_CU_BATCH_12(F)                                                 \
	F(cuMemcpyBatchAsync,                                             \
	  (unsigned long long *dst, unsigned long long *src, size_t *len, \
	   size_t nr, CK_CU_ATTRIBUTES *attributes, size_t *first,        \
	   size_t nr_attributes, size_t *failed, struct CUstream_st *stream))
#define CK_CU_BATCH_13(F)                                                 \
	F(cuMemcpyBatchAsync_v2,                                          \
	  (unsigned long long *dst, unsigned long long *src, size_t *len, \
	   size_t nr, CK_CU_ATTRIBUTES *attributes, size_t *first,        \
	   size_t nr_attributes, struct CUstream_st *stream))

#endif
