/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder_overlap.c - which cells of one tensor cover the same elements, and
 * which lie in the same bytes
 *
 * The tree is joined with itself: each group of CK_FANOUT neighbours against
 * itself and against the later groups whose bounds it meets.  The comparisons
 * are counted, for boxes can be made that meet in quadratically many ways.
 */
#include "core/catalog/builder_priv.h"

#include "core/base/search.h"
#include "core/geom/tiling.h"

struct join {
	struct ck_cells *c;
	const uint64_t *node; /* start[rank], end[rank] of each */
	uint32_t level_nr[CK_MAX_LEVELS], level_at[CK_MAX_LEVELS];
	unsigned levels;
	bool any;
	struct ck_err *why;
};

static bool boxes_meet(unsigned rank, const uint64_t *a_start,
		       const uint64_t *a_end, const uint64_t *b_start,
		       const uint64_t *b_end)
{
	for (unsigned d = 0; d < rank; d++)
		if (a_start[d] >= b_end[d] || b_start[d] >= a_end[d])
			return false;
	return true;
}

static const struct ck_chunk *cell_of(const struct ck_cells *c, uint32_t i)
{
	return &c->part.v[c->cell.v[i]];
}

static bool is_flat(const struct ck_cells *c, uint32_t i)
{
	return c->img.layouts[cell_of(c, i)->layout].flags & CK_LAYOUT_FLAT;
}

/* Two cells whose bounds meet, at least one of them flat. */
static bool flats_meet(const struct ck_cells *c, uint32_t i, uint32_t j)
{
	struct ck_chunk_walk wi, wj;
	struct ck_box bi, bj, both;

	ck_chunk_walk_init(&wi, &c->img, cell_of(c, i), c->rank);
	while (ck_chunk_walk_next(&wi, &bi)) {
		ck_chunk_walk_init(&wj, &c->img, cell_of(c, j), c->rank);
		while (ck_chunk_walk_next(&wj, &bj))
			if (ck_box_meet(&bi, &bj, &both))
				return true;
	}
	return false;
}

/* Every member of the ring says that it may overlap, and can be cut. */
static bool may_cut(const struct ck_cells *c, uint32_t i)
{
	for (uint32_t at = c->cell.v[i]; at != CK_NONE;
	     at = c->part.v[at].next) {
		const struct ck_chunk *x = &c->part.v[at];

		if (!(x->pad[0] & CK_PART_OVERLAP_OK) ||
		    c->img.layouts[x->layout].flags)
			return false;
	}
	return true;
}

static int refuse_pair(const struct ck_cells *c, uint32_t i, uint32_t j,
		       struct ck_err *why)
{
	ck_auto_str struct ck_str bi = { 0 }, bj = { 0 };
	uint32_t a = CK_MIN(c->cell.v[i], c->cell.v[j]);
	uint32_t b = CK_MAX(c->cell.v[i], c->cell.v[j]);

	if (a != c->cell.v[i]) {
		uint32_t other = i;

		i = j;
		j = other;
	}
	ck_box_text(&bi, c->start.v + (size_t)i * c->rank,
		    c->end.v + (size_t)i * c->rank, c->rank);
	ck_box_text(&bj, c->start.v + (size_t)j * c->rank,
		    c->end.v + (size_t)j * c->rank, c->rank);
	if (bi.failed || bj.failed)
		return ck_no_memory(why);
	return ck_fail(why, EINVAL, "boxes %s of %s and %s of %s overlap", bi.v,
		       ck_builder_src_name(c->b, c->part.v[a].src), bj.v,
		       ck_builder_src_name(c->b, c->part.v[b].src));
}

static int spend(struct join *j, uint64_t nr)
{
	if (j->c->budget < nr)
		return ck_fail(
			j->why, EINVAL,
			"its parts interleave in too many ways to check");
	j->c->budget -= nr;
	return 0;
}

