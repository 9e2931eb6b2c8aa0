/* SPDX-License-Identifier: Apache-2.0 */
/*
 * priv.h - a DeepSpeed checkpoint while it is described
 *
 * mp: a model-parallel rank (pipeline stage times tensor-parallel rank);
 * dp: a data-parallel rank, over which ZeRO partitions.  One thread.
 */
#ifndef CK_DEEPSPEED_PRIV_H
#define CK_DEEPSPEED_PRIV_H

#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/assemble/cut.h"
#include "core/format/format.h"
#include "core/base/strmap.h"
#include "core/container/torch_place.h"

#include <stdbool.h>

#define CK_DS_MAX_RANKS (1u << 20)
#define CK_DS_MAX_STATES 32
#define CK_DS_GROUPS "zero/optimizer_state.pt" /* of the universal form */

enum ck_ds_kind {
	CK_DS_MODEL, /* mp_rank_MM_model_states.pt */
	CK_DS_MODEL3, /* zero_pp_rank_D_mp_rank_MM_model_states.pt */
	CK_DS_OPTIM, /* [bf16_]zero_pp_rank_D_mp_rank_MM_optim_states.pt */
	CK_DS_LAYER, /* layer_LL[-model_TT]-model_states.pt */
	CK_DS_EXPERT, /* layer_L_expert_E_mp_rank_MM_model_states.pt */
	CK_DS_EXPERT_OPTIM, /* expp_rank_R_mp_rank_MM_optim_states.pt */
};

struct ck_ds_file {
	char *name;
	enum ck_ds_kind kind;
	unsigned mp, dp; /* LAYER: the tensor-parallel rank, the layer */
};

struct ck_ds_files {
	CK_VEC(struct ck_ds_file) v; /* by kind, mp, dp */
};

bool ck_ds_is_name(const char *name, struct ck_ds_file *out);
int ck_ds_files_list(struct ck_ds_files *fs, const struct ck_dir *dir,
		     struct ck_err *err);
void ck_ds_files_free(struct ck_ds_files *fs);
/* The files of one kind and mp; *nr of them. */
const struct ck_ds_file *ck_ds_files_of(const struct ck_ds_files *fs,
					enum ck_ds_kind kind, unsigned mp,
					size_t *nr);

/*
 * As ck_torch_open(); a file whose archive is called as the same kind of file
 * of another rank is said, and not *ok: it was renamed or copied.
 */
int ck_ds_open(struct ck_torch_open *f, const struct ck_dir *dir,
	       struct ck_builder *b, const char *name, bool *ok,
	       struct ck_err *err);

/* Whether its archive has a name that DeepSpeed gives. */
bool ck_ds_says_name(const struct ck_torch_open *f);
/*
 * Where it has none: what the tensors below @from hold is compared with other
 * such files of its kind, to find a copy under another's name.
 */
int ck_ds_alike(struct ck_builder *b, struct ck_torch_open *f, const char *file,
		ck_pv from, struct ck_err *err);
/* Whether its elements lie in row-major order without gaps; *len in bytes. */
bool ck_ds_is_run(const struct ck_torch_tensor *t, uint64_t *len);
/* The same of one tensor, number @nr of file @unit. */
int ck_ds_stretch(struct ck_builder *b, const char *unit, uint32_t nr,
		  const struct ck_torch_place *at, struct ck_err *err);

/* Says what of a file that was opened no name leads to. */
int ck_ds_lost(struct ck_builder *b, const struct ck_torch_open *f,
	       struct ck_err *err);

/* Opens a file of which all is read, and does both. */
int ck_ds_open_all(struct ck_torch_open *f, const struct ck_dir *dir,
		   struct ck_builder *b, const char *name, bool *ok,
		   struct ck_err *err);

/* A trained parameter; names and shapes are in the model file's pickle. */
struct ck_ds_param {
	const char *name;
	size_t name_len;
	ck_pv shape;
	uint64_t numel;
	unsigned group;
	uint64_t pos; /* in the group's vector, before it is partitioned */
};

struct ck_ds_alias {
	const char *name, *holder;
	size_t name_len, holder_len;
};

