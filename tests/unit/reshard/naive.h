/* SPDX-License-Identifier: Apache-2.0 */
/*
 * naive.h - cuts as lists of indices, dealt out as the frameworks say it
 */
#ifndef RESHARD_NAIVE_H
#define RESHARD_NAIVE_H

#include "core/reshard/reshard.h"

#define NAIVE_MAX 64

/* Indices along one dimension that somebody holds, in their order. */
struct naive {
	unsigned nr, v[NAIVE_MAX];
};

struct naive naive_all(unsigned nr);
/* torch.chunk(in, parts)[i]; nothing where there are fewer chunks. */
struct naive naive_chunk(const struct naive *in, unsigned parts, unsigned i);
/* Each of torch.chunk(in, factor) chunked again, the i-th ones together. */
struct naive naive_strided(const struct naive *in, unsigned factor,
			   unsigned parts, unsigned i);
/* The first nr % parts have one more. */
struct naive naive_balanced(const struct naive *in, unsigned parts, unsigned i);

/*
 * Fails the test unless @rank holds @want of @tensor: "[0:2, 0:8]", in pieces
 * "[0:1+4:5, 0:8]", NULL: nothing.
 */
void naive_holds(const struct ck_reshard *rs, uint32_t rank, uint32_t tensor,
		 const char *want);

/* Fails the test unless @part is the elements of @want, in their order. */
void naive_compare(const struct ck_reshard_part *part, const uint64_t *shape,
		   unsigned rank, const struct naive *want);

#endif
