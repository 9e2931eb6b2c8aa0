/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw.c - pieces cut along at most two axes, as boxes of characters
 *
 * The cuts along the two axes make a raster; a line is drawn between two
 * fields of it that belong to different pieces.
 */
#include "mount-helpers/inspect/inspect.h"

#include "mount-helpers/text.h"

#include "core/base/check.h"
#include "core/geom/range.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_ROWS 64
#define MAX_COLS 24
#define MAX_COPIES 4 /* names of copies in one box; more are counted */
#define HOLE (-1)
#define GAP 2 /* blanks around a label */

/* One axis of the picture: the places where something is cut. */
struct cuts {
	bool used; /* else it is one field */
	unsigned axis; /* of the grid */
	uint64_t at[MAX_ROWS + 1];
	unsigned nr; /* fields */
};

struct picture {
	const struct ck_catalog *img;
	const struct ck_tensor *t;
	const struct labels *labels;
	bool flat; /* rows are stretches of the row-major order */
	struct cuts row, col;
	int owner[MAX_ROWS][MAX_COLS];
	unsigned width[MAX_COLS];
	unsigned gutter; /* for the numbers of the rows */
	struct ck_str *out;
};

static const struct ck_chunk *cell(const struct picture *p, int i)
{
	return &p->img->chunks[p->t->first + (uint32_t)i];
}

/* What a piece covers of the axis of @cuts. */
static void extent(const struct picture *p, int i, const struct cuts *cuts,
		   uint64_t *lo, uint64_t *hi)
{
	const struct ck_chunk *c = cell(p, i);
	const uint64_t *corner = p->img->dims + c->corner;
	const uint64_t *len = p->img->dims + p->img->layouts[c->layout].len;

	if (p->flat) {
		*lo = corner[p->t->grid_rank];
		*hi = corner[p->t->grid_rank + 1];
	} else {
		*lo = corner[cuts->axis];
		*hi = *lo + len[cuts->axis];
	}
}

/* ---- what is cut where ---- */

static bool add_cut(struct cuts *c, unsigned max, uint64_t at)
{
	unsigned i = 0;

	while (i <= c->nr && c->at[i] < at)
		i++;
	if (i <= c->nr && c->at[i] == at)
		return true;
	if (c->nr == max)
		return false;
	memmove(c->at + i + 1, c->at + i, (c->nr + 1 - i) * sizeof(c->at[0]));
	c->at[i] = at;
	c->nr++;
	return true;
}

static bool find_cuts(const struct picture *p, struct cuts *c, unsigned max,
		      uint64_t end)
{
	uint64_t lo, hi;

	c->used = true;
	c->at[0] = 0;
	c->nr = 0;
	if (!add_cut(c, max, end))
		return false;
	for (uint32_t i = 0; i < p->t->nr; i++) {
		extent(p, (int)i, c, &lo, &hi);
		if (lo < hi && (!add_cut(c, max, lo) || !add_cut(c, max, hi)))
			return false;
	}
	return true;
}

/* Whether all pieces are stretches of the whole tensor, or none is flat. */
static bool one_kind(struct picture *p)
{
	const uint64_t *dims = p->img->dims, *grid = dims + p->t->grid;
	unsigned rank = p->t->grid_rank;
	uint32_t flat = 0;

	for (uint32_t i = 0; i < p->t->nr; i++) {
		const struct ck_chunk *c = cell(p, (int)i);
		const struct ck_layout *l = &p->img->layouts[c->layout];

		if (!(l->flags & CK_LAYOUT_FLAT))
			continue;
		flat++;
		if (memcmp(dims + l->len, grid, rank * sizeof(*grid)))
			return false;
	}
	p->flat = flat > 0;
	return flat == 0 || flat == p->t->nr;
}

static bool is_cut(const struct picture *p, unsigned axis)
{
	const struct cuts c = { .axis = axis };
	uint64_t lo, hi, whole = p->img->dims[p->t->grid + axis];

	for (uint32_t i = 0; i < p->t->nr; i++) {
		extent(p, (int)i, &c, &lo, &hi);
		if (lo != 0 || hi != whole)
			return true;
	}
	return false;
}

