/* SPDX-License-Identifier: Apache-2.0 */
/*
 * merged_set.h - the tensors that one merged file holds, and under which names
 *
 * Every tensor of the tree, optimizer state included, under its true name.  Of
 * weights that are kept twice (DeepSpeed) the copy that hf/ shows, and nothing
 * else.
 */
#ifndef CK_MERGED_SET_H
#define CK_MERGED_SET_H

#include "core/view/model_names.h"

struct ck_merged_set {
	struct ck_merged_tensor *v;
	uint32_t nr;
	struct ck_model_names names; /* of weights that are kept twice */
};

/*
 * What @refuses has no objection to; the rest is left out, as @v's problems
 * say.  Free @h in any case.
 */
int ck_merged_set_take(struct ck_merged_set *h, const struct ck_view *v,
		       const struct ck_opts *opts,
		       const char *(*refuses)(const struct ck_catalog *img,
					      uint32_t t, const char *name,
					      size_t name_len),
		       struct ck_err *err);
void ck_merged_set_free(struct ck_merged_set *h);

#endif
