/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_paths.c - which entries of dcp/ nest as they were saved
 *
 * A loader builds dicts and lists from the paths, and then asks for the names
 * that their parts joined by dots give.  So a path is said only where that is
 * the name, and where the list that it leads through has no hole, which a
 * loader would fill and then not find: what is lost or left out makes holes.
 *
 * Readers take the order of the paths for that of the program's keys, so it is
 * kept; where none is known, none may seem to be.
 */
#include "core/view/dcp/dcp_layout.h"

#include "core/base/auto.h"
#include "core/base/search.h"
#include "core/view/nest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64 /* of a path that is looked at */

void ck_dcp_entry_path(const struct ck_dcp_layout *l, uint32_t entry,
		       uint32_t *path, uint32_t *name)
{
	const struct ck_catalog *img = l->view->img;
	uint32_t ref = l->entry.v[entry].ref;
	bool object = ck_dcp_is_object(l, entry);

	*path = object ? img->objects[ref].path : img->tensors[ref].path;
	*name = object ? img->objects[ref].name : img->tensors[ref].name;
}

static bool is_joined(const struct ck_catalog *img, uint32_t path,
		      uint32_t name)
{
	size_t len;
	const char *s = ck_catalog_str(img, name, &len), *end = s + len;
	unsigned depth = ck_nest_path_depth(img, path);

	for (unsigned i = 0; i < depth; i++) {
		struct ck_nest_part p = ck_nest_path_part(img, path, name, i);
		char number[24];

		if (!p.key) {
			p.len = (size_t)snprintf(number, sizeof(number),
						 "%" PRIu64, p.index);
			p.key = number;
		}
		if ((i && (s == end || *s++ != '.')) ||
		    (size_t)(end - s) < p.len || memcmp(s, p.key, p.len) != 0)
			return false;
		s += p.len;
	}
	return s == end;
}

static struct ck_nest_part part_of(const struct ck_dcp_layout *l,
				   uint32_t entry, unsigned level)
{
	uint32_t path, name;

	ck_dcp_entry_path(l, entry, &path, &name);
	return ck_nest_path_part(l->view->img, path, name, level);
}

static unsigned depth_of(const struct ck_dcp_layout *l, uint32_t entry)
{
	uint32_t path, name;

	ck_dcp_entry_path(l, entry, &path, &name);
	return ck_nest_path_depth(l->view->img, path);
}

static struct ck_nest_path path_of(const struct ck_dcp_layout *l,
				   uint32_t entry)
{
	uint32_t path, name;

	ck_dcp_entry_path(l, entry, &path, &name);
	return ck_nest_path_of(l->view->img, path, name);
}

static unsigned common(const struct ck_dcp_layout *l, uint32_t a, uint32_t b)
{
	struct ck_nest_path pa = path_of(l, a), pb = path_of(l, b);

	return ck_nest_paths_common(&pa, &pb);
}

static int path_order(const void *pa, const void *pb, void *ctx)
{
	struct ck_nest_path a = path_of(ctx, *(const uint32_t *)pa);
	struct ck_nest_path b = path_of(ctx, *(const uint32_t *)pb);

	return ck_nest_paths_cmp(&a, &b);
}

/* The dicts and lists that lead to the entry before, outermost first. */
struct open {
	struct ck_dcp_layout *l;
	const uint32_t *order;
	uint32_t first[MAX_DEPTH]; /* in @order: what is in it begins here */
	bool hole[MAX_DEPTH];
	unsigned depth; /* of @last */
	uint32_t last; /* the entry before that is not flat */
};

/* Closes those from level @level on; what comes after them is at @end. */
static void close_from(struct open *o, unsigned level, uint32_t end)
{
	while (o->depth > level) {
		o->depth--;
		for (uint32_t i = o->first[o->depth];
		     o->hole[o->depth] && i < end; i++)
			o->l->entry.v[o->order[i]].flat = true;
	}
}

