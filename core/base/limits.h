/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h - what is refused before anything is allocated for it
 *
 * Every file of a checkpoint is untrusted input.  docs/errors.md lists these
 * for users.
 */
#ifndef CK_LIMITS_H
#define CK_LIMITS_H

#include <stdint.h>

#define CK_MAX_RANK 64 /* dimensions of a tensor (PyTorch's and NumPy's own) */
#define CK_MAX_TENSORS (UINT32_C(4) << 20) /* a checkpoint */
#define CK_MAX_CHUNKS (UINT32_C(64) << 20) /* a checkpoint */
#define CK_MAX_NAME (UINT32_C(64) << 10) /* bytes of a raw tensor name */
#define CK_MAX_HEADER UINT64_C(100000000) /* bytes; safetensors' own limit */
#define CK_MAX_INDEX (UINT64_C(2) << 30) /* bytes of an index file */
#define CK_MAX_ITEM_META (UINT64_C(64) << 20) /* data.pkl of one item */
/* what an item may unpack to beyond the elements that are wanted of it */
#define CK_MAX_ITEM_REST (UINT64_C(1) << 20)
#define CK_MAX_JSON_DEPTH 64
#define CK_MAX_PICKLE_DEPTH 128 /* open marks */
#define CK_MAX_PICKLE_STACK (UINT32_C(1) << 20)
#define CK_MAX_PICKLE_STR (UINT32_C(64) << 10) /* keys and names */
#define CK_MAX_ZIP_ENTRIES (UINT32_C(4) << 20)

#endif
