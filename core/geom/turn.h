/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn.h - a matrix shown transposed, tile by tile
 *
 *	stored: runs of rows, cols columns      shown: cols rows, each of the
 *	  [run 0: r0 r1 r2          ]             stored rows' elements, run
 *	  [run 1: r3 r4             ]             after run: r0 r1 r2 r3 r4,
 *	                                          or in turn: r0 r3 r1 r4 r2
 *
 * A stretch of what is shown is read as boxes of what is stored, as wide as
 * memory allows, and each is turned on its way.  Pure; any thread.
 */
#ifndef CK_TURN_H
#define CK_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows [first, first + nr) of what the caller calls @ref: in each shown row the
   elements at, at + step and so on. */
struct ck_turn_run {
	uint64_t first, nr, at, step;
	uint32_t ref;
};

struct ck_turn {
	uint64_t rows, cols; /* rows: of all runs */
	const struct ck_turn_run *run;
	uint32_t nr_runs;
};

/* Stored elements, and where the first of them goes. */
struct ck_turn_tile {
	uint64_t row, nr_rows, col, nr_cols;
	/*
	 * Elements from the beginning of the stretch; the one at (r, c) of the
	 * tile goes to dst + c * rows + r * step.
	 */
	uint64_t dst, step;
	uint32_t ref;
};

struct ck_turn_walk {
	const struct ck_turn *t;
	uint64_t pos, end, begin; /* elements of what is shown */
	uint64_t max; /* elements of a tile */
	uint64_t left; /* elements that no tile had yet */
	/* the band of shown rows that it is in: */
	uint64_t col, nr_cols, at, at_end, dst;
	uint32_t run;
	uint64_t row; /* of the run: the next */
};

/* Elements [first, first + nr) of what is shown, in tiles of up to @max. */
void ck_turn_begin(struct ck_turn_walk *w, const struct ck_turn *t,
		   uint64_t first, uint64_t nr, uint64_t max);
/* False: it is at its end, or, not ck_turn_ended(), the runs are too short. */
bool ck_turn_next(struct ck_turn_walk *w, struct ck_turn_tile *out);
static inline bool ck_turn_ended(const struct ck_turn_walk *w)
{
	return !w->left;
}
/* A tile's elements of @size bytes, row-major in @in, to where they go. */
void ck_turn_copy(const struct ck_turn *t, const struct ck_turn_tile *tile,
		  unsigned size, const void *in, void *out);

#endif
