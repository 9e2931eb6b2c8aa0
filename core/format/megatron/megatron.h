/* SPDX-License-Identifier: Apache-2.0 */
/*
 * megatron.h - a Megatron-LM checkpoint while it is described
 *
 * tp, pp, ep: ranks of tensors, pipeline stages and experts.  A chunk is a
 * stage's "model", or one of its "model0", "model1", ... (virtual stages); a
 * stack is one of the lists of layers that a chunk may have.  One thread.
 */
#ifndef CK_MEGATRON_H
#define CK_MEGATRON_H

#include "core/base/arena.h"
#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/assemble/assemble.h"
#include "core/format/format.h"
#include "core/mesh/tp_rules.h"
#include "core/container/torch_place.h"
#include "core/container/torch_walk.h"

#include <stdbool.h>

#define MEGATRON_FILE "model_optim_rng.pt"
#define MEGATRON_FILE_OLD "model_rng.pt" /* its optimizer's files are apart */
#define MEGATRON_OPTIM_OLD "optim.pt" /* there, a folder for each replica */
#define MEGATRON_OPTIM "distrib_optim.pt" /* later, beside the weights */
#define MEGATRON_MAX_RANKS (1u << 20)
#define MEGATRON_MAX_CHUNKS 4096
#define MEGATRON_STACKS 3 /* decoder, encoder, transformer */

/* A pipeline's stage, a rank of tensors, a rank of experts (or a replica). */
enum megatron_axis { PP, TP, EP, AXES };

/* What args say that matters here; -1: nothing. */
struct megatron_args {
	bool there;
	int64_t tp, pp, ep, etp, layers, experts, iteration, version;
	int64_t heads, groups, kv_channels, first, last;
	int64_t rank; /* of the process that saved the file */
	int64_t dp; /* replicas of the data */
	bool grouped, untied, with_embedding, with_loss, custom;
	bool distributed; /* its optimizer has files of its own */
	bool apart; /* it would, of a file without any optimizer */
};

/* A rank's folder. */
struct megatron_rank {
	const char *dir; /* "mp_rank_00_001" */
	const char *file; /* the same with the file's name */
	const char *optim; /* of the distributed optimizer; NULL: none */
	unsigned at[3], nr_at; /* the numbers in its name */
	unsigned n[AXES]; /* and what they are */
	bool there, usable;
	struct megatron_args args;
	unsigned nr_chunks;
	uint64_t *layers; /* nr_chunks x MEGATRON_STACKS: how many there are */
};

struct megatron_load {
	const struct ck_dir *dir;
	struct ck_builder *b;
	struct ck_arena mem; /* what is no CK_VEC and no map */
	CK_VEC(struct megatron_rank) ranks; /* by pp, tp, ep */
	CK_VEC(struct megatron_rank)
	optims; /* MEGATRON_OPTIM_OLD; EP is the replica */
	struct megatron_args args; /* that all ranks share */
	unsigned nr[AXES];
	unsigned etp; /* 0: experts are split in a way unknown */
	unsigned nr_chunks;
	uint64_t *offset; /* pp x nr_chunks x MEGATRON_STACKS: of layers */
	struct ck_tp_rules rules;
	const char *rules_name;
	bool raw_optim; /* reported that optimizer states are shown as stored */
	bool any_optim; /* some rank has a file of the distributed optimizer */
};

struct megatron_name {
	struct ck_str full; /* with the numbers of the unsplit model */
	bool expert; /* one of those that expert ranks share */
	bool numbered; /* and says which */
	uint64_t local; /* its number in its rank */
};

/* One rank while its parts are given. */
struct megatron_file {
	struct megatron_load *ld;
	const struct megatron_rank *rank;
	struct ck_torch_open f;
	ck_pv args;
	signed char *conds; /* of each rule: 1, 0; -1: args are not there */
	bool dense_gap, expert_gap; /* it stands in for ranks of its stage */
	struct ck_asm a; /* its weights, and those of ranks like it */
	/* the tensor at hand */
	unsigned chunk;
	struct megatron_name name;
};

/* "mp_rank_00", "mp_rank_00_001", "mp_rank_00_001_002". */
bool ck_megatron_is_rank(const char *name, unsigned at[3], unsigned *nr);
/* Its file in the folder @dir of @in, in @mem; NULL: no memory. */
const char *ck_megatron_file_of(struct ck_arena *mem, const struct ck_dir *in,
				const char *dir);
/* The folder of a rank; @third: an expert rank or replica, -1: without. */
const char *ck_megatron_dir_of(struct megatron_load *ld, unsigned tp,
			       unsigned pp, int64_t third);
void ck_megatron_args_read(struct megatron_args *a, const struct ck_pickle *p,
			   ck_pv root);
/* An argument: false where it is no number (True is 1). */
bool ck_megatron_arg(const struct ck_pickle *p, ck_pv args,
		     struct ck_tp_word name, int64_t *out);

/* What each file says of itself; fills ld->ranks and the degrees. */
int ck_megatron_ranks_read(struct megatron_load *ld, struct ck_err *err);
/* Chunk @i of a file, "model" or "model0" ...; false: it has no such. */
bool ck_megatron_chunk(const struct ck_pickle *p, unsigned i, ck_pv *out);
int ck_megatron_offsets(struct megatron_load *ld, struct ck_err *err);

/*
 * The name of the unsplit model.  @chunk CK_NONE: the layers are not counted.
 * -ENOMEM only.
 */
int ck_megatron_name(const struct megatron_load *ld, unsigned pp, unsigned ep,
		     unsigned chunk, const char *name, size_t len,
		     struct megatron_name *out);
/* Counts the layer that @name is in; the stack, or -1. */
int ck_megatron_layer(const char *name, size_t len, uint64_t *layer,
		      size_t *from, size_t *to);

/* Before ck_megatron_weight() of a file. */
int ck_megatron_file_begin(struct megatron_file *f, struct ck_err *err);
/* A leaf of chunk @chunk: its part, and those of absent ranks like it. */
int ck_megatron_weight(struct megatron_file *f, unsigned chunk,
		       const struct ck_torch_leaf *leaf, struct ck_err *err);
/* Stages of which nothing can be read hold layers that nobody names. */
int ck_megatron_report_gaps(struct megatron_load *ld, struct ck_err *err);
/*
 * The weights and all else; of a file beside the weights (@apart) everything is
 * else, of others the distributed optimizer's file is too.
 */
int ck_megatron_file_read(struct megatron_load *ld, struct megatron_rank *rank,
			  bool apart, struct ck_err *err);
/*
 * What old folders of optimizers hold, and which are missing; or whether the
 * distributed optimizer's file is there of all ranks, or of none.
 */
int ck_megatron_optim(struct megatron_load *ld, struct ck_err *err);
/* For qsort and bsearch of ranks. */
int ck_megatron_by_place(const void *pa, const void *pb);
/*
 * What the numbers in its name are, once the degrees are known; @third: one is
 * an expert rank's or a replica's.  False: they are none of this run.
 */
bool ck_megatron_place(const struct megatron_load *ld, struct megatron_rank *r,
		       bool third);

#endif
