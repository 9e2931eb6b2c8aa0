/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order.h - DeepSpeed's optimizers in the form of torch.optim
 *
 * ZeRO's optimizers number vectors, each of all parameters of a group or, in
 * stage 3, of some.  An optimizer of the module before it was sharded numbers
 * parameters.  One thread.
 */
#ifndef CK_DEEPSPEED_ORDER_H
#define CK_DEEPSPEED_ORDER_H

#include "core/format/deepspeed/deepspeed.h"

struct deepspeed_group_key {
	uint32_t group;
	const char *key;
	size_t len;
};

/* A state of a vector that is one number, for all of its parameters. */
struct deepspeed_number {
	uint32_t vector;
	enum { DEEPSPEED_NONE, DEEPSPEED_WHOLE, DEEPSPEED_REAL } kind;
	const char *key;
	size_t len;
	int64_t whole;
	double real;
	uint32_t src; /* of a pickle of it, once nr_bytes is not 0 */
	size_t nr_bytes;
};

struct deepspeed_groups {
	bool read; /* all below is known */
	const char *why; /* or not; NULL: nothing was said of it */
	uint32_t nr;
	CK_VEC(uint32_t) vectors; /* whose group each is of */
	CK_VEC(struct deepspeed_group_key) key; /* their values' */
	CK_VEC(struct deepspeed_number) number;
	struct ck_str values; /* to compare */
	bool odd; /* some cannot be compared */
	bool zero_stage; /* not of BF16_Optimizer, which has no round robin */
	struct ck_object_in in; /* where they are, by names that begin with: */
	const char *prefix; /* or NULL: see optim/groups.h */
};

/* A parameter as one stage has it. */
struct deepspeed_trained {
	const char *name;
	uint32_t vector, group;
	bool tied; /* to be had in other stages, too */
};

/* What one stage of the pipeline trains, in the order of its groups. */
struct deepspeed_stage {
	struct deepspeed_groups groups; /* empty in the universal form */
	const char *why; /* its order is not known */
	bool seen; /* a model file names its parameters */
	CK_VEC(struct deepspeed_trained) param;
	size_t next; /* of them: not numbered yet */
};

struct deepspeed_order {
	struct deepspeed_stage *stage; /* one for each */
	unsigned nr;
	struct deepspeed_groups universal;
	struct ck_strmap states; /* kinds of them */
};

/* From the first optimizer file of one stage of the pipeline that is usable. */
int ck_deepspeed_groups_read(struct deepspeed_groups *g,
			     const struct deepspeed_zero *z,
			     struct ck_err *err);
void ck_deepspeed_groups_free(struct deepspeed_groups *g);
/* Whether two stages' groups have the same values. */
bool ck_deepspeed_groups_same(const struct deepspeed_groups *a,
			      const struct deepspeed_groups *b);

#endif