/* The model file of one mp. */
struct ck_ds_model {
	struct ck_torch_open f;
	unsigned mp, tp, nr_tp;
	bool stage3;
	bool names; /* param_shapes says what is trained, if ZeRO is used */
	CK_VEC(struct ck_ds_param) params;
	uint64_t nr_groups;
	struct ck_strmap by_name; /* of params: same numbers */
	CK_VEC(struct ck_ds_alias) aliases;
	ck_pv affine; /* name -> how it is split; 0: there is none */
	struct ck_strmap affine_names; /* without the pattern's marks */
	CK_VEC(ck_pv) affine_values; /* same numbers */
	CK_VEC(char *) kept;
	ck_pv module, frozen_shapes, frozen_parts, buffers;
	int64_t steps; /* global_steps; -1: not said */
	int64_t skipped;
	unsigned pp_degree, tp_degree; /* 0: not said */
};

int ck_ds_model_read(struct ck_ds_model *m, struct ck_err *err);
void ck_ds_model_free(struct ck_ds_model *m);
/*
 * How tensor @name of this mp, of that shape, lies in the whole.  -EINVAL with
 * a line in @why where the file does not say.
 */
int ck_ds_cut(const struct ck_ds_model *m, const char *name, size_t name_len,
	      const uint64_t *shape, unsigned rank, struct ck_cut *cut,
	      struct ck_err *why);
bool ck_ds_is_buffer(const struct ck_ds_model *m, const char *name, size_t len);
int ck_ds_affine_read(struct ck_ds_model *m, ck_pv info, struct ck_err *err);
int ck_ds_affine_cut(const struct ck_pickle *p, ck_pv record, unsigned tp,
		     const uint64_t *shape, unsigned rank, struct ck_cut *cut,
		     struct ck_err *why);

/* A flat vector of one rank: of the weights, or of one optimizer state. */
struct ck_ds_flat {
	uint32_t state; /* number in ck_ds_zero.states */
	uint32_t group;
	struct ck_cut_run run;
};

/* What of a parameter a rank has, as its slice table has it. */
struct ck_ds_slice {
	uint32_t param; /* number in the model's params */
	uint64_t start, numel; /* in the rank's vector of its group */
};

/* A parameter group of one rank, where there are experts. */
struct ck_ds_group {
	char *name;
	unsigned nth; /* of those with this name */
	bool moe; /* of experts, which only some ranks share */
	uint64_t count; /* of those ranks */
};

/* What one optimizer file says. */
struct ck_ds_rank {
	const struct ck_ds_file *file; /* NULL: not there */
	unsigned dp;
	bool usable;
	bool absent; /* there is no such file; @src is said as missing */
	uint32_t src;
	bool stage3;
	uint64_t count; /* partition_count; 0: not said */
	bool has_step;
	double step;
	CK_VEC(struct ck_ds_flat) flats; /* by state, then group */
	CK_VEC(struct ck_ds_slice) slices;
	CK_VEC(uint64_t) paddings; /* a count for each parameter */
	CK_VEC(struct ck_ds_group) groups; /* where there are experts */
	bool bad_slices; /* of names that no group has */
};

/* A parameter where there are experts, and its vector in the first file. */
struct ck_ds_placed {
	char *name;
	uint32_t vector;
};

/* All optimizer files of one mp. */
struct ck_ds_zero {
	const struct ck_ds_model *m;
	struct ck_builder *b;
	const struct ck_dir *dir;
	char *states[CK_DS_MAX_STATES]; /* [0]: "fp32" */
	unsigned nr_states;
	CK_VEC(struct ck_ds_rank) ranks; /* as many as count, once settled */
	uint64_t count;
	bool stage3;
	bool complete; /* all ranks are usable */
	bool two_saves; /* it was said that weights and states are of two */
	uint64_t *pos; /* of each parameter, in its group or (3) its rank */
	uint64_t *group_size; /* stages 1, 2: of each group; 0: unusable */
	bool moe; /* groups are of experts too: moe.c */
	struct ck_strmap trained; /* names in their slice tables */
	CK_VEC(char *) kept; /* their bytes */
	bool undone; /* slice tables are of the order before round robin */
	CK_VEC(struct ck_ds_placed) placed; /* in the order of the model */
	const char *unplaced; /* or why it is not known */
};

