/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deepspeed.h - a DeepSpeed checkpoint while it is described
 *
 * mp: a model-parallel rank (pipeline stage times tensor-parallel rank);
 * dp: a data-parallel rank, over which ZeRO partitions.  All names live as long
 * as the load, but for those that a model file's pickle has.  One thread.
 */
#ifndef CK_DEEPSPEED_H
#define CK_DEEPSPEED_H

#include "core/assemble/cut.h"
#include "core/audit/audit.h"
#include "core/base/arena.h"
#include "core/base/str.h"
#include "core/base/strmap.h"
#include "core/base/vec.h"
#include "core/container/container.h"
#include "core/format/format.h"
#include "core/parse/pickle_query.h"

#include <stdbool.h>

#define DEEPSPEED_MAX_RANKS (1u << 20)
#define DEEPSPEED_MAX_STATES 32
#define DEEPSPEED_GROUPS "zero/optimizer_state.pt" /* of the universal form */

enum deepspeed_kind {
	DEEPSPEED_MODEL, /* mp_rank_MM_model_states.pt */
	DEEPSPEED_MODEL3, /* zero_pp_rank_D_mp_rank_MM_model_states.pt */
	DEEPSPEED_OPTIM, /* [bf16_]zero_pp_rank_D_mp_rank_MM_optim_states.pt */
	DEEPSPEED_LAYER, /* layer_LL[-model_TT]-model_states.pt */
	DEEPSPEED_EXPERT, /* layer_L_expert_E_mp_rank_MM_model_states.pt */
	DEEPSPEED_EXPERT_OPTIM, /* expp_rank_R_mp_rank_MM_optim_states.pt */
};

struct deepspeed_file {
	const char *name;
	enum deepspeed_kind kind;
	unsigned mp, dp; /* LAYER: the tensor-parallel rank, the layer */
	unsigned layer, nr; /* EXPERT: @dp is it; @nr: numbers in the name */
};

/*
 * DeepSpeed's optimizers in the form of torch.optim.  ZeRO's number vectors,
 * each of all parameters of a group or, in stage 3, of some.  An optimizer of
 * the module before it was sharded numbers parameters.
 */
struct deepspeed_group_key {
	uint32_t group;
	const char *key;
	size_t len;
};

/* A state of a vector that is one number, for all of its parameters. */
struct deepspeed_number {
	uint32_t vector;
	const char *key, *bytes; /* bytes: a pickle of it */
	size_t len, nr_bytes;
	uint32_t src; /* of these in the catalog, once it is shown */
	bool shown;
};

