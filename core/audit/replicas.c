/* SPDX-License-Identifier: Apache-2.0 */
/* replicas.c - sorts pieces so that what is to be compared is side by side */
#include "core/audit/replicas.h"

#include "core/base/check.h"
#include "core/base/search.h"

#include <stdlib.h>

#define MAX_CANDIDATES 66 /* for what most are: all of very many are no use */

void ck_audit_pieces_free(struct ck_audit_pieces *p)
{
	free(p->v.v);
	*p = (struct ck_audit_pieces){ 0 };
}

bool ck_audit_pieces_add(struct ck_audit_pieces *p,
			 const struct ck_audit_piece *piece)
{
	uint32_t at = (uint32_t)p->v.nr;
	struct ck_audit_piece *to = ck_vec_push(&p->v);

	if (!to)
		return false;
	*to = *piece;
	to->at = at;
	return true;
}

static int by_group(const void *pa, const void *pb)
{
	const struct ck_audit_piece *a = pa, *b = pb;

	return ck_order2(a->group, b->group, a->at, b->at);
}

static int by_part(const void *pa, const void *pb)
{
	const struct ck_audit_piece *a = pa, *b = pb;
	int way = ck_order(a->group, b->group);

	return way ? way : ck_order2(a->part, b->part, a->at, b->at);
}

static int by_like(const void *pa, const void *pb)
{
	const struct ck_audit_piece *a = pa, *b = pb;
	int way = ck_order(a->group, b->group);

	return way ? way : ck_order2(a->like, b->like, a->part, b->part);
}

static void sort(struct ck_audit_pieces *p,
		 int (*by)(const void *, const void *))
{
	if (p->v.nr)
		qsort(p->v.v, p->v.nr, sizeof(*p->v.v), by);
}

static bool are_alike(const struct ck_audit_piece *a,
		      const struct ck_audit_piece *b)
{
	return a->like == b->like && a->form == b->form;
}

/* ---- parts ---- */

void ck_audit_parts(struct ck_audit_pieces *p, struct ck_audit_parts *out)
{
	const struct ck_audit_piece *first = NULL;
	uint32_t before = out->same ? 0 : UINT32_MAX; /* only pairs before it */

	sort(p, by_group);
	for (size_t i = 0; i < p->v.nr; i++) {
		const struct ck_audit_piece *x = &p->v.v[i];

		if (!first || first->group != x->group)
			first = x;
		if (x->part == first->part)
			continue;
		out->differ |= x->form != first->form;
		if (!x->like || !first->like || x->form != first->form)
			continue;
		out->differ |= x->like != first->like;
		out->constant += x->like == first->like && first->constant;
		if (x->like != first->like || first->constant)
			continue;
		out->same++;
		if (x->at >= before)
			continue;
		before = x->at;
		out->a = first->file;
		out->b = x->file;
	}
}

bool ck_audit_all_twice(struct ck_audit_pieces *p)
{
	const struct ck_audit_piece *v = p->v.v;
	size_t end;

	sort(p, by_like);
	for (size_t i = 0; i < p->v.nr; i = end) {
		for (end = i + 1; end < p->v.nr && v[end].group == v[i].group &&
				  v[end].like == v[i].like;)
			end++;
		if (v[end - 1].part == v[i].part)
			return false;
	}
	return p->v.nr;
}

/* ---- copies ---- */

/* How many copies of one group differ from the first of their part, if all. */
static size_t nr_bad(const struct ck_audit_piece *v, size_t nr)
{
	size_t first = 0, bad = 0;

	for (size_t i = 1; i < nr; i++) {
		if (v[i].part != v[first].part)
			first = i;
		else if (are_alike(&v[i], &v[first]))
			return 0;
		else
			bad++;
	}
	return bad;
}

bool ck_audit_none_agree(struct ck_audit_pieces *p)
{
	const struct ck_audit_piece *v = p->v.v;
	size_t end;

	sort(p, by_part);
	for (size_t i = 0; i < p->v.nr; i = end) {
		for (end = i + 1; end < p->v.nr && v[end].group == v[i].group;)
			end++;
		if (nr_bad(&v[i], end - i) > 1)
			return true;
	}
	return false;
}

/* The first of those that more than half are as; NULL: there is none. */
static const struct ck_audit_piece *majority(const struct ck_audit_pieces *p)
{
	const struct ck_audit_piece *v = p->v.v;
	size_t known = 0;

	for (size_t i = 0; i < p->v.nr; i++)
		known += v[i].like != 0;
	for (size_t i = 0; i < CK_MIN(p->v.nr, MAX_CANDIDATES); i++) {
		size_t same = 0;

		for (size_t k = 0; k < p->v.nr; k++)
			same += v[i].like && are_alike(&v[i], &v[k]);
		if (2 * same > known)
			return &v[i];
	}
	return NULL;
}

void ck_audit_count_odd(const struct ck_audit_pieces *p,
			struct ck_audit_odd *odd)
{
	const struct ck_audit_piece *best = majority(p);

	for (size_t i = 0; i < p->v.nr; i++) {
		const struct ck_audit_piece *x = &p->v.v[i];
		struct ck_audit_odd *mine = &odd[x->file];

		if (!x->like)
			continue;
		mine->compared++;
		if (best && are_alike(x, best))
			continue;
		mine->odd++;
		mine->lonely += !best;
	}
}
