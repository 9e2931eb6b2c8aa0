/* SPDX-License-Identifier: Apache-2.0 */
/*
 * moe.h - the optimizer of a mixture-of-experts model while it is read
 *
 * A vector is what the ranks that share it hold of one parameter group, one
 * partition after another: all ranks of a group of other parameters, and of a
 * group of experts those that have the same ones.  One thread.
 */
#ifndef CK_DEEPSPEED_MOE_H
#define CK_DEEPSPEED_MOE_H

#include "core/format/deepspeed/priv.h"

/* Who has partition number N of a vector; r is NULL: nobody that is there. */
struct ck_ds_member {
	const struct ck_ds_rank *r;
	uint32_t group; /* its number in that rank's file */
};

struct ck_ds_vec {
	const char *name; /* of the group, borrowed */
	unsigned nth; /* of the groups of this name in a file */
	bool moe;
	uint64_t ep, nr_ep; /* which of the experts: part @ep of @nr_ep */
	uint64_t count; /* of partitions */
	uint64_t size; /* elements of one; 0: not all are there */
	struct ck_ds_member *of;
	bool shuffled; /* its parameters are not in the order of the model */
};

struct ck_ds_vecs {
	CK_VEC(struct ck_ds_vec) v;
};

int ck_ds_vecs_find(struct ck_ds_vecs *vs, const struct ck_ds_zero *z,
		    struct ck_err *err);
void ck_ds_vecs_free(struct ck_ds_vecs *vs);
const struct ck_ds_flat *ck_ds_flat_of(const struct ck_ds_member *m,
				       uint32_t state);

#endif
