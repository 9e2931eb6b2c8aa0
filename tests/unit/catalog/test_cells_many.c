/* SPDX-License-Identifier: Apache-2.0 */
/* Random tensors, cut and read back against a map of every element. */
#include "tests/unit/catalog/kit.h"

#include "core/geom/cursor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ELEMS = 4096, ROUNDS = 300 };

static uint64_t seed;

static uint64_t rnd(uint64_t below)
{
	seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (seed >> 33) % below;
}

struct world {
	struct kit k;
	unsigned rank;
	uint64_t shape[4], volume;
	unsigned char covered[MAX_ELEMS];
	bool overlap;
	bool overlap_ok;
	uint64_t at; /* where the next part lies */
};

static void new_world(struct world *w)
{
	*w = (struct world){ .k = kit_new(), .volume = 1 };
	w->rank = (unsigned)rnd(5);
	for (unsigned d = 0; d < w->rank; d++) {
		w->shape[d] = 1 + rnd(8);
		w->volume *= w->shape[d];
	}
}

/* Marks the elements of a box; true: one of them was marked before. */
static bool mark(struct world *w, const uint64_t *start, const uint64_t *len)
{
	uint64_t at[4] = { 0 };
	bool twice = false;

	for (;;) {
		uint64_t i = 0;
		unsigned d;

		for (d = 0; d < w->rank; d++)
			i = i * w->shape[d] + start[d] + at[d];
		twice |= w->covered[i];
		w->covered[i] = 1;
		for (d = w->rank; d-- > 0;) {
			if (++at[d] < len[d])
				break;
			at[d] = 0;
		}
		if (d == UINT32_MAX)
			return twice;
	}
}

static bool mark_flat(struct world *w, uint64_t lo, uint64_t hi)
{
	bool twice = false;

	for (uint64_t i = lo; i < hi; i++) {
		twice |= w->covered[i];
		w->covered[i] = 1;
	}
	return twice;
}

static void add_random(struct world *w, uint32_t src, bool flats)
{
	uint64_t start[4], len[4], flat[2];
	struct ck_part p = kit_part("w", src);

	for (unsigned d = 0; d < w->rank; d++) {
		start[d] = rnd(w->shape[d]);
		len[d] = 1 + rnd(w->shape[d] - start[d]);
	}
	p.rank = w->rank;
	p.shape = w->shape;
	p.overlap_ok = w->overlap_ok;
	p.off = w->at;
	w->at += w->volume * 4;
	if (flats) {
		flat[0] = rnd(w->volume);
		flat[1] = flat[0] + 1 + rnd(w->volume - flat[0]);
		p.flat = flat;
		w->overlap |= mark_flat(w, flat[0], flat[1]);
	} else {
		p.start = start;
		p.len = len;
		w->overlap |= mark(w, start, len);
	}
	kit_add(&w->k, &p);
}

/* Each element is in as many cells as the map says. */
static void check_cells(struct world *w, const struct ck_tensor *t)
{
	const struct ck_catalog *img = &w->k.img;
	uint64_t covered = 0, hole = w->volume;
	struct ck_cursor cur;
	struct ck_seg seg;

	for (uint64_t i = 0; i < w->volume; i++) {
		covered += w->covered[i];
		if (!w->covered[i] && hole == w->volume)
			hole = i;
	}
	cr_assert_eq(t->covered, covered);
	cr_assert_eq(t->state, covered < w->volume ? CK_MISSING : CK_OK);
	cr_assert_eq(ck_tensor_first_hole(img, t), hole * 4);
	ck_cursor_init(&cur, img, NULL, t, 0, t->size);
	covered = 0;
	while (ck_cursor_next(&cur, &seg))
		covered += seg.nbytes / 4;
	cr_assert_eq(t->covered, covered);
}

static void check_hole(struct world *w)
{
	const char *first;
	uint64_t lo = 0, hi, said_lo, said_hi;

	while (lo < w->volume && w->covered[lo])
		lo++;
	if (lo == w->volume)
		return;
	for (hi = lo; hi < w->volume && !w->covered[hi];)
		hi++;
	first = strstr(kit_reason(&w->k, "w"), "first are [");
	cr_assert_not_null(first);
	cr_assert_eq(sscanf(first, "first are [%" SCNu64 ", %" SCNu64 ")",
			    &said_lo, &said_hi),
		     2);
	cr_assert_eq(said_lo, lo);
	cr_assert(said_hi > lo && said_hi <= hi,
		  "[%" PRIu64 ", %" PRIu64 ") in [%" PRIu64 ", %" PRIu64 ")",
		  said_lo, said_hi, lo, hi);
}

