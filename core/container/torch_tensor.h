/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_tensor.h - a tensor as torch writes it into a pickle
 *
 * A call of one of torch's rebuild functions, maybe wrapped in Parameter or a
 * subclass, on a storage that is named by a persistent id:
 *
 *   _rebuild_tensor_v2(PERSID("storage", FloatStorage, "0", "cpu", 24),
 *                      offset, size, stride, requires_grad, hooks[, metadata])
 */
#ifndef CK_TORCH_TENSOR_H
#define CK_TORCH_TENSOR_H

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/geom/dtype.h"
#include "core/parse/pickle.h"

#include <stdint.h>

struct ck_torch_tensor {
	const char *key; /* of the storage; into the pickle's input */
	size_t key_len;
	uint64_t storage_len; /* bytes */
	enum ck_dtype dtype; /* as stored; its size is not 0 */
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
	int64_t stride[CK_MAX_RANK]; /* elements */
	uint64_t storage_offset; /* elements */
	bool conj, neg; /* the values are to be conjugated, negated */
};

/*
 * Says what tensor @v is: all its elements lie inside its storage, and its
 * size in bytes is below 2^62.  -EINVAL with a line where it is none, or one
 * without plain bytes (sparse, nested, on the meta device).
 */
int ck_torch_tensor_read(const struct ck_pickle *p, ck_pv v,
			 struct ck_torch_tensor *out, struct ck_err *err);
/*
 * What its stored bytes need, enum ck_xform; false: more than one thing, which
 * is not to be had.
 */
bool ck_torch_xform(const struct ck_torch_tensor *t, bool big_endian,
		    uint8_t *out);

#endif
