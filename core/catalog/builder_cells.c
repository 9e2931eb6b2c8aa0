/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder_cells.c - one tensor's parts as cells with rings of replicas
 *
 * Parts of the same box and the same flat range are one cell.  Cells are
 * ordered, and searched, by the packed tree of geom/tiling.h.
 */
#include "core/catalog/builder_priv.h"
#include "core/geom/tiling.h"

#include <xxhash.h>

/* A ring this long is searched for the very same bytes given twice. */
#define DUPLICATE_SEARCH 64

static void start_over(struct ck_cells *c, struct ck_builder *b,
		       struct ck_entry *e)
{
	c->b = b;
	c->img = ck_builder_view(b);
	c->e = e;
	c->rank = e->grid_rank;
	c->elem = ck_dtype_info(e->dtype)->size;
	c->part.nr = 0;
	c->cell.nr = 0;
	c->tail.nr = 0;
	c->covered = 0;
	c->index = CK_NONE;
	c->budget = UINT64_C(1) << 20;
	c->budget += (uint64_t)e->nr << 10;
	c->budget /= 1 + c->rank / 8;
	ck_table_clear(&c->tab);
}

/* Elements are what makes two parts replicas, not where their bytes are. */
static bool same_elements(const struct ck_cells *c, const struct ck_chunk *x,
			  const struct ck_chunk *y)
{
	const struct ck_layout *lx = &c->img.layouts[x->layout];
	const struct ck_layout *ly = &c->img.layouts[y->layout];
	unsigned flat = lx->flags & CK_LAYOUT_FLAT;

	return lx->len == ly->len && flat == (ly->flags & CK_LAYOUT_FLAT) &&
	       !memcmp(c->img.dims + x->corner, c->img.dims + y->corner,
		       (c->rank + (flat ? 2 : 0)) * sizeof(uint64_t));
}

static bool cell_equal(const void *ctx, uint32_t index, const void *key)
{
	const struct ck_cells *c = ctx;

	return same_elements(c, &c->part.v[c->cell.v[index]], key);
}

static uint64_t hash_elements(const struct ck_cells *c,
			      const struct ck_chunk *x)
{
	const struct ck_layout *l = &c->img.layouts[x->layout];
	unsigned flat = l->flags & CK_LAYOUT_FLAT;

	return XXH3_64bits_withSeed(
		c->img.dims + x->corner,
		(c->rank + (flat ? 2 : 0)) * sizeof(uint64_t),
		c->b->in.seed + (uint64_t)l->len * 2 + flat);
}

/* The same elements from the same bytes: said twice, not stored twice. */
static bool is_duplicate(const struct ck_chunk *x, const struct ck_chunk *y)
{
	return x->src == y->src && x->off == y->off && x->layout == y->layout;
}

static bool has_duplicate(const struct ck_cells *c, uint32_t cell,
			  const struct ck_chunk *x)
{
	uint32_t at = c->cell.v[cell];

	for (unsigned n = 0; at != CK_NONE && n < DUPLICATE_SEARCH; n++) {
		if (is_duplicate(&c->part.v[at], x))
			return true;
		at = c->part.v[at].next;
	}
	return is_duplicate(&c->part.v[c->tail.v[cell]], x);
}

static int add_to_cell(struct ck_cells *c, const struct ck_chunk *x,
		       struct ck_err *err)
{
	bool alone = c->e->nr == 1;
	uint64_t hash = alone ? 0 : hash_elements(c, x);
	uint32_t cell = alone ? CK_NONE :
				ck_table_find(&c->tab, hash, cell_equal, c, x);
	uint32_t at = (uint32_t)c->part.nr;

	if (cell != CK_NONE && has_duplicate(c, cell, x))
		return 0;
	if (!ck_vec_reserve(&c->part, 1) || !ck_vec_reserve(&c->cell, 1) ||
	    !ck_vec_reserve(&c->tail, 1))
		return ck_no_memory(err);
	c->part.v[c->part.nr++] = *x;
	c->part.v[at].next = CK_NONE;
	if (cell != CK_NONE) {
		c->part.v[c->tail.v[cell]].next = at;
		c->tail.v[cell] = at;
		return 0;
	}
	if (!alone && !ck_table_put(&c->tab, hash, (uint32_t)c->cell.nr))
		return ck_no_memory(err);
	c->cell.v[c->cell.nr++] = at;
	c->tail.v[c->tail.nr++] = at;
	return 0;
}

static int group(struct ck_cells *c, struct ck_err *err)
{
	uint32_t at = c->e->nr ? c->e->first : CK_NONE;

	while (at != CK_NONE) {
		const struct ck_chunk *x = &c->b->parts.v[at];
		int ret = add_to_cell(c, x, err);

		if (ret)
			return ret;
		at = x->next;
	}
	return 0;
}