/* Cells @x and @y, whose bounds meet. */
static int found_pair(struct join *j, uint32_t x, uint32_t y)
{
	struct ck_cells *c = j->c;
	bool flat = is_flat(c, x) || is_flat(c, y);
	uint64_t boxes = 2 * c->rank + 1; /* of a flat range, at most */
	int ret = flat ? spend(j, 4 * boxes * boxes) : 0;

	if (ret || (flat && !flats_meet(c, x, y)))
		return ret;
	if (!(c->mark.v[x] || may_cut(c, x)) ||
	    !(c->mark.v[y] || may_cut(c, y)))
		return refuse_pair(c, x, y, j->why);
	c->mark.v[x] = 1;
	c->mark.v[y] = 1;
	j->any = true;
	return 0;
}

/* The cells of one group, where a loop finds them quickly. */
struct members {
	unsigned nr;
	uint32_t cell[CK_FANOUT];
	const uint64_t *start[CK_FANOUT], *end[CK_FANOUT];
};

/* Those of group @g that meet the box of node @within (NULL: all). */
static void take_members(const struct ck_cells *c, uint32_t g,
			 const uint64_t *within, struct members *m)
{
	size_t r = c->rank;
	uint32_t end = CK_MIN((g + 1) * CK_FANOUT, (uint32_t)c->cell.nr);

	m->nr = 0;
	for (uint32_t i = g * CK_FANOUT; i < end; i++) {
		uint32_t cell = c->perm.v[i];

		m->cell[m->nr] = cell;
		m->start[m->nr] = c->start.v + cell * r;
		m->end[m->nr] = c->end.v + cell * r;
		if (!within || boxes_meet(c->rank, m->start[m->nr],
					  m->end[m->nr], within, within + r))
			m->nr++;
	}
}

static int test_members(struct join *j, const struct members *a,
			const struct members *b)
{
	unsigned r = j->c->rank;
	int ret = 0;

	for (unsigned x = 0; x < a->nr && !ret; x++)
		for (unsigned y = a == b ? x + 1 : 0; y < b->nr && !ret; y++)
			if (boxes_meet(r, a->start[x], a->end[x], b->start[y],
				       b->end[y]))
				ret = found_pair(j, a->cell[x], b->cell[y]);
	return ret;
}

static const uint64_t *node_at(const struct join *j, size_t i)
{
	return j->node + i * 2 * j->c->rank;
}

/* Cells of group @g against each other. */
static int test_group(struct join *j, uint32_t g)
{
	struct members m;
	int ret = spend(j, CK_FANOUT * CK_FANOUT);

	take_members(j->c, g, NULL, &m);
	return ret ? ret : test_members(j, &m, &m);
}

/* Cells of group @g against those of group @h. */
static int test_groups(struct join *j, uint32_t g, uint32_t h)
{
	struct members a, b;
	int ret = spend(j, CK_FANOUT);

	take_members(j->c, g, node_at(j, h), &a);
	if (ret || !a.nr)
		return ret;
	ret = spend(j, CK_FANOUT * CK_FANOUT);
	take_members(j->c, h, node_at(j, g), &b);
	return ret ? ret : test_members(j, &a, &b);
}

static bool nodes_meet(const struct join *j, size_t a, size_t b)
{
	size_t r = j->c->rank;
	const uint64_t *x = node_at(j, a), *y = node_at(j, b);

	return boxes_meet(j->c->rank, x, x + r, y, y + r);
}

/* Group @g against all groups after it. */
static int test_later(struct join *j, uint32_t g)
{
	struct {
		unsigned level;
		uint32_t nr;
	} stack[CK_MAX_LEVELS * CK_FANOUT], at;
	unsigned depth = 0;
	int ret = 0;

	stack[depth].level = j->levels - 1;
	stack[depth++].nr = 0;
	while (depth && !ret) {
		uint64_t span; /* groups under a node */

		at = stack[--depth];
		span = UINT64_C(1) << (4 * at.level);
		if ((at.nr + UINT64_C(1)) * span <= g + UINT64_C(1))
			continue;
		ret = spend(j, 1);
		if (ret || !nodes_meet(j, j->level_at[at.level] + at.nr, g))
			continue;
		if (!at.level) {
			ret = test_groups(j, g, at.nr);
			continue;
		}
		for (uint32_t k = 0; k < CK_FANOUT; k++) {
			uint32_t child = at.nr * CK_FANOUT + k;

			if (child >= j->level_nr[at.level - 1])
				break;
			stack[depth].level = at.level - 1;
			stack[depth++].nr = child;
		}
	}
	return ret;
}

