/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slices_make_priv.h - a plan while it is made: slices_make.c, slices_report.c
 */
#ifndef CK_SLICES_MAKE_PRIV_H
#define CK_SLICES_MAKE_PRIV_H

#include "core/base/vec.h"
#include "core/layout/write.h"
#include "core/slices/slices_plan_priv.h"

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
