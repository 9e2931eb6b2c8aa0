/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.c - core/device/cuda_abi.h against a real cuda.h; only compiled, twice:
 * calls and numbers, and with -DLAYOUT the structs
 */
#include <cuda.h>

#ifndef LAYOUT
#define CK_CU_TYPES
#define CK_CU_2D CUDA_MEMCPY2D
#define CK_CU_3D CUDA_MEMCPY3D
#define CK_CU_ATTRIBUTES CUmemcpyAttributes
#endif
#include "core/device/cuda_abi.h"

#define IS(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

#ifndef LAYOUT
/* Each is there by this name, and to declare it as we do is no conflict. */
#define THERE(name, args) extern __typeof__(name) *const there_##name;
#define AGAIN(name, args) CUresult name args;
CK_CU_CALLS(THERE)
CK_CU_CALLS(AGAIN)
#if CUDA_VERSION >= 13000
CK_CU_BATCH_13(THERE)
CK_CU_BATCH_13(AGAIN)
#else
CK_CU_BATCH_12(THERE)
CK_CU_BATCH_12(AGAIN)
#endif
_Static_assert(sizeof(CUresult) == sizeof(unsigned), "CUresult");
_Static_assert((CUresult)-1 > 0, "CUresult is unsigned");

IS(CK_CU_SUCCESS, CUDA_SUCCESS);
IS(CK_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
IS(CK_CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
IS(CK_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
IS(CK_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
IS(CK_CU_NOT_READY, CUDA_ERROR_NOT_READY);
IS(CK_CU_MEMORY_HOST, CU_MEMORYTYPE_HOST);
IS(CK_CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
IS(CK_CU_HOST_NUMA_ID, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
IS(CK_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
IS(CK_CU_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC);
IS(CK_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
IS(CK_CU_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
IS(CK_CU_SRC_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
#else
#define SIZE(ours, theirs) IS(sizeof(ours), sizeof(theirs))
#define AT(ours, a, theirs, b)                      \
	IS(offsetof(ours, a), offsetof(theirs, b)); \
	IS(sizeof(((ours *)0)->a), sizeof(((theirs *)0)->b))
#define AT_2D(a, b) AT(struct ck_cu_2d, a, CUDA_MEMCPY2D, b)
#define AT_3D(a, b) AT(struct ck_cu_3d, a, CUDA_MEMCPY3D, b)

SIZE(CUdeviceptr, unsigned long long);
SIZE(CUdevice, int);
SIZE(struct ck_cu_attributes, CUmemcpyAttributes);
AT(struct ck_cu_attributes, order, CUmemcpyAttributes, srcAccessOrder);
AT(struct ck_cu_attributes, src, CUmemcpyAttributes, srcLocHint);
AT(struct ck_cu_attributes, dst, CUmemcpyAttributes, dstLocHint);
AT(struct ck_cu_attributes, flags, CUmemcpyAttributes, flags);
AT(struct ck_cu_location, type, CUmemLocation, type);
AT(struct ck_cu_location, id, CUmemLocation, id);
SIZE(struct ck_cu_2d, CUDA_MEMCPY2D);
SIZE(struct ck_cu_3d, CUDA_MEMCPY3D);
AT_2D(src.x, srcXInBytes);
AT_2D(src.y, srcY);
AT_2D(src.type, srcMemoryType);
AT_2D(src.host, srcHost);
AT_2D(src.device, srcDevice);
AT_2D(src.array, srcArray);
AT_2D(src.pitch, srcPitch);
AT_2D(dst.x, dstXInBytes);
AT_2D(dst.y, dstY);
AT_2D(dst.type, dstMemoryType);
AT_2D(dst.host, dstHost);
AT_2D(dst.device, dstDevice);
AT_2D(dst.array, dstArray);
AT_2D(dst.pitch, dstPitch);
AT_2D(width, WidthInBytes);
AT_2D(height, Height);
AT_3D(src.x, srcXInBytes);
AT_3D(src.y, srcY);
AT_3D(src.z, srcZ);
AT_3D(src.lod, srcLOD);
AT_3D(src.type, srcMemoryType);
AT_3D(src.host, srcHost);
AT_3D(src.device, srcDevice);
AT_3D(src.array, srcArray);
AT_3D(src.reserved, reserved0);
AT_3D(src.pitch, srcPitch);
AT_3D(src.height, srcHeight);
AT_3D(dst.x, dstXInBytes);
AT_3D(dst.y, dstY);
AT_3D(dst.z, dstZ);
AT_3D(dst.lod, dstLOD);
AT_3D(dst.type, dstMemoryType);
AT_3D(dst.host, dstHost);
AT_3D(dst.device, dstDevice);
AT_3D(dst.array, dstArray);
AT_3D(dst.reserved, reserved1);
AT_3D(dst.pitch, dstPitch);
AT_3D(dst.height, dstHeight);
AT_3D(width, WidthInBytes);
AT_3D(height, Height);
AT_3D(depth, Depth);
#endif
