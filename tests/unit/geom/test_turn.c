/* SPDX-License-Identifier: Apache-2.0 */
/* Random matrices of random runs of rows, against one element at a time. */
#include "core/geom/turn.h"

#include "core/base/check.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 40
#define MAX_COLS 30
#define MAX_SIZE 16

static uint64_t seed = 7;

static uint64_t below(uint64_t n)
{
	seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (seed >> 33) % n;
}

static unsigned char stored[MAX_ROWS * MAX_COLS * MAX_SIZE];
static unsigned char tile_bytes[MAX_ROWS * MAX_COLS * MAX_SIZE];
/* A reader's buffer begins anywhere. */
static unsigned char room[MAX_ROWS * MAX_COLS * MAX_SIZE + 1];
static unsigned char *const got = room + 1;
static struct ck_turn_run run[MAX_ROWS];

/* As one run, or where it fits as some whose rows are shown by turns. */
static void add_runs(struct ck_turn *t, uint64_t first, uint64_t nr,
		     uint64_t ways)
{
	if (nr % ways || t->nr_runs + ways + 2 > MAX_ROWS)
		ways = 1;
	for (uint64_t i = 0; i < ways; i++)
		run[t->nr_runs++] = (struct ck_turn_run){
			.first = first + i * (nr / ways),
			.nr = nr / ways,
			.at = t->rows + i,
			.step = ways,
			.ref = 7,
		};
	t->rows += nr;
}

/* Runs of a stored matrix of @rows rows, in any order, none empty at the end. */
static void random_turn(struct ck_turn *t, uint64_t rows, uint64_t cols)
{
	*t = (struct ck_turn){ .cols = cols, .run = run };
	for (uint64_t left = rows; left;) {
		uint64_t nr = below(left + 1);

		if (t->nr_runs + 2 == MAX_ROWS)
			nr = left;
		add_runs(t, below(rows - nr + 1), nr, 1 + below(3));
		left -= nr;
	}
}

/* The stored row of shown place @at. */
static uint64_t row_of(const struct ck_turn *t, uint64_t at)
{
	uint32_t i = 0;

	while (at < t->run[i].at || (at - t->run[i].at) % t->run[i].step ||
	       (at - t->run[i].at) / t->run[i].step >= t->run[i].nr)
		i++;
	return t->run[i].first + (at - t->run[i].at) / t->run[i].step;
}

static void read_tile(const struct ck_turn *t, const struct ck_turn_tile *tile,
		      unsigned size, uint64_t rows)
{
	cr_assert_leq(tile->row + tile->nr_rows, rows);
	cr_assert_leq(tile->col + tile->nr_cols, t->cols);
	for (uint64_t r = 0; r < tile->nr_rows; r++)
		memcpy(tile_bytes + r * tile->nr_cols * size,
		       stored + ((tile->row + r) * t->cols + tile->col) * size,
		       tile->nr_cols * size);
}

static void check(const struct ck_turn *t, unsigned size, uint64_t rows,
		  uint64_t first, uint64_t nr, uint64_t max)
{
	struct ck_turn_walk w;
	struct ck_turn_tile tile;
	uint64_t sum = 0;

	memset(room, 0xee, sizeof(room));
	ck_turn_begin(&w, t, first, nr, max);
	while (ck_turn_next(&w, &tile)) {
		cr_assert_leq(tile.nr_rows * tile.nr_cols, CK_MAX(max, 1u));
		cr_assert_eq(tile.ref, 7);
		sum += tile.nr_rows * tile.nr_cols;
		read_tile(t, &tile, size, rows);
		ck_turn_copy(t, &tile, size, tile_bytes, got);
	}
	cr_assert_eq(sum, nr);
	cr_assert(ck_turn_ended(&w));
	for (uint64_t e = 0; e < nr; e++) {
		uint64_t row = row_of(t, (first + e) % t->rows);
		uint64_t col = (first + e) / t->rows;

		cr_assert_eq(memcmp(got + e * size,
				    stored + (row * t->cols + col) * size,
				    size),
			     0);
	}
	for (uint64_t b = nr * size; b < sizeof(room) - 1; b++)
		cr_assert_eq(got[b], 0xee);
}

Test(turn, as_one_element_at_a_time)
{
	static const unsigned sizes[] = { 1, 2, 4, 8, 16 };

	for (size_t b = 0; b < sizeof(stored); b++)
		stored[b] = (unsigned char)below(256);
	for (unsigned i = 0; i < 4000; i++) {
		uint64_t rows = 1 + below(MAX_ROWS - 2);
		uint64_t cols = 1 + below(MAX_COLS), first;
		struct ck_turn t;

		random_turn(&t, rows, cols);
		first = below(t.rows * cols);
		check(&t, sizes[below(5)], rows, first,
		      below(t.rows * cols - first + 1), 1 + below(200));
	}
}
