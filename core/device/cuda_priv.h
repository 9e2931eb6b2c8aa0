/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_priv.h - the driver of CUDA, as it was found
 *
 *	cuda.c       the library, devices, streams, events; files, by cuFile
 *	cuda_copy.c  copies, as calls of the driver
 */
#ifndef CK_CUDA_PRIV_H
#define CK_CUDA_PRIV_H

#include "core/device/cuda_abi.h"
#include "core/device/device.h"

#define CK_CU_FIELD(name, args) unsigned(*name) args;

/* Once a device is open. */
extern struct ck_cuda_calls {
	CK_CU_CALLS(CK_CU_FIELD)
	/* Or NULL: */
	CK_CU_BATCH_12(CK_CU_FIELD)
	CK_CU_BATCH_13(CK_CU_FIELD)
} ck_cu;

/* Queues all of them, in the current context; CUDA's code. */
unsigned ck_cuda_copy(const struct ck_device_copy *copy, size_t nr,
		      enum ck_device_way way, void *stream);

#endif
