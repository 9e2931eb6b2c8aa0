/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.h - where a rank's piece lies in a tensor that MindSpore cut
 *
 * A layout is a grid of devices, dev[0] x dev[1] x ..., in which the devices
 * of one pipeline stage are numbered row-major, and for each dimension of the
 * tensor the axes of that grid that cut it, the most significant first.  What
 * the devices of the axes that are left would hold alike may be cut further,
 * along dimension 0: optimizer sharding.
 *
 * Pure arithmetic on numbers that a file gave.
 */
#ifndef CK_MINDSPORE_LAYOUT_H
#define CK_MINDSPORE_LAYOUT_H

#include "core/base/err.h"
#include "core/base/limits.h"

#include <stdbool.h>
#include <stdint.h>

#define CK_MS_MAX_AXES 32

struct ck_ms_layout {
	uint64_t dev[CK_MS_MAX_AXES];
	uint64_t shape[CK_MS_MAX_AXES]; /* the full one, where it is known */
	int64_t shards; /* 0: none; -1: as many as there are copies */
	uint64_t field; /* not 0: rows of the devices interleave so often */
	const uint64_t *rows; /* nr_rows: of uneven slices, else NULL */
	uint32_t nr_rows, stage;
	uint8_t nr_dev, nr_map, nr_dims, shape_rank;
	uint8_t dim[CK_MS_MAX_AXES]; /* nr_map: ascending */
	int8_t axis[CK_MS_MAX_AXES]; /* from the left; -1: not cut */
	bool has_shape;
	/*
	 * As JSON has it: a dimension that several axes cut is several
	 * dimensions here, and in @shape.
	 */
	bool expanded;
};

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

/* Devices of the grid; false: it is none. */
bool ck_ms_devices(const struct ck_ms_layout *l, uint64_t *nr);
/* How many different slices there are without, and how many shards of each. */
int ck_ms_cuts(const struct ck_ms_layout *l, uint64_t *slices, uint64_t *shards,
	       struct ck_err *why);
/*
 * The piece that device @at of the grid stored as @stored (rank values).
 * -EINVAL with the reason where that cannot be; -ERANGE where the layout can,
 * but is not of a tensor stored so.
 */
int ck_ms_place(const struct ck_ms_layout *l, enum ck_ms_how how,
		const uint64_t *stored, unsigned rank, uint64_t at,
		struct ck_ms_piece *out, struct ck_err *why);

#endif