int ck_ds_rank_read(struct ck_ds_zero *z, struct ck_ds_rank *r,
		    struct ck_torch_open *f, struct ck_err *err);
void ck_ds_rank_free(struct ck_ds_rank *r);
int ck_ds_zero_read(struct ck_ds_zero *z, const struct ck_ds_files *fs,
		    struct ck_err *err);
/* Which of those that were read belong together; says which do not. */
int ck_ds_zero_settle(struct ck_ds_zero *z, struct ck_err *err);
/* @skip: names that another mp has said. */
int ck_ds_zero_say(struct ck_ds_zero *z, const struct ck_strmap *skip,
		   struct ck_err *err);
void ck_ds_zero_free(struct ck_ds_zero *z);

int ck_ds_slices_read(struct ck_ds_rank *r, const struct ck_ds_model *m,
		      const struct ck_pickle *p, ck_pv lists,
		      struct ck_err *err);
/*
 * Whether the slice tables of all ranks say of a group what z->pos says; *any:
 * they say something; *undone: of the order before round robin.  -EINVAL with
 * a line in @why where they contradict.
 */
int ck_ds_slices_check(const struct ck_ds_zero *z, uint32_t group,
		       uint64_t size, bool *any, bool *undone,
		       struct ck_err *why);
/* Where number @i of @nr goes when they are dealt to @ranks in turn. */
uint64_t ck_ds_round_robin(uint64_t i, uint64_t nr, uint64_t ranks);

/* The first file that can be read; NULL: none. */
const struct ck_ds_rank *ck_ds_first(const struct ck_ds_zero *z);

/* The partition of one group: elements [r * size, (r + 1) * size). */
int ck_ds_group_size(struct ck_ds_zero *z, uint32_t group, uint64_t *size,
		     struct ck_err *why);
int ck_ds_check_rank3(const struct ck_ds_zero *z, const struct ck_ds_rank *r,
		      struct ck_err *why);
/*
 * Stages 1 and 2: elements [lo, hi) of a parameter at @pos of its group that
 * rank @r has, at *at of its partition of @size; false: it has none.
 */
bool ck_ds_piece12(uint64_t pos, uint64_t numel, uint64_t size, uint64_t r,
		   uint64_t *lo, uint64_t *hi, uint64_t *at);
/* Elements [lo, hi) of a parameter that rank @r of @nr has in stage 3. */
void ck_ds_piece3(uint64_t numel, uint64_t r, uint64_t nr, uint64_t *lo,
		  uint64_t *hi);

/* Names "KIND.NAME", given their two parts as a path. */
int ck_ds_path(struct ck_builder *b, const char *kind, const char *name,
	       size_t name_len, struct ck_str *full, struct ck_err *err);

struct ck_ds_order;

/* All model-parallel ranks, while their parts are said. */
struct ck_ds_load {
	const struct ck_dir *dir;
	struct ck_builder *b;
	struct ck_ds_files fs;
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
	struct ck_strmap trained; /* names that stages have said */
	CK_VEC(char *) kept; /* their bytes */
	bool *said; /* same numbers as trained: a layer's file has it */
	char *states[CK_DS_MAX_STATES]; /* the universal form's, "fp32" too */
	size_t nr_states;
	struct ck_ds_order *order; /* groups.h */
};

/* Fills in mixed and steps, of one model file of each mp. */
int ck_ds_find_steps(struct ck_ds_load *ld, struct ck_err *err);
/* *ok: a model file of global_steps @steps belongs to it; else it was said. */
int ck_ds_check_steps(struct ck_ds_load *ld, const char *file, int64_t steps,
		      bool *ok, struct ck_err *err);
/* The same for a file of @m's mp that another data-parallel rank saved. */
int ck_ds_check_beside(struct ck_ds_load *ld, const struct ck_ds_model *m,
		       const struct ck_torch_open *f, bool *ok,
		       struct ck_err *err);
/*
 * 1: the weights are not the master copy, rounded: they are of two saves; 0:
 * they are, or it cannot be told; or -ENOMEM.
 */
