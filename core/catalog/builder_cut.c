/* SPDX-License-Identifier: Apache-2.0 */
/*
 * builder_cut.c - overlapping boxes into cells that do not overlap
 *
 * Where one half of the ranks stored halves and the other thirds, elements
 * have two copies whose boxes differ.  Fragments are kept disjoint: a box that
 * comes in splits those that it meets, and gains a fragment where it meets
 * none.  Then each fragment becomes a ring of pieces of what covers it.
 */
#include "core/catalog/builder_priv.h"

/* Which cells cover a fragment: a list whose tails are shared. */
struct cover {
	uint32_t cell, next;
};

struct cut {
	struct ck_cells *c;
	struct ck_err *why;
	CK_VEC(uint64_t) frag; /* start[rank], end[rank] of each */
	CK_VEC(uint32_t) list; /* of each: its first cover */
	CK_VEC(struct cover) covers;
	CK_VEC(uint64_t)
	todo; /* boxes to place, and the fragment to try next */
	CK_VEC(struct ck_chunk) part; /* the result */
	CK_VEC(uint32_t) cell;
	size_t max_frags;
};

static void cut_free(struct cut *k)
{
	free(k->frag.v);
	free(k->list.v);
	free(k->covers.v);
	free(k->todo.v);
	free(k->part.v);
	free(k->cell.v);
}

static int add_cover(struct cut *k, uint32_t cell, uint32_t next, uint32_t *at)
{
	*at = (uint32_t)k->covers.nr;
	return ck_vec_put(&k->covers, k->why, (struct cover){ cell, next });
}

static int add_frag(struct cut *k, const uint64_t *box, uint32_t list)
{
	size_t nr = 2 * (size_t)k->c->rank;

	if (k->list.nr >= k->max_frags)
		return ck_fail(
			k->why, EINVAL,
			"its replicas cut each other into more than %zu cells",
			k->max_frags);
	if (!ck_vec_reserve(&k->frag, nr + 1) || !ck_vec_reserve(&k->list, 1))
		return ck_no_memory(k->why);
	memcpy(k->frag.v + k->frag.nr, box, nr * sizeof(*box));
	k->frag.nr += nr;
	k->list.v[k->list.nr++] = list;
	return 0;
}

static int add_todo(struct cut *k, const uint64_t *box, size_t from)
{
	size_t nr = 2 * (size_t)k->c->rank;

	if (!ck_vec_reserve(&k->todo, nr + 1))
		return ck_no_memory(k->why);
	memcpy(k->todo.v + k->todo.nr, box, nr * sizeof(*box));
	k->todo.v[k->todo.nr + nr] = from;
	k->todo.nr += nr + 1;
	return 0;
}

static bool meet(const uint64_t *a, const uint64_t *b, unsigned rank,
		 uint64_t *out)
{
	for (unsigned d = 0; d < rank; d++) {
		out[d] = CK_MAX(a[d], b[d]);
		out[rank + d] = CK_MIN(a[rank + d], b[rank + d]);
		if (out[d] >= out[rank + d])
			return false;
	}
	return true;
}

/* What of box @a lies outside @m, which is in it; @a is changed. */
static int peel(struct cut *k, uint64_t *a, const uint64_t *m,
		int (*put)(struct cut *k, const uint64_t *box, size_t arg),
		size_t arg)
{
	unsigned r = k->c->rank;
	int ret = 0;

	for (unsigned d = 0; d < r && !ret; d++) {
		uint64_t start = a[d], end = a[r + d];

		if (start < m[d]) {
			a[r + d] = m[d];
			ret = put(k, a, arg);
			a[d] = m[d];
			a[r + d] = end;
		}
		if (!ret && m[r + d] < end) {
			a[d] = m[r + d];
			ret = put(k, a, arg);
			a[d] = m[d];
			a[r + d] = m[r + d];
		}
	}
	return ret;
}

static int put_frag(struct cut *k, const uint64_t *box, size_t list)
{
	return add_frag(k, box, (uint32_t)list);
}

/* The first fragment from *at on that meets @box, at *at. */
static int find_frag(struct cut *k, const uint64_t *box, size_t *at,
		     uint64_t *both, bool *found)
{
	size_t nr = 2 * (size_t)k->c->rank;

	for (*found = false; *at < k->list.nr; ++*at) {
		if (!k->c->budget--)
			return ck_fail(
				k->why, EINVAL,
				"its replicas cut each other in too many ways");
		*found = meet(k->frag.v + *at * nr, box, k->c->rank, both);
		if (*found)
			break;
	}
	return 0;
}

static int place_box(struct cut *k, uint64_t *box, size_t from, uint32_t cell)
{
	unsigned r = k->c->rank;
	uint64_t both[2 * CK_MAX_RANK], old[2 * CK_MAX_RANK];
	uint32_t list = CK_NONE;
	bool found;
	int ret = find_frag(k, box, &from, both, &found);

	if (!ret)
		ret = add_cover(k, cell, found ? k->list.v[from] : CK_NONE,
				&list);
	if (ret || !found)
		return ret ? ret : add_frag(k, box, list);
	memcpy(old, k->frag.v + from * 2 * r, 2 * r * sizeof(*old));
	ret = peel(k, old, both, put_frag, k->list.v[from]);
	if (ret)
		return ret;
	memcpy(k->frag.v + from * 2 * r, both, 2 * r * sizeof(*both));
	k->list.v[from] = list;
	/* what is left of the box meets no fragment before or at this one */
	return peel(k, box, both, add_todo, from + 1);
}