/* Which axes become rows and columns; false: too many of them. */
static bool choose_axes(struct picture *p, bool columns)
{
	const uint64_t *grid = p->img->dims + p->t->grid;
	unsigned axes[2] = { 0 }, nr = 0;

	for (unsigned d = 0; d < p->t->grid_rank; d++) {
		if (!is_cut(p, d))
			continue;
		if (nr == 2)
			return false;
		axes[nr++] = d;
	}
	p->row.axis = axes[0];
	p->col.axis = axes[nr == 2];
	/* One cut lies across where the axis does: rows for the first. */
	if (nr == 1 && axes[0] > 0 && columns)
		return find_cuts(p, &p->col, MAX_COLS, grid[axes[0]]);
	if (nr > 0 && !find_cuts(p, &p->row, MAX_ROWS, grid[axes[0]]))
		return false;
	return nr < 2 || find_cuts(p, &p->col, MAX_COLS, grid[axes[1]]);
}

static bool choose_cuts(struct picture *p, bool columns)
{
	uint64_t volume;

	p->row = p->col = (struct cuts){ .nr = 1 };
	if (!one_kind(p))
		return false;
	if (!p->flat)
		return choose_axes(p, columns);
	return ck_dims_volume(p->img->dims + p->t->grid, p->t->grid_rank,
			      &volume) &&
	       find_cuts(p, &p->row, MAX_ROWS, volume);
}

/* The fields of @c that piece @i covers: [*from, *to). */
static void fields(const struct picture *p, int i, const struct cuts *c,
		   unsigned *from, unsigned *to)
{
	uint64_t lo, hi;

	*from = 0;
	*to = c->nr;
	if (!c->used)
		return;
	extent(p, i, c, &lo, &hi);
	while (*from < c->nr && c->at[*from] < lo)
		++*from;
	while (*to > *from && c->at[*to] > hi)
		--*to;
}

static void fill(struct picture *p)
{
	for (unsigned r = 0; r < p->row.nr; r++)
		for (unsigned c = 0; c < p->col.nr; c++)
			p->owner[r][c] = HOLE;
	for (uint32_t i = 0; i < p->t->nr; i++) {
		unsigned r0, r1, c0, c1;

		fields(p, (int)i, &p->row, &r0, &r1);
		fields(p, (int)i, &p->col, &c0, &c1);
		for (unsigned r = r0; r < r1; r++)
			for (unsigned c = c0; c < c1; c++)
				p->owner[r][c] = (int)i;
	}
}

/* ---- labels ---- */

/* Line @n of the label of piece @i; false: it has fewer. */
static bool label(const struct picture *p, int i, unsigned n,
		  struct ck_str *out)
{
	const struct ck_chunk *chunks = p->img->chunks;
	uint32_t cell = p->t->first + (uint32_t)i, at = cell;
	unsigned copies = 1;

	if (i == HOLE) {
		ck_str_puts(out, n ? "" : "(not saved)");
		return n == 0;
	}
	for (unsigned k = 0; k < n && at != CK_NONE; k++)
		at = ck_ring_next(p->img, cell, at);
	if (at == CK_NONE || n > MAX_COPIES)
		return false;
	if (n == MAX_COPIES) {
		while ((at = ck_ring_next(p->img, cell, at)) != CK_NONE)
			copies++;
		ck_str_fmt(out, "+%u more", copies);
		return true;
	}
	labels_put(p->labels, chunks[at].src, out);
	if (chunks[at].state != CK_OK)
		ck_str_fmt(out, " %s", text_state(chunks[at].state));
	return true;
}

static unsigned label_width(const struct picture *p, int i, unsigned *lines)
{
	ck_auto_str struct ck_str s = { 0 };
	size_t width = 0;

	for (*lines = 0; label(p, i, *lines, &s); ++*lines, s.len = 0)
		width = CK_MAX(width, s.len);
	return (unsigned)width;
}

static unsigned digits(uint64_t v)
{
	unsigned n = 1;

	while (v /= 10)
		n++;
	return n;
}

static unsigned measure(struct picture *p)
{
	unsigned total = 1, lines;

	p->gutter = 0;
	if (p->row.used)
		p->gutter = digits(p->row.at[p->row.nr]) + 1;
	total += p->gutter;
	for (unsigned c = 0; c < p->col.nr; c++) {
		p->width[c] = p->col.used ? digits(p->col.at[c]) : 0;
		for (unsigned r = 0; r < p->row.nr; r++)
			p->width[c] = CK_MAX(
				p->width[c],
				label_width(p, p->owner[r][c], &lines) + GAP);
		total += p->width[c] + 1;
	}
	return total;
}

/* ---- lines ---- */

static bool edge_above(const struct picture *p, unsigned r, unsigned c)
{
	return r == 0 || r == p->row.nr || p->owner[r - 1][c] != p->owner[r][c];
}

