/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words.h - "pp=2,tp=4,dim0=8,layers=11+13,rules=llama": between words.c, which
 * reads the words, and what they need to know of tensors
 */
#ifndef CK_RS_WORDS_H
#define CK_RS_WORDS_H

#include "core/reshard/spec.h"

/* ---- source.c: how the source itself was split ---- */

enum ck_rs_how {
	CK_RS_WHOLE, /* nothing splits it */
	CK_RS_SPLIT,
	CK_RS_UNKNOWN, /* it is, but along no one dimension */
};

struct ck_rs_split {
	enum ck_rs_how how;
	unsigned dim;
	/* it is blocks, each split by itself; rows of each */
	unsigned nr_blocks;
	uint64_t block[CK_RS_WEIGHTS];
};
void ck_rs_split_of(const struct ck_image *img, uint32_t tensor,
		    struct ck_rs_split *out);

/* ---- layers.c: which pipeline stage a tensor belongs to ---- */

enum { CK_RS_STAGE_FIRST = -1, CK_RS_STAGE_LAST = -2, CK_RS_STAGE_ALL = -3 };

/* The number of the layer that @name is in, or one of the above. */
int64_t ck_rs_layer(const char *name, size_t len);
/*
 * Layers of each stage: the numbers of @given, which must make @layers, or
 * with @given NULL equal ones, those left over to the stages from the middle
 * on.  @begin has @stages + 1 values.
 */
int ck_rs_stages(uint64_t *begin, unsigned stages, const uint64_t *given,
		 uint64_t layers, struct ck_err *err);

#endif