/* Whether @now comes right after @before; @before NULL: whether it is first. */
static bool follows(const struct ck_nest_part *before,
		    const struct ck_nest_part *now)
{
	if (now->key)
		return !before || before->key;
	return before ? !before->key && before->index + 1 == now->index :
			now->index == 0;
}

static void take(struct open *o, uint32_t i)
{
	uint32_t now = o->order[i];
	unsigned depth = depth_of(o->l, now);
	unsigned same = o->depth ? common(o->l, o->last, now) : 0;

	/* below what is no dict or list, or the same once more */
	if (depth > MAX_DEPTH || same == depth ||
	    (o->depth && same == o->depth)) {
		o->l->entry.v[now].flat = true;
		return;
	}
	close_from(o, same + 1, i);
	for (unsigned d = same; d < depth; d++) {
		struct ck_nest_part part = part_of(o->l, now, d), before;

		if (d < o->depth) {
			before = part_of(o->l, o->last, d);
			o->hole[d] |= !follows(&before, &part);
			continue;
		}
		o->first[d] = i;
		o->hole[d] = !follows(NULL, &part);
		o->depth = d + 1;
	}
	o->last = now;
}

int ck_dcp_paths_resolve(struct ck_dcp_layout *l, struct ck_err *err)
{
	ck_auto_free uint32_t *order = calloc(l->entry.nr + 1, sizeof(*order));
	struct open o = { .l = l, .order = order };
	uint32_t nr = 0, path, name;

	if (!order)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < l->entry.nr; i++) {
		ck_dcp_entry_path(l, i, &path, &name);
		l->entry.v[i].flat = !is_joined(l->view->img, path, name);
		if (!l->entry.v[i].flat)
			order[nr++] = i;
	}
	if (nr)
		qsort_r(order, nr, sizeof(*order), path_order, l);
	for (uint32_t i = 0; i < nr; i++)
		take(&o, i);
	close_from(&o, 0, nr);
	return 0;
}

/* ---- their order ---- */

struct planned {
	uint64_t at; /* place in the order; of unknown ones, see below */
	uint32_t entry;
	bool known;
};

static int by_place(const void *pa, const void *pb)
{
	const struct planned *a = pa, *b = pb;

	if (a->known != b->known)
		return a->known ? -1 : 1;
	return ck_order2(a->at, b->at, a->entry, b->entry);
}

static uint32_t order_of(const struct ck_dcp_layout *l, uint32_t entry)
{
	const struct ck_catalog *img = l->view->img;
	uint32_t ref = l->entry.v[entry].ref;

	return ck_dcp_is_object(l, entry) ? img->objects[ref].order :
					    img->tensors[ref].order;
}

/* Tensors evenly among objects: what param_groups have has gaps then. */
static uint64_t spread(const struct ck_dcp_layout *l, uint32_t entry)
{
	uint64_t nr_tensors = l->entry.nr - l->nr_objects;

	return ck_dcp_is_object(l, entry) ?
		       entry * nr_tensors :
		       (uint64_t)(entry - l->nr_objects) * l->nr_objects;
}

int ck_dcp_paths_plan(struct ck_dcp_layout *l, struct ck_err *err)
{
	ck_auto_free struct planned *v = calloc(l->entry.nr + 1, sizeof(*v));

	l->planned = calloc(l->entry.nr + 1, sizeof(*l->planned));
	if (!v || !l->planned)
		return ck_no_memory(err);
	for (uint32_t i = 0; i < l->entry.nr; i++) {
		uint32_t order = order_of(l, i);

		v[i] = (struct planned){ .at = order ? order : spread(l, i),
					 .entry = i,
					 .known = order != 0 };
	}
	if (l->entry.nr)
		qsort(v, l->entry.nr, sizeof(*v), by_place);
	for (uint32_t i = 0; i < l->entry.nr; i++)
		l->planned[i] = v[i].entry;
	return 0;
}
