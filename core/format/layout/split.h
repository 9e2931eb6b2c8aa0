/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.h - which box of a tensor the mesh position @at holds
 *
 * A placement is a list of steps, outermost first.  Each cuts an axis of what
 * the steps before it left, or the row-major order of it (flat, at the end).
 * Pure: no I/O, no allocation.
 */
#ifndef CK_LAYOUT_SPLIT_H
#define CK_LAYOUT_SPLIT_H

#include "core/base/err.h"
#include "core/base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum ck_lay_sizes {
	CK_LAY_EVEN, /* n equal parts, nothing left over */
	CK_LAY_CEIL, /* ceil(extent/n) each, the last ones less, or nothing */
	CK_LAY_BALANCED, /* the first extent%n parts one more than the others */
	CK_LAY_GIVEN,
};

struct ck_lay_split {
	enum ck_lay_sizes how;
	uint64_t nr;
	const uint64_t *given; /* nr */
};

/* Part @i of @extent; -EINVAL where it does not come out. */
int ck_lay_part(const struct ck_lay_split *s, uint64_t extent, uint64_t i,
		uint64_t *start, uint64_t *len, struct ck_err *err);

struct ck_lay_step {
	unsigned axis; /* of the mesh: which coordinate counts */
	const char *axis_name;
	bool flat;
	unsigned dim; /* not flat */
	struct ck_lay_split split;
	uint64_t padded; /* the first step of a dim: cut as if so long; or 0 */
};

struct ck_lay_place {
	uint64_t start[CK_MAX_RANK], len[CK_MAX_RANK];
	uint64_t full[CK_MAX_RANK]; /* as stored, with padding */
	bool flat;
	uint64_t lo, hi; /* flat: of the box's order */
	uint64_t stored; /* flat: elements, with padding */
};

/* The box of a tensor of @dims; at[step.axis] are known. */
int ck_lay_place(const struct ck_lay_step *steps, unsigned nr,
		 const uint64_t *dims, unsigned rank, const uint64_t *at,
		 struct ck_lay_place *out, struct ck_err *err);

#endif
