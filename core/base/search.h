/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.h - orders, and bisection of anything that has one
 *
 *	CK_FIRST(i, 0, v.nr, v.v[i].end > off)	the one that holds byte off
 *	CK_LAST(i, 0, v.nr, v.v[i].off <= off)	the last that begins there or before
 */
#ifndef CK_SEARCH_H
#define CK_SEARCH_H

#include <stdint.h>

/* For qsort(): by a number, and by another where that is the same. */
static inline int ck_order(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static inline int ck_order2(uint64_t a, uint64_t b, uint64_t then_a,
			    uint64_t then_b)
{
	return a != b ? ck_order(a, b) : ck_order(then_a, then_b);
}

/*
 * The first @i of [from, to) for which @holds, an expression of @i that is
 * false up to some place and true from there on; @to where there is none,
 * @from where to < from.  Its type is that of @to.
 */
#define CK_FIRST(i, from, to, holds)                                       \
	({                                                                 \
		__typeof__((to) + 0) first_lo_ = (from), first_hi_ = (to); \
                                                                           \
		while (first_lo_ < first_hi_) {                            \
			const __typeof__((to) + 0) i =                     \
				first_lo_ + (first_hi_ - first_lo_) / 2;   \
                                                                           \
			if (holds)                                         \
				first_hi_ = i;                             \
			else                                               \
				first_lo_ = i + 1;                         \
		}                                                          \
		first_lo_;                                                 \
	})

/* The last for which @holds, which is true up to some place; else @from. */
#define CK_LAST(i, from, to, holds) (CK_FIRST(i, (from) + 1, to, !(holds)) - 1)

#endif