int ck_ds_twin_differs(const struct ck_ds_zero *z);
/*
 * Says which ranks' master copies, of stages 1 and 2, are not what the weights
 * are, and drops those that others outvote; once positions are known.
 */
int ck_ds_twin_say(struct ck_ds_zero *z, struct ck_err *err);
/*
 * Of the weight @v in model file @f and the master copy @full in @s, up to
 * *left elements, which those compared are taken off: 1 where they differ, 0
 * where not or where it cannot be told; -EINVAL where their shapes differ, or
 * -ENOMEM.
 */
int ck_ds_twin_whole(struct ck_torch_open *f, ck_pv v, struct ck_source *s,
		     const struct ck_torch_place *full, uint64_t *left);
/* Of @nr elements: 1: they differ; 0: not, or it cannot be told; -ENOMEM. */
int ck_ds_twin_compare(struct ck_source *model, struct ck_source *optim,
		       const struct ck_torch_place *w,
		       const struct ck_torch_place *full, size_t nr);
/* Whether weight @w is a run of @numel elements that can be compared. */
bool ck_ds_twin_is_plain(const struct ck_torch_place *w, uint64_t numel);
/* Says if @step, of the optimizer files, is none that the model file has. */
int ck_ds_check_optim(struct ck_ds_zero *z, int64_t step, struct ck_err *err);
int ck_ds_refuse(struct ck_ds_load *ld, const char *kind, const char *name,
		 size_t len, const char *why, struct ck_err *err);
/* A tensor that is stored as such, under "KIND.NAME". */
int ck_ds_tensor(struct ck_ds_load *ld, const struct ck_ds_model *m,
		 struct ck_torch_open *f, const char *kind, const char *name,
		 size_t name_len, ck_pv v, struct ck_err *err);
/* The weights, buffers and frozen parameters of one model file. */
int ck_ds_module_say(struct ck_ds_load *ld, struct ck_ds_model *m,
		     uint64_t nr_dp, struct ck_err *err);
/* Layer files of the pipeline engine, and those of experts. */
int ck_ds_layers_say(struct ck_ds_load *ld, struct ck_err *err);
/*
 * Without ZeRO: 1 and the layer whose parameters stages have states of that
 * have no file of it; 0: none, or it cannot be told; or -errno.  *left: how
 * many states no layer's file accounts for; 0 also where this is not known.
 */
int ck_ds_tied_layer(struct ck_ds_load *ld, unsigned *layer, size_t *left);
/* Whether @m is of a model with experts. */
bool ck_ds_is_moe(const struct ck_ds_model *m);
/* What @inner, of an optimizer file, says of groups: into @r and @z. */
int ck_ds_moe_groups_read(struct ck_ds_zero *z, struct ck_ds_rank *r,
			  const struct ck_pickle *p, ck_pv inner,
			  const char *file, struct ck_err *err);
/* Master copies and states of all parameters, in place of ck_ds_zero_say(). */
int ck_ds_moe_say(struct ck_ds_load *ld, struct ck_ds_zero *z,
		  struct ck_ds_model *m, struct ck_err *err);
int ck_ds_experts_say(struct ck_ds_load *ld, struct ck_err *err);
/* Says the experts' files that @m counts and that are not there. */
int ck_ds_experts_check(struct ck_ds_load *ld, const struct ck_ds_model *m,
			struct ck_err *err);
int ck_ds_universal_say(struct ck_ds_load *ld, struct ck_ds_model *m,
			struct ck_err *err);
/* Says the parameters, and other weights, that @m names and no folder has. */
int ck_ds_universal_check(struct ck_ds_load *ld, const struct ck_ds_model *m,
			  struct ck_err *err);
/* Adds @kind to states, which it may be in. */
int ck_ds_kind_add(struct ck_ds_load *ld, const char *kind, struct ck_err *err);
/* Adds, or says, what all parameters should have and none has. */
int ck_ds_kinds_want(struct ck_ds_load *ld, struct ck_err *err);
/* 1, 0 or -ENOMEM. */
int ck_ds_is_universal(const struct ck_dir *dir);

#endif