/* The first of a ring is what a read asks first: let it be a whole one. */
static void prefer_whole(struct ck_cells *c)
{
	for (uint32_t i = 0; i < c->cell.nr; i++) {
		struct ck_chunk *first = &c->part.v[c->cell.v[i]];
		uint32_t at = first->next;

		while (first->state != CK_OK && at != CK_NONE) {
			struct ck_chunk *x = &c->part.v[at], old = *first;

			at = x->next;
			if (x->state >= old.state)
				continue;
			*first = *x;
			first->next = old.next;
			old.next = x->next;
			*x = old;
		}
	}
}

static int make_boxes(struct ck_cells *c, struct ck_err *err)
{
	size_t want = c->cell.nr * c->rank;

	c->start.nr = 0;
	c->end.nr = 0;
	c->covered = 0;
	if (!ck_vec_reserve(&c->start, want + 1) ||
	    !ck_vec_reserve(&c->end, want + 1))
		return ck_no_memory(err);
	for (uint32_t i = 0; i < c->cell.nr; i++) {
		const struct ck_chunk *x = &c->part.v[c->cell.v[i]];

		ck_chunk_bounds(&c->img, x, c->rank,
				c->start.v + (size_t)i * c->rank,
				c->end.v + (size_t)i * c->rank);
		/* no sum of parts passes 2^26 * 2^62 unnoticed: see below */
		c->covered += ck_chunk_volume(&c->img, x, c->rank);
		if (c->covered > CK_SIZE_MAX)
			c->covered = CK_SIZE_MAX;
	}
	return 0;
}

static bool comes_before(const struct ck_cells *c, uint32_t x, uint32_t y)
{
	const uint64_t *sx = c->start.v + (size_t)x * c->rank;
	const uint64_t *sy = c->start.v + (size_t)y * c->rank;

	for (unsigned d = 0; d < c->rank; d++)
		if (sx[d] != sy[d])
			return sx[d] < sy[d];
	return false;
}

/* A few cells need no tree: by where they begin. */
static void sort_few(const struct ck_cells *c)
{
	for (uint32_t i = 1; i < c->perm.nr; i++) {
		uint32_t moved = c->perm.v[i], j = i;

		for (; j && comes_before(c, moved, c->perm.v[j - 1]); j--)
			c->perm.v[j] = c->perm.v[j - 1];
		c->perm.v[j] = moved;
	}
}

/* The order of the cells, and their tree at the end of dims. */
static int make_order(struct ck_cells *c, struct ck_err *err)
{
	uint32_t nr = (uint32_t)c->cell.nr, level_nr[CK_MAX_LEVELS];
	unsigned levels = ck_tiling_levels(nr, level_nr);
	struct ck_tiling_in in = {
		.rank = c->rank, .nr = nr, .start = c->start.v, .end = c->end.v
	};
	uint64_t *nodes = NULL;
	size_t room = 0;
	int ret = 0;

	c->index = CK_NONE;
	c->perm.nr = 0;
	if (!ck_vec_reserve(&c->perm, nr + 1))
		return ck_no_memory(err);
	for (uint32_t i = 0; i < nr; i++)
		c->perm.v[i] = i;
	c->perm.nr = nr;
	for (unsigned l = 0; l < levels; l++)
		room += (size_t)level_nr[l] * 2 * c->rank;
	if (levels)
		ret = ck_intern_room(&c->b->in, room, &c->index, &nodes, err);
	if (ret)
		return ret;
	c->img = ck_builder_view(c->b);
	if (levels)
		ck_tiling_build(&in, c->perm.v, nodes);
	else
		sort_few(c);
	return 0;
}

int ck_cells_make(struct ck_cells *c, struct ck_builder *b, struct ck_entry *e,
		  struct ck_err *why)
{
	bool overlap = false;
	int ret;

	start_over(c, b, e);
	ret = group(c, why);
	if (!ret)
		ret = make_boxes(c, why);
	if (!ret)
		ret = make_order(c, why);
	if (!ret)
		ret = ck_cells_overlap(c, &overlap, why);
	if (!ret)
		ret = ck_cells_bytes(c, why);
	if (!ret && overlap) {
		if (c->index != CK_NONE)
			b->in.dims.nr = c->index;
		ret = ck_cells_cut(c, why);
		c->img = ck_builder_view(b);
		if (!ret)
			ret = make_boxes(c, why);
		if (!ret)
			ret = make_order(c, why);
	}
	if (!ret)
		prefer_whole(c);
	return ret;
}

void ck_cells_free(struct ck_cells *c)
{
	free(c->part.v);
	free(c->cell.v);
	free(c->tail.v);
	free(c->start.v);
	free(c->end.v);
	free(c->perm.v);
	free(c->mark.v);
	ck_table_free(&c->tab);
}