int ck_cells_overlap(struct ck_cells *c, bool *any, struct ck_err *why)
{
	struct join j = { .c = c, .why = why };
	uint32_t nr = (uint32_t)c->cell.nr, at = 0;
	int ret = 0;

	c->mark.nr = 0;
	if (!ck_vec_reserve(&c->mark, nr + 1))
		return ck_no_memory(why);
	memset(c->mark.v, 0, nr);
	j.levels = ck_tiling_levels(nr, j.level_nr);
	for (unsigned l = 0; l < j.levels; l++) {
		j.level_at[l] = at;
		at += j.level_nr[l];
	}
	if (j.levels)
		j.node = c->img.dims + c->index;
	for (uint32_t g = 0; g < CK_DIV_UP(nr, CK_FANOUT) && !ret; g++) {
		ret = test_group(&j, g);
		if (!ret && j.levels)
			ret = test_later(&j, g);
	}
	*any = j.any;
	return ret;
}

/* ---- the same bytes ---- */

/* What one part is read from; @end - @off is 0 where that has gaps. */
struct stretch {
	uint64_t off, end;
	uint32_t src, cell, part;
};

static struct stretch stretch_of(const struct ck_cells *c, uint32_t part,
				 uint32_t cell)
{
	const struct ck_chunk *x = &c->part.v[part];
	struct stretch s = { .off = x->off,
			     .end = x->off,
			     .src = x->src,
			     .cell = cell,
			     .part = part };
	struct ck_chunk_at at;
	uint64_t from, to;

	ck_chunk_at(&c->img, NULL, c->rank, x, &at);
	if (ck_chunk_extent(&at, &from, &to) && from == x->off &&
	    to - from == (at.placed ? at.bytes : at.item))
		s.end = to;
	return s;
}

static int by_place(const void *pa, const void *pb)
{
	const struct stretch *a = pa, *b = pb;

	if (a->src != b->src)
		return a->src < b->src ? -1 : 1;
	return ck_order2(a->off, b->off, a->part, b->part);
}

static int refuse_bytes(const struct ck_cells *c, const struct stretch *a,
			const struct stretch *b, struct ck_err *why)
{
	ck_auto_str struct ck_str ba = { 0 }, bb = { 0 };

	ck_box_text(&ba, c->start.v + (size_t)a->cell * c->rank,
		    c->end.v + (size_t)a->cell * c->rank, c->rank);
	ck_box_text(&bb, c->start.v + (size_t)b->cell * c->rank,
		    c->end.v + (size_t)b->cell * c->rank, c->rank);
	if (ba.failed || bb.failed)
		return ck_no_memory(why);
	return ck_fail(why, EINVAL,
		       "boxes %s and %s are both said to be at byte %llu of "
		       "%s",
		       ba.v, bb.v, (unsigned long long)b->off,
		       ck_builder_src_name(c->b, a->src));
}

int ck_cells_bytes(const struct ck_cells *c, struct ck_err *why)
{
	ck_auto_free struct stretch *all = NULL;
	bool sorted = true;
	size_t nr = 0;

	if (c->cell.nr < 2)
		return 0;
	all = reallocarray(NULL, c->part.nr, sizeof(*all));
	if (!all)
		return ck_no_memory(why);
	for (uint32_t i = 0; i < c->cell.nr; i++)
		for (uint32_t at = c->cell.v[i]; at != CK_NONE;
		     at = c->part.v[at].next) {
			all[nr] = stretch_of(c, at, i);
			sorted = sorted &&
				 (!nr || by_place(&all[nr - 1], &all[nr]) < 0);
			nr++;
		}
	if (!sorted)
		qsort(all, nr, sizeof(*all), by_place);
	for (size_t i = 1, last = 0; i < nr; i++) {
		const struct stretch *a = &all[last], *b = &all[i];

		bool share = c->mark.v[a->cell] && c->mark.v[b->cell];

		if (a->src == b->src && a->cell != b->cell && !share &&
		    b->off < a->end && b->off < b->end)
			return refuse_bytes(c, a, b, why);
		if (a->src != b->src || b->end > a->end)
			last = i;
	}
	return 0;
}
