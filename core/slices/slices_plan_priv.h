/* SPDX-License-Identifier: Apache-2.0 */
/* slices_plan_priv.h - between slices_plan.c, slices_make.c and slices_report.c */
#ifndef CK_SLICES_PLAN_PRIV_H
#define CK_SLICES_PLAN_PRIV_H

#include "core/base/vec.h"
#include "core/layout/write.h"
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

/* ---- a plan while it is made ---- */

struct ck_slice_plan_held {
	uint32_t pos, piece;
};

struct ck_slice_plan_making {
	struct ck_layout_out lay;
	CK_VEC(struct ck_slice_plan_file) files;
	CK_VEC(struct ck_slice_plan_tensor) tensors;
	CK_VEC(struct ck_slice_plan_piece) pieces;
	CK_VEC(struct ck_slice_plan_held) held;
	CK_VEC(uint64_t) dims;
	struct ck_str strs;
	CK_VEC(uint32_t) first; /* by tensor: its pieces, as they were made */
	uint32_t *to; /* piece as it was made -> by file and offset */
	uint64_t nr_ranks;
	uint32_t text; /* string: the layout for readers */
};

static inline const struct ck_layout_target *ck_slice_plan_target(
	const struct ck_slice_plan_making *m, uint32_t t)
{
	return &m->lay.targets.v[t];
}

/* Copies; running out of memory is remembered in m->strs. */
uint32_t ck_slice_plan_put_str(struct ck_slice_plan_making *m, const char *s,
			       size_t len);
/* The text of the layout, as m->text. */
int ck_slice_plan_report_layout(struct ck_slice_plan_making *m,
				struct ck_err *err);

#endif
