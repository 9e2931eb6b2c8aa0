/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank_set.h - ranks that there are, and those that are lacking
 *
 * One thread.
 */
#ifndef CK_RANK_SET_H
#define CK_RANK_SET_H

#include "core/base/str.h"
#include "core/base/vec.h"

#include <stdint.h>

struct ck_rank_set {
	CK_VEC(uint64_t) v; /* ascending, each once, once it was sorted */
};

void ck_rank_set_free(struct ck_rank_set *s);
#define ck_auto_rank_set __attribute__((cleanup(ck_rank_set_free)))

/* False: no memory. */
bool ck_rank_set_add(struct ck_rank_set *s, uint64_t rank);
/* True: some were there twice; the lowest of them is *@twice, if not NULL. */
bool ck_rank_set_sort(struct ck_rank_set *s, uint64_t *twice);

/* The first of ranks [from, end) that is lacking; @end: none is. */
uint64_t ck_rank_set_next(const struct ck_rank_set *s, uint64_t from,
			  uint64_t end);
/*
 * How many of ranks [from, end) are lacking.  The first @max of them are put
 * into @out as @name and at least @width digits: "dist-00001, dist-00004 and 7
 * more".
 */
uint64_t ck_rank_set_lack(const struct ck_rank_set *s, uint64_t from,
			  uint64_t end, const char *name, int width,
			  unsigned max, struct ck_str *out);

#endif
