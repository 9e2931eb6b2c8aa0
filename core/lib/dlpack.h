/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlpack.h - tensors as DLPack's header says them, of its version 1
 *
 * Declared here, for who builds the library need not have that header.
 */
#ifndef CK_DLPACK_H
#define CK_DLPACK_H

#include <stdint.h>

struct ck_dl_device {
	int32_t type; /* 1: the host; 3: the host, pinned */
	int32_t id;
};

struct ck_dl_dtype {
	uint8_t code, bits;
	uint16_t lanes;
};

struct DLTensor {
	void *data;
	struct ck_dl_device device;
	int32_t ndim;
	struct ck_dl_dtype dtype;
	int64_t *shape, *strides; /* strides: elements; NULL: row-major */
	uint64_t byte_offset;
};

struct DLManagedTensorVersioned {
	uint32_t major, minor;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensorVersioned *self);
	uint64_t flags; /* 1: read-only */
	struct DLTensor dl_tensor;
};

#endif
