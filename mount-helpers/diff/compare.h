/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.h - two checkpoints, tensor by tensor
 *
 * All tensors that both have are read in pieces, by several threads; memory
 * does not grow with them.  Elements are compared as bits: 0.0 and -0.0 differ
 * (by 0), a NaN equals itself.
 */
#ifndef COMPARE_H
#define COMPARE_H

#include "core/ckpt/ckpt.h"
#include "core/geom/dtype.h"

enum compare_kind {
	COMPARE_EQUAL,
	COMPARE_DIFFERS, /* some elements do */
	COMPARE_DTYPE, /* the same numbers, as elements of another type */
	COMPARE_SHAPE, /* another shape: its elements were not compared */
	COMPARE_ABSENT, /* only one of them has it */
	COMPARE_UNREADABLE, /* bytes of one are torn, missing or damaged */
};

struct compare_pair {
	uint32_t a, b; /* tensors */
	enum compare_kind kind;
	bool by_digest; /* EQUAL without reading */
	uint64_t changed; /* elements */
	uint64_t nans; /* of those, which are NaN on one side only */
	double largest; /* of |a - b| over the others; of both parts of complex */
	uint64_t at; /* the first element where it is that, row-major */
	uint64_t first; /* the first of those that are changed */
	char *why; /* UNREADABLE: the line */
};

struct compare_in {
	struct ck_ckpt *a, *b;
	struct compare_pair *pair;
	size_t nr;
	/* Ten times a second, bytes of @total; may be NULL. */
	void (*tick)(void *ctx, uint64_t bytes, uint64_t total);
	void *ctx;
};

/*
 * Fills in the pairs whose kind is EQUAL and not by_digest (those without the
 * same shape are the caller's to say).  0 or -errno; whys are to free().
 */
int compare_run(const struct compare_in *in, struct ck_err *err);

/*
 * @nr elements at @a, of @a_dtype, with those at @b: adds to @p, whose
 * @at and @first count from @first.  For tests, too.
 */
void compare_elements(struct compare_pair *p, uint64_t first,
		      enum ck_dtype a_dtype, const void *a,
		      enum ck_dtype b_dtype, const void *b, uint64_t nr);

#endif
