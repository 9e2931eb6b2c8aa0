/* SPDX-License-Identifier: Apache-2.0 */
/*
 * element_ranges.c - stretches of elements: joined, counted, and the box around
 * them
 *
 * A column of a large tensor may be millions of stretches: those beyond MOST
 * are counted, not kept, and then there is no list.
 */
#include "core/manifest/corrupt_elements.h"

#include "core/base/check.h"

#include <stdlib.h>
#include <string.h>

#define MOST ((size_t)1 << 20)

static int by_start(const void *a, const void *b)
{
	const struct ck_element_range *x = a, *y = b;

	return (x->start > y->start) - (x->start < y->start);
}

static void join(struct ck_element_ranges *g)
{
	size_t kept = 0;

	if (g->nr)
		qsort(g->v, g->nr, sizeof(*g->v), by_start);
	for (size_t i = 0; i < g->nr; i++) {
		struct ck_element_range *last = kept ? &g->v[kept - 1] : NULL;

		if (last && g->v[i].start <= last->end)
			last->end = CK_MAX(last->end, g->v[i].end);
		else
			g->v[kept++] = g->v[i];
	}
	g->nr = kept;
}

static bool make_room(struct ck_element_ranges *g)
{
	size_t room = g->room ? 2 * g->room : 64;
	struct ck_element_range *grown;

	if (g->nr < g->room)
		return true;
	if (g->room >= MOST) {
		join(g);
		return g->nr < g->room / 2;
	}
	grown = reallocarray(g->v, room, sizeof(*grown));
	if (!grown) {
		g->failed = true;
		return false;
	}
	g->v = grown;
	g->room = room;
	return true;
}

void ck_element_ranges_add(struct ck_element_ranges *g, uint64_t off,
			   uint64_t len)
{
	uint64_t start = off / g->elem;
	uint64_t end = CK_DIV_UP(off + len, g->elem);

	if (!g->nr && !g->lost)
		g->low = start;
	g->low = CK_MIN(g->low, start);
	g->high = CK_MAX(g->high, end);
	if (g->nr && g->v[g->nr - 1].end == start)
		g->v[g->nr - 1].end = end;
	else if (!g->lost && make_room(g))
		g->v[g->nr++] = (struct ck_element_range){ start, end };
	else
		g->lost += end - start;
}

static void take_box(struct ck_corrupt_elements *out, unsigned rank,
		     const struct ck_box *box)
{
	for (unsigned d = 0; d < rank; d++) {
		uint64_t end = box->start[d] + box->len[d];

		out->start[d] = CK_MIN(out->start[d], box->start[d]);
		out->end[d] = CK_MAX(out->end[d], end);
	}
}

static void bound(const struct ck_element_ranges *g, const uint64_t *dims,
		  unsigned rank, struct ck_corrupt_elements *out)
{
	struct ck_element_range all = { g->low, g->high };

	memset(out->start, 0xff, sizeof(out->start));
	memset(out->end, 0, sizeof(out->end));
	for (size_t i = 0; i < (g->lost ? 1 : g->nr); i++) {
		const struct ck_element_range *s = g->lost ? &all : &g->v[i];
		struct ck_range r;
		struct ck_box box;

		ck_range_init(&r, dims, rank, s->start, s->end);
		while (ck_range_next(&r, &box))
			take_box(out, rank, &box);
	}
}

void ck_element_ranges_end(struct ck_element_ranges *g,
			   const struct ck_catalog *img,
			   const struct ck_tensor *t,
			   struct ck_corrupt_elements *out)
{
	join(g);
	out->nr_elements = g->lost;
	for (size_t i = 0; i < g->nr; i++)
		out->nr_elements += g->v[i].end - g->v[i].start;
	out->v = g->lost ? NULL : g->v;
	out->nr = g->lost ? 0 : g->nr;
	if (out->nr_elements)
		bound(g, img->dims + t->shape, t->rank, out);
}

void ck_element_ranges_free(struct ck_element_ranges *g)
{
	free(g->v);
	*g = (struct ck_element_ranges){ 0 };
}
