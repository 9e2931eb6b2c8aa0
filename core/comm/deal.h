/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deal.h - who of several reads which bytes
 *
 * What any of them wants, in whole blocks of storage, is cut where offsets are
 * multiples of a block; each piece has one reader, and all readers the same number
 * of bytes, but for a block.  Pieces come in rounds: what one reads for a round
 * goes into one slot of a block's size.
 *
 * Pure, but for allocation: from the same input the same everywhere.
 */
#ifndef CK_DEAL_H
#define CK_DEAL_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_DEAL_PAGE UINT64_C(4096) /* what any storage known takes */

struct ck_deal_range {
	uint64_t lo, hi; /* bytes of the source; lo < hi */
	uint32_t src, pad;
};

struct ck_deal_piece {
	uint64_t lo;
	uint32_t len, src;
	uint32_t at; /* in the slot */
	uint16_t reader;
	bool bad; /* it could not be read */
};

struct ck_deal {
	struct ck_deal_piece *v; /* by source and offset */
	size_t nr;
	uint32_t *first; /* of each round, and where the last one ends */
	uint32_t nr_rounds;
};

/*
 * Sorts, makes one of those that overlap or touch, and of those with the smallest
 * gaps until there are no more than @most; returns how many there are.
 */
size_t ck_deal_tidy(struct ck_deal_range *v, size_t nr, size_t most);
/* Whether they are as tidy() leaves them, of sources below @nr_srcs. */
bool ck_deal_is_tidy(const struct ck_deal_range *v, size_t nr,
		     uint32_t nr_srcs);
/*
 * Of tidy ranges.  @used: bytes of each reader so far, which this adds to; of the last
 * page of a range those that are in it, for a file may end there.
 * @block: a power of two, whole pages.
 */
int ck_deal_make(struct ck_deal *out, const struct ck_deal_range *v, size_t nr,
		 uint64_t *used, unsigned readers, uint64_t block,
		 struct ck_err *err);
void ck_deal_free(struct ck_deal *deal);
/* The first piece that ends behind @off of @src; deal->nr: none. */
size_t ck_deal_find(const struct ck_deal *deal, uint32_t src, uint64_t off);
/* The first of tidy ranges that ends behind it; @nr: none. */
size_t ck_deal_find_range(const struct ck_deal_range *v, size_t nr,
			  uint32_t src, uint64_t off);
/* Of piece @i; nr_rounds where @i is deal->nr. */
uint32_t ck_deal_round(const struct ck_deal *deal, size_t i);

#endif
