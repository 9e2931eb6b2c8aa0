/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile.c - core/device/cufile_abi.h against a real cufile.h; only compiled, twice:
 * calls and numbers, and with -DLAYOUT the structs
 */
#include <cufile.h>

#ifndef LAYOUT
#define CK_CUFILE_TYPES
#define CK_CUFILE_ERROR CUfileError_t
#define CK_CUFILE_DESCR CUfileDescr_t
#define CK_CUFILE_PROPS CUfileDrvProps_t
#define CK_CUFILE_PARAM CUFileBoolConfigParameter_t
#endif
#include "core/device/cufile_abi.h"

#define IS(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

#ifndef LAYOUT
/* Each is there by this name, and to declare it as we do is no conflict. */
#define THERE(ret, name, args) extern __typeof__(name) *const there_##name;
#define AGAIN(ret, name, args) ret name args;
CK_CUFILE_CALLS(THERE)
CK_CUFILE_CALLS(AGAIN)
CK_CUFILE_NEW_CALLS(THERE)
CK_CUFILE_NEW_CALLS(AGAIN)
_Static_assert(sizeof(CUFileBoolConfigParameter_t) == sizeof(unsigned),
	       "CUFileBoolConfigParameter_t");

IS(CK_CUFILE_SUCCESS, CU_FILE_SUCCESS);
IS(CK_CUFILE_BASE, CUFILEOP_BASE_ERR);
IS(CK_CUFILE_NOT_INITIALIZED, CU_FILE_DRIVER_NOT_INITIALIZED);
IS(CK_CUFILE_PLATFORM, CU_FILE_PLATFORM_NOT_SUPPORTED);
IS(CK_CUFILE_IO_NOT_SUPPORTED, CU_FILE_IO_NOT_SUPPORTED);
IS(CK_CUFILE_CUDA_ERROR, CU_FILE_CUDA_DRIVER_ERROR);
IS(CK_CUFILE_ALREADY_OPEN, CU_FILE_DRIVER_ALREADY_OPEN);
IS(CK_CUFILE_INTERNAL, CU_FILE_INTERNAL_ERROR);
IS(CK_CUFILE_FD, CU_FILE_HANDLE_TYPE_OPAQUE_FD);
IS(CK_CUFILE_ALLOW_COMPAT, CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE);
IS(CK_CUFILE_ALLOW_COMPAT, CU_FILE_ALLOW_COMPAT_MODE);
#else
#define AT(ours, a, theirs, b)                      \
	IS(offsetof(ours, a), offsetof(theirs, b)); \
	IS(sizeof(((ours *)0)->a), sizeof(((theirs *)0)->b))
#define AT_ERROR(a, b) AT(struct ck_cufile_error, a, CUfileError_t, b)
#define AT_DESCR(a, b) AT(struct ck_cufile_descr, a, CUfileDescr_t, b)
#define AT_PROPS(a, b) AT(struct ck_cufile_props, a, CUfileDrvProps_t, b)

IS(sizeof(struct ck_cufile_error), sizeof(CUfileError_t));
IS(sizeof(struct ck_cufile_descr), sizeof(CUfileDescr_t));
IS(sizeof(struct ck_cufile_props), sizeof(CUfileDrvProps_t));
IS(sizeof(CUfileHandle_t), sizeof(void *));
AT_ERROR(err, err);
AT_ERROR(cu_err, cu_err);
AT_DESCR(type, type);
AT_DESCR(handle.fd, handle.fd);
AT_DESCR(handle.handle, handle.handle);
AT_DESCR(ops, fs_ops);
AT_PROPS(fs.major, nvfs.major_version);
AT_PROPS(fs.minor, nvfs.minor_version);
AT_PROPS(fs.poll_threshold, nvfs.poll_thresh_size);
AT_PROPS(fs.max_direct, nvfs.max_direct_io_size);
AT_PROPS(fs.status, nvfs.dstatusflags);
AT_PROPS(fs.control, nvfs.dcontrolflags);
AT_PROPS(features, fflags);
AT_PROPS(device_cache, max_device_cache_size);
AT_PROPS(buffer_cache, per_buffer_cache_size);
AT_PROPS(device_pinned, max_device_pinned_mem_size);
AT_PROPS(batch, max_batch_io_size);
AT_PROPS(batch_timeout, max_batch_io_timeout_msecs);
#endif
