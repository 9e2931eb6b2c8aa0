/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn.c - stretches of a transposed matrix, as tiles of the stored one
 *
 * A band is either a part of one shown row, or as many whole ones as there
 * are, for wide tiles are few reads; it is walked along the stored rows.
 */
#include "core/geom/turn.h"

#include "core/base/check.h"

#include <string.h>

void ck_turn_begin(struct ck_turn_walk *w, const struct ck_turn *t,
		   uint64_t first, uint64_t nr, uint64_t max)
{
	*w = (struct ck_turn_walk){ .t = t,
				    .pos = first,
				    .begin = first,
				    .end = first + nr,
				    .left = nr,
				    .run = t->nr_runs,
				    .max = CK_MAX(max, UINT64_C(1)) };
}

static void next_band(struct ck_turn_walk *w)
{
	uint64_t rows = w->t->rows, left = w->end - w->pos;

	w->col = w->pos / rows;
	w->at = w->pos % rows;
	w->dst = w->pos - w->begin - w->at;
	w->run = 0;
	w->row = 0;
	if (w->at || left < rows) {
		w->nr_cols = 1;
		w->at_end = CK_MIN(rows, w->at + left);
		w->pos += w->at_end - w->at;
	} else {
		w->nr_cols = CK_MIN(left / rows, w->max);
		w->at_end = rows;
		w->pos += w->nr_cols * rows;
	}
}

/* The first row of @run whose place is not before @at. */
static uint64_t row_from(const struct ck_turn_run *run, uint64_t at)
{
	return run->at >= at ? 0 : CK_DIV_UP(at - run->at, run->step);
}

bool ck_turn_next(struct ck_turn_walk *w, struct ck_turn_tile *out)
{
	const struct ck_turn_run *run;
	uint64_t end;

	for (;; w->run++, w->row = 0) {
		if (w->run == w->t->nr_runs) {
			if (w->pos == w->end)
				return false;
			next_band(w);
		}
		run = &w->t->run[w->run];
		end = CK_MIN(run->nr, row_from(run, w->at_end));
		w->row = CK_MAX(w->row, row_from(run, w->at));
		if (w->row < end)
			break;
	}
	out->nr_rows =
		CK_MIN(end - w->row, CK_MAX(w->max / w->nr_cols, UINT64_C(1)));
	out->ref = run->ref;
	out->row = run->first + w->row;
	out->col = w->col;
	out->nr_cols = w->nr_cols;
	out->dst = w->dst + run->at + w->row * run->step;
	out->step = run->step;
	w->row += out->nr_rows;
	w->left -= out->nr_rows * out->nr_cols;
	return true;
}

/*
 * Inlined for each size; eight rows at a time share cache lines.  A reader's
 * buffer begins at any byte, so elements are not stored as what they are.
 */
static inline __attribute__((always_inline)) void turn(
	const struct ck_turn *t, const struct ck_turn_tile *tile, size_t size,
	uint64_t step, const char *from, char *to)
{
	uint64_t nr_rows = tile->nr_rows, nr_cols = tile->nr_cols;

	to += tile->dst * size;
	for (uint64_t r = 0; r < nr_rows; r += 8) {
		uint64_t end = CK_MIN(r + 8, nr_rows);

		for (uint64_t c = 0; c < nr_cols; c++)
			for (uint64_t i = r; i < end; i++)
				memcpy(to + (c * t->rows + i * step) * size,
				       from + (i * nr_cols + c) * size, size);
	}
}

void ck_turn_copy(const struct ck_turn *t, const struct ck_turn_tile *tile,
		  unsigned size, const void *in, void *out)
{
	switch (tile->step == 1 ? size : 0) {
	case 1:
		turn(t, tile, 1, 1, in, out);
		return;
	case 2:
		turn(t, tile, 2, 1, in, out);
		return;
	case 4:
		turn(t, tile, 4, 1, in, out);
		return;
	case 8:
		turn(t, tile, 8, 1, in, out);
		return;
	default:
		turn(t, tile, size, tile->step, in, out);
	}
}
