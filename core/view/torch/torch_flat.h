/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_flat.h - optimizers that get_optimizer_state_dict() flattened, nested
 *
 *	state.NAME.exp_avg          ->  state / NAME / exp_avg
 *	param_groups.NAME.lr        ->  param_groups / 0 / lr
 *	                                param_groups / 0 / params: [NAME, ...]
 *
 * The flattened keys have each value of a group once for each parameter, in the
 * order of the groups and of the parameters in them: that in which torch.optim
 * numbers them.  Where one group ends they do not say: parameters that follow
 * each other with equal values are one.  What several ranks, or several
 * optimizers, added to one dict has no order of all; it stays as it is.
 *
 * One thread.
 */
#ifndef CK_TORCH_FLAT_H
#define CK_TORCH_FLAT_H

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/view/torch/torch_leaf.h"

struct ck_torch_flat {
	const struct ck_catalog *img;
	struct ck_tree_leaves *leaves; /* sorted, none below another */
	struct ck_str *values; /* their pickles */
	/* @len bytes of a tensor, all that it has; false: they cannot be had */
	bool (*read)(void *ctx, uint32_t tensor, void *buf, uint64_t len);
	void *ctx;
	/* found: */
	uint32_t nr, nr_groups; /* optimizers nested, groups of them */
	const char *why; /* an optimizer stays flat; NULL: none does */
	CK_VEC(struct ck_nest_part *) paths; /* of leaves, until freed */
};

/* Nests all that can be; 0 or -ENOMEM. */
int ck_torch_flat_nest(struct ck_torch_flat *f, struct ck_err *err);
/* Only when the leaves are not needed any more. */
void ck_torch_flat_free(struct ck_torch_flat *f);

#endif
