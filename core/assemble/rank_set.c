/* SPDX-License-Identifier: Apache-2.0 */
/* rank_set.c - sorted numbers */
#include "core/assemble/rank_set.h"

#include "core/base/search.h"

#include <inttypes.h>
#include <stdlib.h>

void ck_rank_set_free(struct ck_rank_set *s)
{
	free(s->v.v);
	*s = (struct ck_rank_set){ 0 };
}

bool ck_rank_set_add(struct ck_rank_set *s, uint64_t rank)
{
	uint64_t *to = ck_vec_push(&s->v);

	if (to)
		*to = rank;
	return to;
}

static int by_value(const void *pa, const void *pb)
{
	const uint64_t *a = pa, *b = pb;

	return *a < *b ? -1 : *a > *b;
}

bool ck_rank_set_sort(struct ck_rank_set *s, uint64_t *twice)
{
	bool any = false;
	size_t nr = 0;

	if (s->v.nr)
		qsort(s->v.v, s->v.nr, sizeof(*s->v.v), by_value);
	for (size_t i = 0; i < s->v.nr; i++) {
		if (!i || s->v.v[i] != s->v.v[nr - 1]) {
			s->v.v[nr++] = s->v.v[i];
			continue;
		}
		if (!any && twice)
			*twice = s->v.v[i];
		any = true;
	}
	s->v.nr = nr;
	return any;
}

/* The number of the first that is @rank or more. */
static size_t at_least(const struct ck_rank_set *s, uint64_t rank)
{
	return CK_FIRST(i, 0, s->v.nr, s->v.v[i] >= rank);
}

uint64_t ck_rank_set_next(const struct ck_rank_set *s, uint64_t from,
			  uint64_t end)
{
	for (size_t i = at_least(s, from);
	     from < end && i < s->v.nr && s->v.v[i] == from; i++)
		from++;
	return from;
}

uint64_t ck_rank_set_lack(const struct ck_rank_set *s, uint64_t from,
			  uint64_t end, const char *name, int width,
			  unsigned max, struct ck_str *out)
{
	uint64_t have = at_least(s, end) - at_least(s, from);
	uint64_t lacking = end - from - have;
	unsigned named = 0;

	for (uint64_t n = ck_rank_set_next(s, from, end);
	     n < end && named < max; n = ck_rank_set_next(s, n + 1, end))
		ck_str_fmt(out, "%s%s%0*" PRIu64, named++ ? ", " : "", name,
			   width, n);
	if (lacking > named)
		ck_str_fmt(out, " and %" PRIu64 " more", lacking - named);
	return lacking;
}
