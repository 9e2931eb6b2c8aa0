/* SPDX-License-Identifier: Apache-2.0 */
/* slices_plan_priv.h - between slices_plan.c and slices_make.c */
#ifndef CK_SLICES_PLAN_PRIV_H
#define CK_SLICES_PLAN_PRIV_H

#include "core/slices/slices_plan.h"

#define CK_SLICE_PLAN_MAGIC "unshplan"
#define CK_SLICE_PLAN_VERSION 2
#define CK_SLICE_PLAN_MAX_ENTRIES (UINT32_C(1) << 24)
#define CK_SLICE_PLAN_MAX_BYTES (UINT64_C(4) << 30)

/* Then the tables in the order of these numbers, each 8-byte aligned. */
struct ck_slice_plan_head {
	char magic[8];
	uint64_t version, len, id; /* id: XXH3-64 of all behind it */
	uint64_t nr_files, nr_tensors, nr_pieces, nr_ranks, nr_dims, nr_entries,
		strs_len;
	uint64_t layout; /* string */
	uint64_t dcp; /* 0 or 1 */
};
#define CK_SLICE_PLAN_HASHED offsetof(struct ck_slice_plan_head, nr_files)

/*
 * Why files of the format cannot hold pieces of @rank dimensions of that tensor;
 * NULL: they can.
 */
const char *ck_slice_plan_refuses(uint8_t dtype, unsigned rank,
				  const char *name, bool dcp);

#endif