static int place_cell(struct cut *k, uint32_t cell)
{
	const struct ck_cells *c = k->c;
	size_t r = c->rank;
	uint64_t box[2 * CK_MAX_RANK];
	int ret;

	memcpy(box, c->start.v + cell * r, r * sizeof(*box));
	memcpy(box + r, c->end.v + cell * r, r * sizeof(*box));
	ret = add_todo(k, box, 0);
	while (!ret && k->todo.nr) {
		size_t from = k->todo.v[k->todo.nr - 1];

		k->todo.nr -= 2 * r + 1;
		memcpy(box, k->todo.v + k->todo.nr, 2 * r * sizeof(*box));
		ret = place_box(k, box, from, cell);
	}
	return ret;
}

/* Whether the smaller piece still ends past the end of its file. */
static uint8_t state_of(const struct ck_cells *c, const struct ck_chunk *x,
			const uint64_t *len, const int64_t *stride)
{
	const struct ck_src *s = &c->b->srcs.v[x->src];
	int64_t lo, hi;

	if (s->state != CK_OK)
		return s->state;
	ck_stride_extent(len, stride, c->rank, c->elem, &lo, &hi);
	return x->off + (uint64_t)hi > ck_src_size(s) ? CK_TORN : CK_OK;
}

/* @x, which covers box @frag, made into just that. */
static int trim(struct cut *k, struct ck_chunk *x, const uint64_t *frag)
{
	struct ck_cells *c = k->c;
	struct ck_intern *in = &c->b->in;
	struct ck_layout l = in->layouts.v[x->layout];
	unsigned r = c->rank;
	uint64_t len[CK_MAX_RANK], *at;
	int64_t stride[CK_MAX_RANK];
	int ret;

	memcpy(stride, in->dims.v + l.stride, r * sizeof(*stride));
	for (unsigned d = 0; d < r; d++) {
		int64_t skip = (int64_t)(frag[d] - in->dims.v[x->corner + d]);

		len[d] = frag[r + d] - frag[d];
		x->off += (uint64_t)(skip * stride[d] * c->elem);
	}
	x->state = state_of(c, x, len, stride);
	ret = ck_intern_dims(in, len, r, &l.len, k->why);
	if (!ret)
		ret = ck_intern_layout(in, &l, &x->layout, k->why);
	if (!ret)
		ret = ck_intern_room(in, r, &x->corner, &at, k->why);
	if (!ret)
		memcpy(at, frag, r * sizeof(*at));
	return ret;
}

/* Appends the ring of @cell to the result; @frag: trimmed to that box. */
static int take_ring(struct cut *k, uint32_t cell, const uint64_t *frag,
		     uint32_t *tail)
{
	const struct ck_cells *c = k->c;
	uint32_t at = c->cell.v[cell];

	while (at != CK_NONE) {
		struct ck_chunk x = c->part.v[at];
		int ret = frag ? trim(k, &x, frag) : 0;

		at = x.next;
		x.next = CK_NONE;
		if (ret)
			return ret;
		if (!ck_vec_reserve(&k->part, 1) ||
		    !ck_vec_reserve(&k->cell, 1))
			return ck_no_memory(k->why);
		if (*tail == CK_NONE)
			k->cell.v[k->cell.nr++] = (uint32_t)k->part.nr;
		else
			k->part.v[*tail].next = (uint32_t)k->part.nr;
		*tail = (uint32_t)k->part.nr;
		k->part.v[k->part.nr++] = x;
		if (k->part.nr > CK_MAX_CHUNKS)
			return ck_fail(k->why, EINVAL,
				       "its replicas make more than %u pieces",
				       CK_MAX_CHUNKS);
	}
	return 0;
}

/* Lists were made by putting in front: turned round, the first comes first. */
static void reverse(struct cut *k, uint32_t *scratch, size_t nr, uint32_t list)
{
	while (nr) {
		scratch[--nr] = k->covers.v[list].cell;
		list = k->covers.v[list].next;
	}
}

static int emit_frag(struct cut *k, size_t f)
{
	size_t r = k->c->rank, nr = 0;
	ck_auto_free uint32_t *order = NULL;
	uint32_t tail = CK_NONE;
	int ret = 0;

	for (uint32_t at = k->list.v[f]; at != CK_NONE;
	     at = k->covers.v[at].next)
		nr++;
	order = reallocarray(NULL, nr, sizeof(*order));
	if (!order)
		return ck_no_memory(k->why);
	reverse(k, order, nr, k->list.v[f]);
	for (size_t i = 0; i < nr && !ret; i++)
		ret = take_ring(k, order[i], k->frag.v + f * 2 * r, &tail);
	return ret;
}

static int cut_all(struct cut *k)
{
	struct ck_cells *c = k->c;
	int ret = 0;

	for (uint32_t i = 0; i < c->cell.nr && !ret; i++)
		if (c->mark.v[i])
			ret = place_cell(k, i);
	for (uint32_t i = 0; i < c->cell.nr && !ret; i++) {
		uint32_t tail = CK_NONE;

		if (!c->mark.v[i])
			ret = take_ring(k, i, NULL, &tail);
	}
	for (size_t f = 0; f < k->list.nr && !ret; f++)
		ret = emit_frag(k, f);
	return ret;
}

int ck_cells_cut(struct ck_cells *c, struct ck_err *why)
{
	struct cut k = { .c = c,
			 .why = why,
			 .max_frags = 64 * c->cell.nr + 4096 };
	int ret = cut_all(&k);

	if (!ret) {
		free(c->part.v);
		free(c->cell.v);
		memcpy(&c->part, &k.part, sizeof(c->part));
		memcpy(&c->cell, &k.cell, sizeof(c->cell));
		k.part.v = NULL;
		k.cell.v = NULL;
	}
	cut_free(&k);
	return ret;
}