struct deepspeed_groups {
	bool read; /* all below is known */
	const char *why; /* or not; NULL: nothing was said of it */
	uint32_t nr;
	CK_VEC(uint32_t) vectors; /* whose group each is of */
	CK_VEC(struct deepspeed_group_key) key; /* their values' */
	CK_VEC(struct deepspeed_number) number;
	uint64_t sum; /* of their values, to compare */
	bool odd; /* which some cannot be */
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

/* What param_shapes says of a name that some stage has. */
struct deepspeed_name {
	bool stored; /* a layer's file has it */
	unsigned rank;
	uint64_t shape[];
};

/* All model-parallel ranks, while their parts are added. */
struct deepspeed_load {
	const struct ck_dir *dir;
	struct ck_builder *b;
	struct ck_arena mem;
	CK_VEC(struct deepspeed_file) files; /* by kind, mp, dp */
	unsigned nr_mp, pp, tp; /* pp * tp is nr_mp */
	bool zero; /* there are optimizer files */
	unsigned nr_ep; /* so many ranks have different experts; 0: not known */
	bool universal;
	bool mixed; /* model files are of more than one step */
	int64_t steps; /* of the checkpoint, if mixed; -1: it cannot be told */
	bool apart; /* a model file says that layers have files of their own */
	bool unnamed; /* a model file, which names what is trained, is lost */
	bool tie_found; /* layer @tie is tied, and no file has the tie's name */
	unsigned tie;
	struct ck_strmap trained; /* user: a deepspeed_name, in @mem */
	struct ck_strmap states; /* the universal form's, "fp32" too */
	struct deepspeed_order order;
};

#define deepspeed_problem(ld_, ...) \
	ck_builder_report_file((ld_)->b, __VA_ARGS__)

/* ---- files.c ---- */

bool ck_deepspeed_is_name(const char *name, struct deepspeed_file *out);
int ck_deepspeed_files_list(struct deepspeed_load *ld, struct ck_err *err);
/* The files of one kind and mp; *nr of them. */
const struct deepspeed_file *ck_deepspeed_files_of(
	const struct deepspeed_load *ld, enum deepspeed_kind kind, unsigned mp,
	size_t *nr);
/*
 * As ck_torch_open(); a file whose archive is called as the same kind of file
 * of another rank is reported, and not *ok: it was renamed or copied.
 */
int ck_deepspeed_open(struct deepspeed_load *ld, struct ck_torch_open *f,
		      const char *name, bool *ok, struct ck_err *err);
/*
 * The same of a file of which all is read: what no name leads to is reported,
 * and what it holds is compared with other such files.
 */
int ck_deepspeed_open_all(struct deepspeed_load *ld, struct ck_torch_open *f,
			  const char *name, bool *ok, struct ck_err *err);
int ck_deepspeed_lost(struct deepspeed_load *ld, const struct ck_torch_open *f,
		      struct ck_err *err);
/*
 * Where its archive has no name that DeepSpeed gives: what the tensors below
 * @from hold is compared with other such files of its kind, to find a copy
 * under another's name.
 */
int ck_deepspeed_compare(struct deepspeed_load *ld, struct ck_torch_open *f,
			 ck_pv from, struct ck_err *err);
/* The same of one tensor, number @nr of file @unit. */
int ck_deepspeed_compare_one(struct deepspeed_load *ld, const char *unit,
			     uint32_t nr, const struct ck_extent *x,
			     struct ck_err *err);
/* A file that is read for what another reader of it reports. */
int ck_deepspeed_peek(const struct ck_dir *dir, const char *name,
		      struct ck_torch_open *f);

/* The tensors of a dict, by name. */
struct deepspeed_tensors {
	struct ck_piter it;
	char number[24];
	const char *name;
	size_t len;
	ck_pv v;
};
void ck_deepspeed_tensors(struct deepspeed_tensors *t,
			  const struct ck_pickle *p, ck_pv dict);
bool ck_deepspeed_next(struct deepspeed_tensors *t);

/* ---- model.c ---- */

/* A trained parameter; names and shapes are in the model file's pickle. */
struct deepspeed_param {
	const char *name;
	size_t name_len;
	ck_pv shape;
	uint64_t numel;
	unsigned group;
	uint64_t pos; /* in the group's vector, before it is partitioned */
};

/* The model file of one mp. */
struct deepspeed_model {
	struct deepspeed_load *ld;
	struct ck_torch_open f;
	unsigned mp, tp, nr_tp;
	bool stage3;
	bool moe; /* it is of a model with experts */
	bool names; /* param_shapes says what is trained, if ZeRO is used */
	CK_VEC(struct deepspeed_param) params;
	uint64_t nr_groups;
	struct ck_strmap by_name; /* of params: same numbers */
	/* Names of it, whose user is a value in the pickle: */
	struct ck_strmap weights; /* tensors in @module */
	struct ck_strmap affine; /* how each is split */
	struct ck_strmap aliases; /* the name of which it is another */
	struct ck_strmap buffers, frozen; /* the shapes of these */
	ck_pv root, module, shapes;
	int64_t steps; /* global_steps; -1: not there */
	int64_t skipped;
	unsigned pp_degree, tp_degree; /* 0: not there */
};

/* -EINVAL with a line in @err where it is no model file. */
int ck_deepspeed_model_read(struct deepspeed_model *m, struct ck_err *err);
void ck_deepspeed_model_free(struct deepspeed_model *m);
/*
 * How tensor @name of this mp, of that shape, lies in the whole.  -EINVAL with
 * a line in @why where the file does not say.
 */
int ck_deepspeed_cut(const struct deepspeed_model *m, const char *name,
		     size_t name_len, const uint64_t *shape, unsigned rank,
		     struct ck_cut *cut, struct ck_err *why);
/*
 * Reports trained parameters that its module has in another shape than its
 * param_shapes, or not at all.
 */
int ck_deepspeed_check_shapes(const struct deepspeed_model *m,
			      struct ck_err *err);
/*
 * Reports weight @name, tensor @v of file @f, if it is of another shape than
 * @dims, which param_shapes gives; @where it is, in words.
 */
int ck_deepspeed_check_shape(struct deepspeed_load *ld,
			     const struct ck_torch_open *f, const char *where,
			     const char *name, size_t len, ck_pv v,
			     const uint64_t *dims, unsigned rank,
			     struct ck_err *err);
/*
 * Reports the first trained parameter of which @f, another rank's model file, says
 * other than @m: each has all of them in its param_shapes.
 */
int ck_deepspeed_check_params(const struct deepspeed_model *m,
			      const struct ck_torch_open *f,
			      struct ck_err *err);
bool ck_deepspeed_is_buffer(const struct deepspeed_model *m, const char *name,
			    size_t len);
/*
 * Which parameter alias number @alias is another name of; CK_STRMAP_NONE: one
 * that is not trained.  False: it is no alias.
 */
bool ck_deepspeed_holder(const struct deepspeed_model *m, uint32_t alias,
			 uint32_t *param);
/* What tensor @name of its module is; false: it has none. */
bool ck_deepspeed_weight(const struct deepspeed_model *m, const char *name,
			 size_t len, ck_pv *out);

/* ---- rank.c ---- */

/* A flat vector of one rank: of the weights, or of one optimizer state. */
struct deepspeed_flat {
	uint32_t state; /* number in deepspeed_zero.states */
	uint32_t group;
	struct ck_asm_run run;
};

/* What of a parameter a rank has, as its slice table has it. */
struct deepspeed_slice {
	uint32_t param; /* number in the model's params */
	uint64_t start, numel; /* in the rank's vector of its group */
};

/* A parameter group of one rank, where there are experts. */
struct deepspeed_group {
	const char *name;
	unsigned nth; /* of those with this name */
	bool moe; /* of experts, which only some ranks share */
	uint64_t count; /* of those ranks */
};

/* What one optimizer file says. */
struct deepspeed_rank {
	const char *name; /* of the file; NULL: there is none */
	unsigned dp;
	bool usable;
	bool absent; /* there is no such file; @src is registered as missing */
	uint32_t src;
	bool stage3;
	uint64_t count; /* partition_count; 0: not there */
	bool has_step;
	double step;
	CK_VEC(struct deepspeed_flat) flats; /* by state, then group */
	CK_VEC(struct deepspeed_slice) slices;
	CK_VEC(uint64_t) paddings; /* a count for each parameter */
	CK_VEC(struct deepspeed_group) groups; /* where there are experts */
	bool bad_slices; /* of names that no group has */
};

/* Who has partition number N of a vector; r is NULL: nobody that is there. */
struct deepspeed_member {
	const struct deepspeed_rank *r;
	uint32_t group; /* its number in that rank's file */
};

/* What the ranks that share a parameter group hold, partition by partition. */
struct deepspeed_vec {
	uint64_t count; /* of partitions */
	bool each; /* stage 3: each parameter is partitioned by itself */
	uint64_t size; /* else elements of one; 0: it cannot be used */
	struct deepspeed_member *of;
	/* Of experts: */
	const char *name; /* of the group */
	unsigned nth; /* of the groups of this name in a file */
	bool moe;
	uint64_t ep, nr_ep; /* which of the experts: part @ep of @nr_ep */
	bool shuffled; /* its parameters are not in the order of the model */
};

/* A parameter where there are experts, and its vector in the first file. */
struct deepspeed_placed {
	const char *name;
	uint32_t vector;
};

/* All optimizer files of one mp. */
struct deepspeed_zero {
	struct deepspeed_load *ld;
	struct deepspeed_model *m;
	struct ck_strmap states; /* 0: "fp32" */
	CK_VEC(struct deepspeed_rank) ranks; /* as many as count, once joined */
	uint64_t count;
	bool stage3;
	bool complete; /* all ranks are usable */
	bool two_saves; /* reported: weights and states are of two */
	uint64_t *pos; /* of each parameter, in its group or (3) its rank */
	/* Stages 1, 2: one for each group; experts: of each set of ranks. */
	CK_VEC(struct deepspeed_vec) vecs;
	struct ck_strmap trained; /* experts: names in their slice tables */
	bool undone; /* slice tables are of the order before round robin */
	/* Experts: in the order of the model, each with its vector's number. */
	CK_VEC(struct deepspeed_placed) placed;
	const char *unplaced; /* or why it is not known */
};

int ck_deepspeed_zero_read(struct deepspeed_zero *z, struct ck_err *err);
void ck_deepspeed_zero_free(struct deepspeed_zero *z);
void ck_deepspeed_rank_free(struct deepspeed_rank *r);
/* The first file that can be read; NULL: none. */
const struct deepspeed_rank *ck_deepspeed_first(const struct deepspeed_zero *z);
/* Its vector of that number; NULL: it has none. */
const struct deepspeed_flat *ck_deepspeed_flat(const struct deepspeed_rank *r,
					       uint32_t state, uint32_t group);

/* What a state of a vector is: a vector of its own, or a number. */
typedef int (*deepspeed_state_fn)(void *ctx, uint32_t vector, ck_pv key,
				  ck_pv value, struct ck_err *err);
/* Each of those in "state" of @base, or in the list that it is. */
int ck_deepspeed_states_each(const struct ck_pickle *p, ck_pv base,
			     deepspeed_state_fn fn, void *ctx,
			     struct ck_err *err);

/* ---- master.c ---- */

/* Elements from number @element on. */
struct ck_audit_run ck_deepspeed_run(struct ck_source *s,
				     const struct ck_extent *x,
				     uint64_t element);
/*
 * 1: the weights are not the master copy, rounded: they are of two saves; 0:
 * they are, or it cannot be told; or -ENOMEM.
 */
int ck_deepspeed_master_differs(const struct deepspeed_zero *z);
/*
 * Reports which ranks' master copies, of stages 1 and 2, are not what the
 * weights are, and drops those that others outvote; once positions are known.
 */
int ck_deepspeed_master_check(struct deepspeed_zero *z, struct ck_err *err);

/* ---- save.c ---- */

/* Fills in mixed and steps, of one model file of each mp. */
int ck_deepspeed_find_steps(struct deepspeed_load *ld, struct ck_err *err);
/* *ok: a model file of global_steps @steps belongs to it; else it was reported. */
int ck_deepspeed_check_steps(struct deepspeed_load *ld, const char *file,
			     int64_t steps, bool *ok, struct ck_err *err);
/* The same for a file of @m's mp that another data-parallel rank saved. */
int ck_deepspeed_check_beside(struct deepspeed_load *ld,
			      const struct deepspeed_model *m,
			      const struct ck_torch_open *f, bool *ok,
			      struct ck_err *err);
/* Which of the optimizer files belong together; reports which do not. */
int ck_deepspeed_zero_join(struct deepspeed_zero *z, struct ck_err *err);

/* ---- zero.c ---- */

/* Master copies and states of all parameters. */
int ck_deepspeed_zero_add(struct deepspeed_zero *z, struct ck_err *err);
/* The first @nr states of a parameter, which is at @pos of a vector. */
struct deepspeed_states {
	const struct deepspeed_vec *vec; /* that can be used */
	const char *name; /* under which they are shown */
	size_t len, nr;
	uint64_t pos, numel;
	struct ck_err why; /* its code is not 0: they cannot be had */
};
int ck_deepspeed_states_give(struct ck_asm *a, const struct deepspeed_zero *z,
			     const struct deepspeed_states *of,
			     const struct ck_cut *cut, struct ck_err *err);

/* ---- weights.c ---- */

/* For tensors "KIND.NAME", whose paths have the two parts. */
struct ck_asm ck_deepspeed_asm(const struct deepspeed_load *ld);
/* NULL: no memory. */
struct ck_asm_tensor *ck_deepspeed_tensor(struct ck_asm *a, const char *kind,
					  const char *name, size_t len);
/* Tensor @v of file @f, whole, or shared as @m says if it is not NULL. */
int ck_deepspeed_give(struct ck_asm *a, const struct deepspeed_model *m,
		      struct ck_torch_open *f, const char *kind,
		      const char *name, size_t len, ck_pv v,
		      struct ck_err *err);
/* The same that is at @at. */
int ck_deepspeed_give_at(struct ck_asm *a, const struct deepspeed_model *m,
			 const char *file, const char *kind, const char *name,
			 size_t len, const struct ck_torch_place *at,
			 struct ck_err *err);
/* Why it cannot be had. */
int ck_deepspeed_refuse(struct ck_asm *a, const char *kind, const char *name,
			size_t len, struct ck_err *err, const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));
