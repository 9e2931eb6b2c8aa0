/* SPDX-License-Identifier: Apache-2.0 */
/* Who reads what, against a reader for each single byte. */
#include "core/comm/deal.h"

#include "core/base/check.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SRCS 3
#define N (64 * CK_DEAL_PAGE) /* bytes of each */
#define RANGES 60

struct world {
	struct ck_deal_range v[RANGES];
	unsigned char wanted[SRCS][N]; /* asked for */
	unsigned char seen[SRCS][N]; /* read, how often */
};

static size_t make_ranges(struct world *w, size_t nr, uint64_t longest)
{
	memset(w, 0, sizeof(*w));
	for (size_t i = 0; i < nr; i++) {
		struct ck_deal_range *r = &w->v[i];

		r->src = (uint32_t)random() % SRCS;
		r->lo = (uint64_t)random() % N;
		r->hi = r->lo + 1 + (uint64_t)random() % longest;
		r->hi = CK_MIN(r->hi, N);
		memset(w->wanted[r->src] + r->lo, 1, r->hi - r->lo);
	}
	return nr;
}

static void look(struct world *w, const struct ck_deal *deal, uint64_t block,
		 unsigned readers)
{
	uint64_t *full = calloc(readers, sizeof(*full));

	for (uint32_t r = 0; r < deal->nr_rounds; r++) {
		cr_assert_lt(deal->first[r], deal->first[r + 1],
			     "an empty one");
		memset(full, 0, readers * sizeof(*full));
		for (uint32_t i = deal->first[r]; i < deal->first[r + 1]; i++) {
			const struct ck_deal_piece *p = &deal->v[i];

			cr_assert_lt(p->reader, readers);
			cr_assert_eq(p->at, full[p->reader]);
			full[p->reader] += p->len;
			cr_assert_leq(full[p->reader], block);
			cr_assert_eq(p->lo / block,
				     (p->lo + p->len - 1) / block);
			cr_assert_eq(p->lo % CK_DEAL_PAGE, 0);
			cr_assert_eq(ck_deal_round(deal, i), r);
			cr_assert_eq(ck_deal_find(deal, p->src, p->lo), i);
			cr_assert_eq(
				ck_deal_find(deal, p->src, p->lo + p->len - 1),
				i);
			for (uint64_t k = p->lo; k < p->lo + p->len; k++)
				w->seen[p->src][k]++;
		}
	}
	free(full);
	cr_assert_eq(ck_deal_round(deal, deal->nr), deal->nr_rounds);
	for (unsigned s = 0; s < SRCS; s++)
		for (uint64_t page = 0; page < N; page += CK_DEAL_PAGE) {
			unsigned char *at = w->wanted[s] + page;
			bool any = memchr(at, 1, CK_DEAL_PAGE);

			for (uint64_t k = page; k < page + CK_DEAL_PAGE; k++)
				cr_assert_eq(w->seen[s][k], any,
					     "byte %llu of %u: %u times",
					     (unsigned long long)k, s,
					     w->seen[s][k]);
		}
}

/* Every byte that is wanted is read once, and each reader reads as much. */
Test(deal, each_byte_once)
{
	static struct world w;
	struct ck_err err = { 0 };

	for (unsigned seed = 0; seed < 400; seed++) {
		unsigned readers = 1 + seed % 8;
		uint64_t block = CK_DEAL_PAGE << seed % 4, used[8] = { 0 };
		uint64_t low = UINT64_MAX, high = 0;
		struct ck_deal deal;
		size_t nr;

		srandom(seed);
		nr = make_ranges(&w, (size_t)random() % RANGES,
				 seed % 3 ? 300 : 5 * CK_DEAL_PAGE);
		nr = ck_deal_tidy(w.v, nr, RANGES);
		cr_assert(ck_deal_is_tidy(w.v, nr, SRCS));
		cr_assert_eq(ck_deal_make(&deal, w.v, nr, used, readers, block,
					  &err),
			     0);
		look(&w, &deal, block, readers);
		for (unsigned i = 0; i < readers; i++) {
			low = CK_MIN(low, used[i]);
			high = CK_MAX(high, used[i]);
		}
		cr_assert_leq(high - low, block);
		ck_deal_free(&deal);
	}
}

