/* SPDX-License-Identifier: Apache-2.0 */
/* deal.c - ranges -> pieces, their readers and rounds */
#include "core/comm/deal.h"

#include "core/base/check.h"
#include "core/base/limits.h"
#include "core/base/search.h"
#include "core/base/vec.h"

#include <errno.h>
#include <string.h>

static int by_place(const void *pa, const void *pb)
{
	const struct ck_deal_range *a = pa, *b = pb;

	return ck_order2(a->src, b->src, a->lo, b->lo);
}

/* One of those that are not further apart than @gap. */
static size_t join(struct ck_deal_range *v, size_t nr, uint64_t gap)
{
	size_t to = 0;

	for (size_t i = 1; i < nr; i++) {
		if (v[i].src == v[to].src &&
		    (v[i].lo <= v[to].hi || v[i].lo - v[to].hi <= gap))
			v[to].hi = CK_MAX(v[to].hi, v[i].hi);
		else
			v[++to] = v[i];
	}
	return nr ? to + 1 : 0;
}

size_t ck_deal_tidy(struct ck_deal_range *v, size_t nr, size_t most)
{
	uint32_t srcs = 0;

	for (size_t i = 1; i < nr; i++)
		if (by_place(&v[i - 1], &v[i]) > 0) {
			qsort(v, nr, sizeof(*v), by_place);
			break;
		}
	nr = join(v, nr, 0);
	for (size_t i = 0; i < nr; i++)
		srcs += !i || v[i].src != v[i - 1].src;
	for (uint64_t gap = CK_DEAL_PAGE; nr > CK_MAX(most, (size_t)srcs);
	     gap *= 2)
		nr = join(v, nr, gap);
	return nr;
}

bool ck_deal_is_tidy(const struct ck_deal_range *v, size_t nr, uint32_t nr_srcs)
{
	for (size_t i = 0; i < nr; i++) {
		if (v[i].src >= nr_srcs || v[i].lo >= v[i].hi ||
		    v[i].hi > CK_SIZE_MAX)
			return false;
		if (i && (v[i - 1].src > v[i].src ||
			  (v[i - 1].src == v[i].src && v[i - 1].hi >= v[i].lo)))
			return false;
	}
	return true;
}

/* What is being deal. */
struct cutting {
	CK_VEC(struct ck_deal_piece) pieces;
	CK_VEC(uint32_t) rounds;
	uint64_t *used, *full; /* full: bytes of the slot, of each reader */
	unsigned readers;
	uint64_t block;
};

static unsigned least(const struct cutting *c)
{
	unsigned low = 0;

	for (unsigned i = 1; i < c->readers; i++)
		if (c->used[i] < c->used[low])
			low = i;
	return low;
}

static bool add_round(struct cutting *c)
{
	uint32_t *first = ck_vec_push(&c->rounds);

	if (!first)
		return false;
	*first = (uint32_t)c->pieces.nr;
	memset(c->full, 0, c->readers * sizeof(*c->full));
	return true;
}

/* @most: bytes that there are, of the last page too. */
static bool add_piece(struct cutting *c, uint32_t src, uint64_t lo, uint64_t hi,
		      uint64_t most)
{
	unsigned reader = least(c);
	uint64_t len = hi - lo;
	struct ck_deal_piece *p;

	if ((!c->rounds.nr || c->full[reader] + len > c->block) &&
	    !add_round(c))
		return false;
	p = ck_vec_push(&c->pieces);
	if (!p)
		return false;
	*p = (struct ck_deal_piece){ .lo = lo,
				     .len = (uint32_t)len,
				     .src = src,
				     .at = (uint32_t)c->full[reader],
				     .reader = (uint16_t)reader };
	c->full[reader] += len;
	c->used[reader] += CK_MIN(len, most - lo);
	return true;
}

/* Pages of [lo, hi) that are behind @from, which is moved on. */
static int add_range(struct cutting *c, const struct ck_deal_range *r,
		     uint64_t *from)
{
	uint64_t lo = CK_MAX(r->lo / CK_DEAL_PAGE * CK_DEAL_PAGE, *from);
	uint64_t hi = CK_DIV_UP(r->hi, CK_DEAL_PAGE) * CK_DEAL_PAGE;

	if (lo < hi && (hi - lo) / c->block + c->pieces.nr + 2 > CK_MAX_CHUNKS)
		return -E2BIG;
	while (lo < hi) {
		uint64_t end = CK_MIN((lo / c->block + 1) * c->block, hi);

		if (!add_piece(c, r->src, lo, end, r->hi))
			return -ENOMEM;
		lo = end;
	}
	*from = CK_MAX(*from, hi);
	return 0;
}

int ck_deal_make(struct ck_deal *out, const struct ck_deal_range *v, size_t nr,
		 uint64_t *used, unsigned readers, uint64_t block,
		 struct ck_err *err)
{
	struct cutting c = { .used = used, .readers = readers, .block = block };
	uint64_t from = 0;
	int ret = 0;

	*out = (struct ck_deal){ 0 };
	c.full = calloc(readers, sizeof(*c.full));
	if (!c.full)
		return ck_no_memory(err);
	for (size_t i = 0; i < nr && !ret; i++) {
		if (i && v[i].src != v[i - 1].src)
			from = 0;
		ret = add_range(&c, &v[i], &from);
	}
	if (!ret && !add_round(&c)) /* where the last one ends */
		ret = -ENOMEM;
	free(c.full);
	*out = (struct ck_deal){ .v = c.pieces.v,
				 .nr = c.pieces.nr,
				 .first = c.rounds.v,
				 .nr_rounds = (uint32_t)c.rounds.nr - !ret };
	if (ret) {
		ck_deal_free(out);
		return ret == -ENOMEM ?
			       ck_no_memory(err) :
			       ck_fail(err, -ret, "more than %u blocks to read",
				       CK_MAX_CHUNKS);
	}
	return 0;
}

void ck_deal_free(struct ck_deal *deal)
{
	free(deal->v);
	free(deal->first);
	*deal = (struct ck_deal){ 0 };
}

static bool is_behind(uint32_t src, uint64_t end, uint32_t of, uint64_t off)
{
	return src > of || (src == of && end > off);
}

size_t ck_deal_find(const struct ck_deal *deal, uint32_t src, uint64_t off)
{
	const struct ck_deal_piece *v = deal->v;

	return CK_FIRST(i, 0, deal->nr,
			is_behind(v[i].src, v[i].lo + v[i].len, src, off));
}

size_t ck_deal_find_range(const struct ck_deal_range *v, size_t nr,
			  uint32_t src, uint64_t off)
{
	return CK_FIRST(i, 0, nr, is_behind(v[i].src, v[i].hi, src, off));
}

uint32_t ck_deal_round(const struct ck_deal *deal, size_t piece)
{
	if (piece >= deal->nr)
		return deal->nr_rounds;
	return CK_LAST(i, 0, deal->nr_rounds, deal->first[i] <= piece);
}
