/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_offsets.h - where in a view's file each of its tensors is
 *
 * Found by keys: tensors of which a write to one may change another have the
 * same (ck_ckpt_bytes_key()).
 *
 * Threads: one at a time.
 */
#ifndef FS_TENSOR_OFFSETS_H
#define FS_TENSOR_OFFSETS_H

#include "core/base/vec.h"
#include "core/view/view.h"

struct fs_tensor_offset {
	uint32_t key, tensor;
	uint64_t off; /* of its first byte in the file */
};

struct fs_tensor_offsets {
	bool made;
	bool unclear; /* the file shows bytes in a way that is not known here */
	CK_VEC(struct fs_tensor_offset) v; /* sorted by key, then tensor */
};

/* Of file @nr of @v, once; @p is all zeros before. */
void fs_tensor_offsets_make(struct fs_tensor_offsets *p,
			    const struct ck_view *v, uint32_t nr);
void fs_tensor_offsets_free(struct fs_tensor_offsets *p);
/* The first of @key; what is of it follows.  NULL: none. */
const struct fs_tensor_offset *fs_tensor_offsets_find(
	const struct fs_tensor_offsets *p, uint32_t key);
/* The one after @at, of the same key; or NULL. */
const struct fs_tensor_offset *fs_tensor_offsets_next(
	const struct fs_tensor_offsets *p, const struct fs_tensor_offset *at);

#endif
