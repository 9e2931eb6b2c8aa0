/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_tree.h - the nested dicts and lists of a state dict, as pickle opcodes
 *
 *	{"model": {"w": tensor}, "optimizer": {"state": {...}, "param_groups":
 *	[{"lr": 0.1, "params": ["w"]}]}}
 *
 * Keys below "state" of an optimizer are what its param_groups call the
 * parameters: numbers, where they are numbers there.  Where they are names, both
 * can be shown by the numbers that torch.optim gives: their places, counted
 * through all groups.
 */
#ifndef CK_TORCH_TREE_H
#define CK_TORCH_TREE_H

#include "core/base/str.h"
#include "core/view/torch/torch_leaf.h"

#include <stdbool.h>

#define CK_TREE_DEPTH 64

struct ck_torch_tree {
	const struct ck_catalog *img;
	struct ck_tree_leaf *v; /* in the order of paths; none below another */
	uint32_t nr;
	const char *values; /* pickles */
	bool ids; /* number the parameters of optimizers */
};

/*
 * Appends the whole pickle to @out; memory: @out->failed.  Whether it has an
 * optimizer whose parameters are called by numbers.
 */
bool ck_torch_tree_pickle(const struct ck_torch_tree *t, struct ck_str *out);

#endif
