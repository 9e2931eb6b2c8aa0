/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - where a rank's piece lies in a tensor that MindSpore cut
 *
 * The shape of the whole follows from what is stored, by the strategy's layout.
 * Pure arithmetic on numbers that files gave.
 */
#ifndef CK_MINDSPORE_LAYOUT_H
#define CK_MINDSPORE_LAYOUT_H

#include "core/mesh/strategy.h"

enum ck_ms_how {
	CK_MS_CUT, /* as the layout says */
	CK_MS_UNSHARDED, /* but for the optimizer's sharding */
	CK_MS_WHOLE, /* the tensor itself, in spite of the layout */
};

struct ck_ms_piece {
	unsigned rank, grid_rank; /* grid_rank 0: the shape is the grid */
	uint64_t shape[CK_MAX_RANK], grid[CK_MAX_RANK + 2];
	uint64_t start[CK_MAX_RANK + 2], len[CK_MAX_RANK + 2];
	uint64_t slice; /* equal for copies, of one layout */
};

/*
 * The piece that device @at of the grid stored as @stored (rank values).
 * -EINVAL with the reason where that cannot be; -ERANGE where the layout can,
 * but is not of a tensor stored so.
 */
int ck_ms_place(const struct ck_strategy_layout *l, enum ck_ms_how how,
		const uint64_t *stored, unsigned rank, uint64_t at,
		struct ck_ms_piece *out, struct ck_err *why);

#endif
