/* SPDX-License-Identifier: Apache-2.0 */
/* torch_leaf.c - paths of leaves, from the image or of their own */
#include "core/view/torch_leaf.h"

#include "core/base/check.h"

#include <stdlib.h>

unsigned ck_leaf_depth(const struct ck_image *img,
		       const struct ck_tree_leaf *leaf)
{
	return leaf->path ? leaf->depth : ck_nest_depth(img, leaf->ref);
}

struct ck_nest_part ck_leaf_part(const struct ck_image *img,
				 const struct ck_tree_leaf *leaf,
				 unsigned level)
{
	if (!leaf->path)
		return ck_nest_part(img, leaf->ref, level);
	return level < leaf->depth ? leaf->path[level] :
				     (struct ck_nest_part){ 0 };
}

unsigned ck_leaf_common(const struct ck_image *img,
			const struct ck_tree_leaf *a,
			const struct ck_tree_leaf *b)
{
	unsigned depth = CK_MIN(ck_leaf_depth(img, a), ck_leaf_depth(img, b));

	for (unsigned i = 0; i < depth; i++) {
		struct ck_nest_part pa = ck_leaf_part(img, a, i);
		struct ck_nest_part pb = ck_leaf_part(img, b, i);

		if (ck_nest_cmp_part(&pa, &pb))
			return i;
	}
	return depth;
}

int ck_leaf_cmp(const struct ck_image *img, const struct ck_tree_leaf *a,
		const struct ck_tree_leaf *b)
{
	unsigned da = ck_leaf_depth(img, a), db = ck_leaf_depth(img, b);
	unsigned at = ck_leaf_common(img, a, b);
	struct ck_nest_part x, y;

	if (at == da || at == db) {
		if (da != db)
			return da < db ? -1 : 1;
		return a->ref < b->ref ? -1 : a->ref > b->ref;
	}
	x = ck_leaf_part(img, a, at);
	y = ck_leaf_part(img, b, at);
	return ck_nest_cmp_part(&x, &y);
}

static int by_path(const void *a, const void *b, void *img)
{
	return ck_leaf_cmp(img, a, b);
}

void ck_leaves_sort(const struct ck_image *img, struct ck_tree_leaves *leaves)
{
	if (leaves->nr)
		qsort_r(leaves->v, leaves->nr, sizeof(*leaves->v), by_path,
			(void *)img);
}
