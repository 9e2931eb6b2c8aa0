/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_leaf.h - what model.pt's dicts and lists end in, and where
 *
 * A tensor or an object is where the catalog says that it was saved (nest.h),
 * or below other keys: torch_flat.h.
 */
#ifndef CK_TORCH_LEAF_H
#define CK_TORCH_LEAF_H

#include "core/view/nest.h"

struct ck_tree_leaf {
	uint32_t ref; /* a tensor, or an object: see nest.h; CK_NONE: neither */
	uint32_t storage; /* of a tensor */
	size_t at, len; /* of what is none: its pickle in the values */
	const struct ck_nest_part *path; /* @depth parts; NULL: the catalog's */
	unsigned depth;
};

/* In the order of ck_leaf_cmp(). */
struct ck_tree_leaves {
	struct ck_tree_leaf *v;
	size_t nr, room;
};

unsigned ck_leaf_depth(const struct ck_catalog *img,
		       const struct ck_tree_leaf *leaf);
struct ck_nest_part ck_leaf_part(const struct ck_catalog *img,
				 const struct ck_tree_leaf *leaf,
				 unsigned level);
/* Parts that the paths of both begin with. */
unsigned ck_leaf_common(const struct ck_catalog *img,
			const struct ck_tree_leaf *a,
			const struct ck_tree_leaf *b);
void ck_leaves_sort(const struct ck_catalog *img,
		    struct ck_tree_leaves *leaves);

#endif