/* The weights, buffers and frozen parameters of one model file. */
int ck_deepspeed_model_add(struct deepspeed_model *m, uint64_t nr_dp,
			   struct ck_err *err);

int ck_deepspeed_experts_add(struct deepspeed_load *ld, struct ck_err *err);
/* Registers the experts' files that @m counts and that are not there. */
int ck_deepspeed_experts_check(const struct deepspeed_model *m,
			       struct ck_err *err);
/* What @skip does not name of @f, as it is; a note where optimizer states are. */
int ck_deepspeed_add_rest(struct deepspeed_load *ld, struct ck_torch_open *f,
			  const char *prefix, const char *const *skip,
			  struct ck_err *err);

/* ---- layers.c ---- */

/* Layer files of the pipeline engine. */
int ck_deepspeed_layers_add(struct deepspeed_load *ld, struct ck_err *err);

/* ---- moe.c ---- */

/* Where there are experts, in the place of ck_deepspeed_zero_add(). */
int ck_deepspeed_moe_add(struct deepspeed_zero *z, struct ck_err *err);

/* ---- universal.c ---- */

int ck_deepspeed_universal_add(struct deepspeed_load *ld,
			       struct deepspeed_model *m, struct ck_err *err);
/* Reports the parameters, and other weights, that @m names and no folder has. */
int ck_deepspeed_universal_check(const struct deepspeed_model *m,
				 struct ck_err *err);
/* 1, 0 or -ENOMEM. */
int ck_deepspeed_is_universal(const struct ck_dir *dir);

/* ---- order.c ---- */

void ck_deepspeed_order_free(struct deepspeed_order *o);
/* Once what a stage has is added; @z has the model file that names it. */
int ck_deepspeed_order_read(const struct deepspeed_zero *z, struct ck_err *err);
/* @f: the universal form's DEEPSPEED_GROUPS. */
int ck_deepspeed_order_universal(struct deepspeed_load *ld,
				 struct ck_torch_open *f, struct ck_err *err);
/* Once all stages are added: paths of all states, and the groups. */
int ck_deepspeed_order_add(struct deepspeed_load *ld, struct ck_err *err);

#endif
