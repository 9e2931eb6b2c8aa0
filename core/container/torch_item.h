/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_item.h - where the payload of one torch.save archive is
 *
 * A DCP item is a complete torch.save zip of one tensor.  Reads its end
 * record, central directory, local headers and data.pkl (about 2 KiB), never
 * its payload; follows the limits of base/limits.h; runs nothing.
 */
#ifndef CK_TORCH_ITEM_H
#define CK_TORCH_ITEM_H

#include "core/base/err.h"
#include "core/geom/dtype.h"
#include "core/root/source.h"

#include <stdint.h>

struct ck_torch_item {
	uint64_t payload_off, payload_len; /* in @src, not in the item */
	enum ck_dtype dtype; /* as stored */
	unsigned rank;
	uint64_t shape[64];
	int64_t stride[64]; /* elements */
	uint64_t storage_offset; /* elements */
	uint8_t xform; /* conj, neg, byte swap; enum ck_xform */
};

/*
 * The item is bytes [off, off+len) of @src.  -EINVAL with a line where it is
 * no archive of exactly one tensor, where its strides reach outside the
 * storage, or where storage and record differ in size.
 */
int ck_torch_item_read(struct ck_source *src, uint64_t off, uint64_t len,
		       struct ck_torch_item *out, struct ck_err *err);

#endif