/* A stretch of a block's size never needs more than three rounds. */
Test(deal, rounds_of_a_block)
{
	static struct world w;
	struct ck_err err = { 0 };

	for (unsigned seed = 0; seed < 400; seed++) {
		unsigned readers = 1 + seed % 8;
		uint64_t block = CK_DEAL_PAGE << (2 + seed % 2);
		uint64_t used[8] = { seed * 100 };
		struct ck_deal deal;
		size_t nr;

		srandom(seed);
		nr = make_ranges(&w, RANGES, 3 * CK_DEAL_PAGE);
		nr = ck_deal_tidy(w.v, nr, RANGES);
		cr_assert_eq(ck_deal_make(&deal, w.v, nr, used, readers, block,
					  &err),
			     0);
		for (size_t i = 0; i < deal.nr; i++) {
			const struct ck_deal_piece *p = &deal.v[i];
			uint64_t end = (p->lo / block + 1) * block;
			size_t last = ck_deal_find(&deal, p->src, end);

			if (last == deal.nr || deal.v[last].src != p->src)
				continue;
			cr_assert_leq(ck_deal_round(&deal, last) -
					      ck_deal_round(&deal, i),
				      2);
		}
		ck_deal_free(&deal);
	}
}

/* What is too much for the list is wanted with the gaps; nothing is lost. */
Test(deal, few)
{
	static struct world w;

	for (unsigned seed = 0; seed < 200; seed++) {
		size_t most = 1 + seed % 20, nr, at;

		srandom(seed);
		nr = make_ranges(&w, RANGES, 200);
		nr = ck_deal_tidy(w.v, nr, most);
		cr_assert_leq(nr, CK_MAX(most, (size_t)SRCS));
		cr_assert(ck_deal_is_tidy(w.v, nr, SRCS));
		for (uint32_t s = 0; s < SRCS; s++)
			for (uint64_t k = 0; k < N; k++) {
				if (!w.wanted[s][k])
					continue;
				at = ck_deal_find_range(w.v, nr, s, k);
				cr_assert_lt(at, nr);
				cr_assert_eq(w.v[at].src, s);
				cr_assert_leq(w.v[at].lo, k);
			}
	}
}

Test(deal, not_tidy)
{
	struct ck_deal_range v[2] = { { 0, 10, 0, 0 }, { 20, 30, 0, 0 } };

	cr_assert(ck_deal_is_tidy(v, 2, 1));
	cr_assert_not(ck_deal_is_tidy(v, 2, 0), "a source that is not there");
	v[1].lo = 10;
	cr_assert_not(ck_deal_is_tidy(v, 2, 1), "they touch");
	v[1].lo = 30;
	cr_assert_not(ck_deal_is_tidy(v, 2, 1), "nothing");
	v[1] = (struct ck_deal_range){ 20, UINT64_MAX, 0, 0 };
	cr_assert_not(ck_deal_is_tidy(v, 2, 1), "too far");
	v[1] = (struct ck_deal_range){ 0, 5, 0, 0 };
	cr_assert_not(ck_deal_is_tidy(v, 2, 1), "not sorted");
}

/* More than anybody has memory for is refused before any is had. */
Test(deal, too_much)
{
	struct ck_deal_range v = { 0, CK_SIZE_MAX, 0, 0 };
	struct ck_err err = { 0 };
	uint64_t used[1] = { 0 };
	struct ck_deal deal;

	cr_assert_eq(ck_deal_make(&deal, &v, 1, used, 1, 8 << 20, &err),
		     -E2BIG);
	cr_assert(strstr(err.msg, "blocks"));
}
