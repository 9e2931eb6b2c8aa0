/* SPDX-License-Identifier: Apache-2.0 */
/* torch_leaf.c - paths of leaves, from the catalog or of their own */
#include "core/view/torch/torch_leaf.h"

#include <stdlib.h>

unsigned ck_leaf_depth(const struct ck_catalog *img,
		       const struct ck_tree_leaf *leaf)
{
	return leaf->path ? leaf->depth : ck_nest_depth(img, leaf->ref);
}

struct ck_nest_part ck_leaf_part(const struct ck_catalog *img,
				 const struct ck_tree_leaf *leaf,
				 unsigned level)
{
	if (!leaf->path)
		return ck_nest_part(img, leaf->ref, level);
	return level < leaf->depth ? leaf->path[level] :
				     (struct ck_nest_part){ 0 };
}

static struct ck_nest_path path_of(const struct ck_catalog *img,
				   const struct ck_tree_leaf *leaf)
{
	return leaf->path ? (struct ck_nest_path){ .own = leaf->path,
						   .depth = leaf->depth } :
			    ck_nest_path(img, leaf->ref);
}

unsigned ck_leaf_common(const struct ck_catalog *img,
			const struct ck_tree_leaf *a,
			const struct ck_tree_leaf *b)
{
	struct ck_nest_path pa = path_of(img, a), pb = path_of(img, b);

	return ck_nest_paths_common(&pa, &pb);
}

static int cmp_leaf(const struct ck_catalog *img, const struct ck_tree_leaf *a,
		    const struct ck_tree_leaf *b)
{
	struct ck_nest_path pa = path_of(img, a), pb = path_of(img, b);
	int cmp = ck_nest_paths_cmp(&pa, &pb);

	return cmp ? cmp : (a->ref > b->ref) - (a->ref < b->ref);
}

static int by_path(const void *a, const void *b, void *img)
{
	return cmp_leaf(img, a, b);
}

void ck_leaves_sort(const struct ck_catalog *img, struct ck_tree_leaves *leaves)
{
	if (leaves->nr)
		qsort_r(leaves->v, leaves->nr, sizeof(*leaves->v), by_path,
			(void *)img);
}
