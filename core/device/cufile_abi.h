/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cufile_abi.h - what of cuFile, NVIDIA's GPUDirect Storage, is called, in
 * declarations of our own
 *
 * make check-cuda-abi compares them with cufile.h of CUDA 12 and 13, and looks for
 * each call in the libcufile.so.0 of both.
 */
#ifndef CK_CUFILE_ABI_H
#define CK_CUFILE_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
	CK_CUFILE_SUCCESS = 0,
	CK_CUFILE_BASE = 5000, /* codes are above it */
	CK_CUFILE_NOT_INITIALIZED = 5001,
	CK_CUFILE_PLATFORM = 5007,
	CK_CUFILE_IO_NOT_SUPPORTED = 5008,
	CK_CUFILE_CUDA_ERROR = 5011,
	CK_CUFILE_ALREADY_OPEN = 5026,
	CK_CUFILE_INTERNAL = 5030
};
enum { CK_CUFILE_FD = 1 }; /* of a handle */
enum { CK_CUFILE_ALLOW_COMPAT = 1 }; /* a parameter, and a bit of control */

#ifndef CK_CUFILE_TYPES /* who compares has cuFile's own */
struct ck_cufile_error {
	unsigned err, cu_err;
};
struct ck_cufile_descr {
	unsigned type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *ops;
};
struct ck_cufile_props {
	struct {
		unsigned major, minor;
		size_t poll_threshold, max_direct;
		unsigned status, control;
	} fs;
	unsigned features, device_cache, buffer_cache, device_pinned, batch,
		batch_timeout;
};
#define CK_CUFILE_ERROR struct ck_cufile_error
#define CK_CUFILE_DESCR struct ck_cufile_descr
#define CK_CUFILE_PROPS struct ck_cufile_props
#define CK_CUFILE_PARAM unsigned
#endif

/* F(result, name, arguments) */
#define CK_CUFILE_CALLS(F)                                         \
	F(CK_CUFILE_ERROR, cuFileGetVersion, (int *version))       \
	F(CK_CUFILE_ERROR, cuFileDriverOpen, (void))               \
	F(CK_CUFILE_ERROR, cuFileDriverGetProperties,              \
	  (CK_CUFILE_PROPS * props))                               \
	F(CK_CUFILE_ERROR, cuFileHandleRegister,                   \
	  (void **handle, CK_CUFILE_DESCR *descr))                 \
	F(void, cuFileHandleDeregister, (void *handle))            \
	F(CK_CUFILE_ERROR, cuFileBufRegister,                      \
	  (const void *mem, size_t len, int flags))                \
	F(CK_CUFILE_ERROR, cuFileBufDeregister, (const void *mem)) \
	F(ssize_t, cuFileRead,                                     \
	  (void *handle, void *mem, size_t len, off_t off, off_t mem_off))
/* From 1.14 on. */
#define CK_CUFILE_NEW_CALLS(F)                     \
	F(CK_CUFILE_ERROR, cuFileSetParameterBool, \
	  (CK_CUFILE_PARAM what, bool value))

#endif
