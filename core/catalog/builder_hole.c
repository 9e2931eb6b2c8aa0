/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder_hole.c - the first elements of a tensor that no cell covers
 *
 * Cells are disjoint, so along an axis the volumes of their cross-sections
 * tell: where their sum falls short of the tensor's cross-section, there is a
 * hole.  The first such place of axis 0, in the slab there the first of axis
 * 1, and so on, is the first hole in row-major order.
 */
#include "core/catalog/builder_priv.h"

struct sweep {
	unsigned rank, axis;
	const uint64_t *box; /* start[rank], end[rank] of each */
	const uint64_t *grid;
};

/* The cells of one tensor, as boxes. */
struct boxes {
	CK_VEC(uint64_t) v;
	uint32_t nr;
};

static int take_boxes(const struct ck_cells *c, struct boxes *out,
		      struct ck_err *err)
{
	size_t r = c->rank;
	struct ck_chunk_walk w;
	struct ck_box box;

	for (uint32_t i = 0; i < c->cell.nr; i++) {
		ck_chunk_walk_init(&w, &c->img, &c->part.v[c->cell.v[i]],
				   c->rank);
		while (ck_chunk_walk_next(&w, &box)) {
			if (!ck_vec_reserve(&out->v, 2 * r + 1))
				return ck_no_memory(err);
			for (size_t d = 0; d < r; d++) {
				out->v.v[out->v.nr + d] = box.start[d];
				out->v.v[out->v.nr + r + d] =
					box.start[d] + box.len[d];
			}
			out->v.nr += 2 * r;
			out->nr++;
		}
	}
	return 0;
}

static uint64_t start_at(const struct sweep *s, uint32_t i)
{
	return s->box[(size_t)i * 2 * s->rank + s->axis];
}

static uint64_t end_at(const struct sweep *s, uint32_t i)
{
	return s->box[(size_t)i * 2 * s->rank + s->rank + s->axis];
}

static int by_start(const void *a, const void *b, void *s)
{
	uint64_t x = start_at(s, *(const uint32_t *)a);
	uint64_t y = start_at(s, *(const uint32_t *)b);

	return x < y ? -1 : x > y;
}

static int by_end(const void *a, const void *b, void *s)
{
	uint64_t x = end_at(s, *(const uint32_t *)a);
	uint64_t y = end_at(s, *(const uint32_t *)b);

	return x < y ? -1 : x > y;
}

static uint64_t cross(const struct sweep *s, uint32_t i)
{
	const uint64_t *box = s->box + (size_t)i * 2 * s->rank;
	uint64_t volume = 1;

	for (unsigned d = s->axis + 1; d < s->rank; d++)
		volume *= box[s->rank + d] - box[d];
	return volume;
}

/*
 * The first coordinate of the axis whose slab is not full, and the next
 * coordinate where a box begins or ends.  @a is sorted by start, @z by end.
 */
static bool short_slab(const struct sweep *s, const uint32_t *a,
		       const uint32_t *z, uint32_t nr, uint64_t *at,
		       uint64_t *next)
{
	uint64_t full = 1, sum = 0;
	uint32_t i = 0, j = 0;

	for (unsigned d = s->axis + 1; d < s->rank; d++)
		full *= s->grid[d];
	for (*at = 0; *at < s->grid[s->axis]; *at = *next) {
		for (; i < nr && start_at(s, a[i]) <= *at; i++)
			sum += cross(s, a[i]);
		for (; j < nr && end_at(s, z[j]) <= *at; j++)
			sum -= cross(s, z[j]);
		*next = s->grid[s->axis];
		if (i < nr)
			*next = CK_MIN(*next, start_at(s, a[i]));
		if (j < nr)
			*next = CK_MIN(*next, end_at(s, z[j]));
		if (sum < full)
			return true;
	}
	return false;
}

static uint32_t keep_slab(const struct sweep *s, uint32_t *v, uint32_t nr,
			  uint64_t at)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < nr; i++)
		if (start_at(s, v[i]) <= at && at < end_at(s, v[i]))
			v[kept++] = v[i];
	return kept;
}

static void descend(struct sweep *s, uint32_t *a, uint32_t *z, uint32_t nr,
		    uint64_t *lo, uint64_t *hi)
{
	uint64_t at, next, inner = 1;

	for (unsigned d = 0; d < s->rank; d++)
		inner *= s->grid[d];
	*lo = 0;
	*hi = inner;
	for (s->axis = 0; s->axis < s->rank && nr; s->axis++) {
		qsort_r(a, nr, sizeof(*a), by_start, s);
		qsort_r(z, nr, sizeof(*z), by_end, s);
		inner /= s->grid[s->axis];
		if (!short_slab(s, a, z, nr, &at, &next)) {
			*lo = *hi; /* no hole */
			return;
		}
		nr = keep_slab(s, a, nr, at);
		memcpy(z, a, nr * sizeof(*z));
		*lo += at * inner;
		/* nothing at all there: the hole goes on until something is */
		*hi = *lo + (nr ? inner : (next - at) * inner);
	}
}

int ck_cells_hole(const struct ck_cells *c, uint64_t *lo, uint64_t *hi,
		  struct ck_err *err)
{
	ck_auto_free uint32_t *a = NULL;
	ck_auto_free uint32_t *z = NULL;
	struct boxes boxes = { 0 };
	int ret = take_boxes(c, &boxes, err);

	if (!ret) {
		a = reallocarray(NULL, (size_t)boxes.nr + 1, sizeof(*a));
		z = reallocarray(NULL, (size_t)boxes.nr + 1, sizeof(*z));
		if (!a || !z)
			ret = ck_no_memory(err);
	}
	if (!ret) {
		struct sweep s = { .rank = c->rank,
				   .box = boxes.v.v,
				   .grid = c->img.dims + c->e->grid };

		for (uint32_t i = 0; i < boxes.nr; i++)
			a[i] = z[i] = i;
		descend(&s, a, z, boxes.nr, lo, hi);
	}
	free(boxes.v.v);
	return ret;
}
