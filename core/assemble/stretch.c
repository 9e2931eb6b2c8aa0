/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stretch.c - stretches of a box's order that several files have
 *
 *	rank 0   [0, 6)                 [0, 4) [4, 6)
 *	rank 1          [4, 10)                [4, 6) [6, 10)
 *	rank 2   all of it              [0, 4) [4, 6) [6, 10)
 *
 * The gate takes what is the same elements for replicas: they are cut where
 * any of them begins or ends.
 */
#include "core/assemble/join_priv.h"

#include "core/base/check.h"
#include "core/base/search.h"
#include "core/geom/range.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAX_PARTS (UINT64_C(1) << 22) /* that those of a tensor are cut into */

/* A part of a box, by number; those of one box follow each other. */
struct member {
	uint64_t box, volume;
	size_t at;
	bool flat;
};

struct cutting {
	struct ck_asm_work *w;
	const struct member *m; /* of one box */
	size_t nr;
	uint64_t *cut;
	size_t nr_cuts;
	uint64_t made; /* parts, of the tensor */
};

static int by_box(const void *pa, const void *pb)
{
	const struct member *a = pa, *b = pb;

	return ck_order2(a->box, b->box, a->at, b->at);
}

/* Those that are no stretches yet may be: all of a box in a row. */
static struct member member_of(const struct ck_asm_work *w, size_t at)
{
	const struct ck_part *p = &w->parts.v[at].part;
	unsigned rank = p->grid ? p->grid_rank : p->rank;
	struct member m = { .at = at, .flat = p->flat };

	if (p->len) {
		m.box = XXH3_64bits(p->len, rank * sizeof(*p->len));
		m.box = XXH3_64bits_withSeed(p->start, rank * sizeof(*p->len),
					     m.box + rank);
	}
	ck_dims_volume(p->len ? p->len : p->shape, rank, &m.volume);
	return m;
}

static int by_value(const void *pa, const void *pb)
{
	uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;

	return a < b ? -1 : a > b;
}

/* Elements [lo, hi) of a part; false: it is not to be cut. */
static bool range_of(const struct cutting *c, const struct member *m,
		     uint64_t *lo, uint64_t *hi)
{
	const struct ck_part *p = &c->w->parts.v[m->at].part;

	*lo = p->flat ? p->flat[0] : 0;
	*hi = p->flat ? p->flat[1] : m->volume;
	return p->flat || !p->stride;
}

static void find_cuts(struct cutting *c)
{
	size_t nr = 0, kept = 0;

	for (size_t i = 0; i < c->nr; i++)
		if (range_of(c, &c->m[i], &c->cut[nr], &c->cut[nr + 1]))
			nr += 2;
	qsort(c->cut, nr, sizeof(*c->cut), by_value);
	for (size_t i = 0; i < nr; i++)
		if (!kept || c->cut[kept - 1] != c->cut[i])
			c->cut[kept++] = c->cut[i];
	c->nr_cuts = kept;
}

/* The part itself becomes its first stretch; the others are new. */
static int cut_part(struct cutting *c, const struct member *m,
		    struct ck_err *why)
{
	struct ck_asm_work *w = c->w;
	const struct ck_asm_placed whole = w->parts.v[m->at];
	uint64_t lo, hi, size = ck_dtype_info(whole.part.dtype)->size;
	size_t i, first;

	if (!range_of(c, m, &lo, &hi))
		return 0;
	i = first = CK_FIRST(k, 0, c->nr_cuts, c->cut[k] >= lo);
	for (; i + 1 < c->nr_cuts && c->cut[i] < hi; i++) {
		struct ck_asm_placed *to = i == first ? &w->parts.v[m->at] :
							ck_vec_push(&w->parts);

		if (i == first && c->cut[i + 1] >= hi)
			return 0; /* as it is */
		if (++c->made > MAX_PARTS)
			return ck_fail(why, EINVAL,
				       "its copies are cut in over 2^22 ways");
		if (!to)
			return ck_no_memory(why);
		*to = whole;
		to->part.full_len = NULL;
		to->part.flat =
			ck_arena_copy(&w->mem, &c->cut[i], 2 * sizeof(*c->cut));
		if (!to->part.flat)
			return ck_no_memory(why);
		if (w->j.a->pieces.v[whole.piece].stored)
			to->part.off += (c->cut[i] - lo) * size;
	}
	return 0;
}

static int cut_box(struct cutting *c, struct ck_err *why)
{
	bool any = false;
	int ret = 0;

	for (size_t i = 0; i < c->nr; i++)
		any |= c->m[i].flat;
	if (!any || c->nr < 2)
		return 0;
	find_cuts(c);
	for (size_t i = 0; i < c->nr && !ret; i++)
		ret = cut_part(c, &c->m[i], why);
	return ret;
}

int ck_asm_cut_stretches(struct ck_asm_work *w, struct ck_err *why)
{
	struct cutting c = { .w = w };
	size_t nr = w->parts.nr, end;
	struct member *m;
	bool any = false;
	int ret = 0;

	for (size_t i = 0; i < nr; i++)
		any = any || w->parts.v[i].part.flat;
	if (!any)
		return 0;
	m = reallocarray(NULL, nr, sizeof(*m));
	c.cut = reallocarray(NULL, 2 * nr, sizeof(*c.cut));
	if (!m || !c.cut)
		ret = ck_no_memory(why);
	for (size_t i = 0; i < nr && !ret; i++)
		m[i] = member_of(w, i);
	if (!ret)
		qsort(m, nr, sizeof(*m), by_box);
	for (size_t i = 0; i < nr && !ret; i = end) {
		for (end = i + 1; end < nr && m[end].box == m[i].box;)
			end++;
		c.m = m + i;
		c.nr = end - i;
		ret = cut_box(&c, why);
	}
	free(m);
	free(c.cut);
	return ret;
}
