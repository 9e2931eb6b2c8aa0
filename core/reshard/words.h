/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words.h - "pp=2,tp=4,dim0=8,layers=11+13,rules=llama": between words.c, which
 * reads the words, and what they need to know of tensors
 */
#ifndef CK_RESHARD_WORDS_H
#define CK_RESHARD_WORDS_H

#include "core/base/strmap.h"
#include "core/reshard/spec.h"

/* ---- source.c: how the source itself was split ---- */

enum ck_reshard_how {
	CK_RESHARD_WHOLE, /* nothing splits it */
	CK_RESHARD_SPLIT,
	CK_RESHARD_UNKNOWN, /* it is, but along no one dimension */
};

struct ck_reshard_split {
	enum ck_reshard_how how;
	unsigned dim;
	/* it is blocks, each split by itself; rows of each */
	unsigned nr_blocks;
	uint64_t block[CK_MESH_BLOCKS];
};
/* Not along the first @skip dimensions, which are no business of a tensor's. */
void ck_reshard_split_of(const struct ck_catalog *img, uint32_t tensor,
			 unsigned skip, struct ck_reshard_split *out);

/* ---- layers.c: which pipeline stage a tensor belongs to ---- */

enum {
	CK_RESHARD_PP_STAGE_FIRST = -1,
	CK_RESHARD_PP_STAGE_LAST = -2,
	CK_RESHARD_PP_STAGE_ALL = -3
};

/* The number of the layer that @name is in, or one of the above. */
int64_t ck_reshard_layer(const char *name, size_t len);
/* Some word between dots is one of @words, which end with NULL. */
bool ck_reshard_has_word(const char *name, size_t len,
			 const char *const *words);

/* ---- tied.c: a head that is the table of words ---- */

/* Its config says so, and no tensor is a head. */
bool ck_reshard_is_tied(const struct ck_reshard_in *in);
/* By its name; or what an optimizer keeps of it. */
bool ck_reshard_is_table(const char *name, size_t len);
/*
 * Layers of each stage: the numbers of @given, which must make @layers, or
 * with @given NULL equal ones, those left over to the stages from the middle
 * on.  @begin has @stages + 1 values.
 */
int ck_reshard_pp_stages(uint64_t *begin, unsigned stages,
			 const uint64_t *given, uint64_t layers,
			 struct ck_err *err);

/* ---- sequence.c: layers by a number alone ---- */

struct ck_reshard_sequence {
	bool found;
	const char *prefix; /* what stands before the numbers; of the catalog */
	size_t len;
	int64_t lowest, last;
	struct ck_strmap tails; /* names without it */
};
/* -EINVAL with a line for people: there is none, or more than one. */
int ck_reshard_sequence_find(struct ck_reshard_sequence *out,
			     const struct ck_reshard_in *in,
			     struct ck_err *err);
void ck_reshard_sequence_free(struct ck_reshard_sequence *s);
/* A number, or CK_RESHARD_PP_STAGE_ALL. */
int64_t ck_reshard_sequence_layer(const struct ck_reshard_sequence *s,
				  const char *name, size_t len);

/* ---- owners.c: optimizers' tensors, and the parameters that they are of ---- */

struct ck_reshard_owners {
	uint32_t first;
	uint32_t *of; /* of each tensor: a parameter, or the tensor itself */
};
int ck_reshard_owners_find(struct ck_reshard_owners *out,
			   const struct ck_reshard_in *in, struct ck_err *err);
void ck_reshard_owners_free(struct ck_reshard_owners *o);
/* Names that an optimizer gives to what it keeps. */
bool ck_reshard_is_state(const char *name, size_t len);

/* ---- stack.c: layers as dimension 0 of a tensor of each kind ---- */

#define CK_RESHARD_STACKS 4
struct ck_reshard_stack {
	unsigned nr; /* 0: nothing is stacked */
	struct ck_reshard_stack_of {
		const char *owner; /* "decoder"; of the catalog */
		size_t owner_len;
		uint64_t layers;
	} of[CK_RESHARD_STACKS];
};
void ck_reshard_stack_find(struct ck_reshard_stack *out,
			   const struct ck_reshard_in *in);
/* Whether a tensor so called is a stack, where there are any. */
bool ck_reshard_is_stacked(const char *name, size_t len);

#endif