static void round_of(unsigned parts, bool overlap_ok, bool flats)
{
	struct world w;
	uint32_t src;

	new_world(&w);
	w.overlap_ok = overlap_ok;
	src = kit_file(&w.k, "a", 1 << 26);
	for (unsigned i = 0; i < parts; i++)
		add_random(&w, src, flats);
	if (kit_find(&w.k, "w") == CK_NONE) {
		cr_assert(w.overlap && !overlap_ok);
		cr_assert(strstr(kit_reason(&w.k, "w"), "overlap"));
	} else {
		check_cells(&w, kit_tensor(&w.k, "w"));
		check_hole(&w);
	}
	kit_free(&w.k);
}

Test(catalog_cells_many, boxes)
{
	seed = 1;
	for (unsigned i = 0; i < ROUNDS; i++)
		round_of(1 + (unsigned)rnd(3), false, false);
}

Test(catalog_cells_many, flats)
{
	seed = 2;
	for (unsigned i = 0; i < ROUNDS; i++)
		round_of(1 + (unsigned)rnd(3), false, true);
}

Test(catalog_cells_many, cut)
{
	seed = 3;
	for (unsigned i = 0; i < ROUNDS; i++)
		round_of(1 + (unsigned)rnd(12), true, false);
}

/* Enough cells for a tree; one of them moved onto its neighbour. */
static void mesh(bool moved, uint64_t lost)
{
	struct kit k = kit_new();
	uint32_t src = kit_file(&k, "a", 1 << 30);
	const uint64_t n = 37;
	struct ck_part p = kit_part("w", src);

	p.shape = DIMS(n * 3, n * 2);
	p.len = DIMS(3, 2);
	for (uint64_t i = 0; i < n * n; i++) {
		uint64_t row = i * 7 % n, col = i * 7 / n % n;
		uint64_t start[2] = { row * 3, col * 2 };

		if (row * n + col == lost)
			continue;
		if (moved && row == 20 && col == 11)
			start[1]++;
		p.start = start;
		p.off = i * 24;
		kit_add(&k, &p);
	}
	if (moved) {
		cr_expect_eq(kit_find(&k, "w"), CK_NONE);
		cr_expect(strstr(kit_reason(&k, "w"), "[60:63, 23:25] of a") ||
				  strstr(kit_reason(&k, "w"),
					 "[60:63, 24:26] of a"),
			  "%s", kit_reason(&k, "w"));
	} else {
		const struct ck_tensor *t = kit_tensor(&k, "w");

		cr_expect_eq(t->nr, n * n - (lost < n * n));
		cr_expect_neq(t->index, CK_NONE);
		cr_expect_eq(t->state, lost < n * n ? CK_MISSING : CK_OK);
		if (lost < n * n)
			cr_expect_eq(ck_tensor_first_hole(&k.img, t),
				     4 * (lost / n * 3 * n * 2 + lost % n * 2));
	}
	kit_free(&k);
}

Test(catalog_cells_many, mesh)
{
	mesh(false, UINT64_MAX);
}

Test(catalog_cells_many, mesh_with_a_hole)
{
	mesh(false, 700);
}

Test(catalog_cells_many, mesh_with_an_overlap)
{
	mesh(true, UINT64_MAX);
}

/*
 * Flat ranges whose bounds all meet and which have no element in common: the
 * comparisons would be 10^10.
 */
Test(catalog_cells_many, hostile_interleaving_ends, .timeout = 60)
{
	struct kit k = kit_new();
	uint32_t src = kit_file(&k, "a", 1 << 26);
	const uint64_t n = 100000;
	struct ck_part p = kit_part("w", src);
	uint64_t start[2] = { 0, 0 }, len[2] = { 2, 0 }, flat[2];

	p.shape = DIMS(2, 2 * n);
	p.start = start;
	p.len = len;
	p.flat = flat;
	for (uint64_t i = 0; i < n; i++) {
		/* the last of the first row and the first of the second */
		start[1] = i;
		len[1] = 2 * n - 2 * i;
		flat[0] = len[1] - 1;
		flat[1] = len[1] + 1;
		kit_add(&k, &p);
	}
	cr_expect_eq(kit_find(&k, "w"), CK_NONE);
	cr_expect_str_eq(kit_reason(&k, "w"),
			 "its parts interleave in too many ways to check");
	kit_free(&k);
}
