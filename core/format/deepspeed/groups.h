/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups.h - DeepSpeed's optimizers in the form of torch.optim
 *
 * ZeRO's optimizers number vectors, each of all parameters of a group or, in
 * stage 3, of some.  An optimizer of the module before it was sharded numbers
 * parameters.  One thread.
 */
#ifndef CK_DEEPSPEED_GROUPS_H
#define CK_DEEPSPEED_GROUPS_H

#include "core/format/deepspeed/priv.h"

struct ck_ds_group_key {
	uint32_t group;
	char *key;
	size_t len;
};

/* A state of a vector that is one number, for all of its parameters. */
struct ck_ds_number {
	uint32_t vector;
	enum { CK_DS_NONE, CK_DS_WHOLE, CK_DS_REAL } kind;
	char *key;
	size_t len;
	int64_t whole;
	double real;
	uint32_t src; /* of a pickle of it, once nr_bytes is not 0 */
	size_t nr_bytes;
};

struct ck_ds_groups {
	bool read; /* all below is known */
	const char *why; /* or not; NULL: nothing was said of it */
	uint32_t nr;
	CK_VEC(uint32_t) vectors; /* whose group each is of */
	CK_VEC(struct ck_ds_group_key) key; /* their values' */
	CK_VEC(struct ck_ds_number) number;
	struct ck_str values; /* to compare */
	bool odd; /* some cannot be compared */
	bool zero_stage; /* not of BF16_Optimizer, which has no round robin */
	struct ck_object_in in; /* where they are, by names that begin with: */
	const char *prefix; /* or NULL: see optim/groups.h */
};

/* From the first optimizer file of one stage of the pipeline that is usable. */
int ck_ds_groups_read(struct ck_ds_groups *g, const struct ck_ds_zero *z,
		      struct ck_err *err);
/* @f: optimizer_state.pt; @steps: parameters have no step of their own. */
int ck_ds_groups_read_universal(struct ck_ds_groups *g, struct ck_torch_open *f,
				bool steps, struct ck_err *err);
void ck_ds_groups_free(struct ck_ds_groups *g);
/* Whether two stages' groups have the same values. */
bool ck_ds_groups_same(const struct ck_ds_groups *a,
		       const struct ck_ds_groups *b);

/* A parameter as one stage has it. */
struct ck_ds_trained {
	char *name;
	uint32_t vector, group;
	bool tied; /* to be had in other stages, too */
};

/* What one stage of the pipeline trains, in the order of its groups. */
struct ck_ds_stage {
	struct ck_ds_groups groups; /* empty in the universal form */
	const char *why; /* its order is not known */
	bool seen; /* a model file names its parameters */
	CK_VEC(struct ck_ds_trained) param;
	size_t next; /* of them: not numbered yet */
};

struct ck_ds_order {
	struct ck_ds_stage *stage; /* one for each */
	unsigned nr;
	struct ck_ds_groups universal;
	struct ck_strmap states; /* kinds of them */
	CK_VEC(char *) kept; /* their bytes */
};

/* Once what stage @pp has is said; @z has the model file that names it. */
int ck_ds_order_read(struct ck_ds_load *ld, unsigned pp,
		     const struct ck_ds_zero *z, struct ck_err *err);
/* Once all stages are said: paths of all states, and the groups. */
int ck_ds_order_say(struct ck_ds_load *ld, struct ck_err *err);
void ck_ds_order_free(struct ck_ds_order *o);

#endif