static bool edge_left(const struct picture *p, unsigned r, unsigned c)
{
	return c == 0 || c == p->col.nr || p->owner[r][c - 1] != p->owner[r][c];
}

static char corner(const struct picture *p, unsigned r, unsigned c)
{
	bool left = c > 0 && edge_above(p, r, c - 1);
	bool right = c < p->col.nr && edge_above(p, r, c);
	bool up = r > 0 && edge_left(p, r - 1, c);
	bool down = r < p->row.nr && edge_left(p, r, c);

	if (!left && !right)
		return up || down ? '|' : ' ';
	return up || down ? '+' : '-';
}

static void put_border(struct picture *p, unsigned r)
{
	size_t from = p->out->len;
	char number[24];

	number[0] = '\0';
	if (p->row.used)
		snprintf(number, sizeof(number), "%*" PRIu64,
			 (int)p->gutter - 1, p->row.at[r]);
	ck_str_fmt(p->out, "  %s", number);
	text_pad(p->out, from, p->gutter + 2);
	for (unsigned c = 0; c <= p->col.nr; c++) {
		ck_str_fmt(p->out, "%c", corner(p, r, c));
		for (unsigned i = 0; c < p->col.nr && i < p->width[c]; i++)
			ck_str_puts(p->out, edge_above(p, r, c) ? "-" : " ");
	}
	ck_str_puts(p->out, "\n");
}

static void put_line(struct picture *p, unsigned r, unsigned line)
{
	size_t from = p->out->len;

	text_pad(p->out, from, p->gutter + 2);
	for (unsigned c = 0; c < p->col.nr; c++) {
		ck_str_puts(p->out, edge_left(p, r, c) ? "|" : " ");
		from = p->out->len;
		if (edge_above(p, r, c) && edge_left(p, r, c)) {
			ck_str_puts(p->out, " ");
			label(p, p->owner[r][c], line, p->out);
		}
		text_pad(p->out, from, p->width[c]);
	}
	ck_str_puts(p->out, "|\n");
}

static void put_row(struct picture *p, unsigned r)
{
	unsigned most = 1, lines;

	for (unsigned c = 0; c < p->col.nr; c++) {
		label_width(p, p->owner[r][c], &lines);
		if (edge_above(p, r, c) && edge_left(p, r, c))
			most = CK_MAX(most, lines);
	}
	put_border(p, r);
	for (unsigned line = 0; line < most; line++)
		put_line(p, r, line);
}

static void put_header(struct picture *p)
{
	size_t from = p->out->len, at = p->gutter + 2;

	if (!p->col.used)
		return;
	text_pad(p->out, from, at);
	for (unsigned c = 0; c <= p->col.nr; c++) {
		ck_str_fmt(p->out, "%" PRIu64, p->col.at[c]);
		if (c < p->col.nr)
			text_pad(p->out, from, at += p->width[c] + 1);
	}
	ck_str_puts(p->out, "\n");
}

static void put_caption(struct picture *p)
{
	const char *axis =
		p->t->grid_rank == p->t->rank ? "axis" : "axis of the grid";

	if (p->flat)
		ck_str_puts(p->out, "  down: elements in row-major order\n");
	else if (p->row.used && p->col.used)
		ck_str_fmt(p->out, "  down: %s %u, across: %s %u\n", axis,
			   p->row.axis, axis, p->col.axis);
	else if (p->row.used)
		ck_str_fmt(p->out, "  down: %s %u\n", axis, p->row.axis);
	else if (p->col.used)
		ck_str_fmt(p->out, "  across: %s %u\n", axis, p->col.axis);
}

static bool fits(struct picture *p, bool columns, unsigned width)
{
	if (!choose_cuts(p, columns))
		return false;
	fill(p);
	return measure(p) + 2 <= width;
}

bool draw_tensor(const struct ck_catalog *img, const struct ck_tensor *t,
		 const struct labels *labels, unsigned width,
		 struct ck_str *out)
{
	struct picture p = { .img = img, .t = t, .labels = labels, .out = out };

	if (t->nr == 0 || t->nr > MAX_ROWS * MAX_COLS)
		return false;
	if (!fits(&p, true, width) && !fits(&p, false, width))
		return false;
	put_caption(&p);
	put_header(&p);
	for (unsigned r = 0; r < p.row.nr; r++)
		put_row(&p, r);
	put_border(&p, p.row.nr);
	return true;
}
