/* SPDX-License-Identifier: Apache-2.0 */
/*
 * priv.h - a Megatron-LM checkpoint while it is described
 *
 * tp, pp, ep: ranks of tensors, pipeline stages and experts.  A chunk is a
 * stage's "model", or one of its "model0", "model1", ... (virtual stages); a
 * stack is one of the lists of layers that a chunk may have.  One thread.
 */
#ifndef CK_MEGATRON_PRIV_H
#define CK_MEGATRON_PRIV_H

#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/assemble/cut.h"
#include "core/format/format.h"
#include "core/mesh/tp_rules.h"
#include "core/base/strmap.h"
#include "core/container/torch_place.h"

#include <stdbool.h>

#define CK_MG_FILE "model_optim_rng.pt"
#define CK_MG_FILE_OLD "model_rng.pt" /* its optimizer's files are apart */
#define CK_MG_OPTIM_OLD "optim.pt" /* there, a folder for each replica */
#define CK_MG_MAX_RANKS (1u << 20)
#define CK_MG_MAX_CHUNKS 4096
#define CK_MG_STACKS 3 /* decoder, encoder, transformer */

/* What args say that matters here; -1: nothing. */
struct ck_mg_args {
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
struct ck_mg_rank {
	char *dir; /* "mp_rank_00_001" */
	char *file; /* the same with the file's name */
	unsigned at[3], nr_at; /* the numbers in its name */
	unsigned tp, pp, ep;
	bool there, usable;
	struct ck_mg_args args;
	unsigned nr_chunks;
	uint64_t *layers; /* nr_chunks x CK_MG_STACKS: how many there are */
};

/* What a copy of a replicated piece was. */
struct ck_mg_copy {
	uint64_t sum;
	uint32_t rank; /* number in ranks */
};

struct ck_mg_load {
	const struct ck_dir *dir;
	struct ck_builder *b;
	CK_VEC(struct ck_mg_rank) ranks; /* by pp, tp, ep */
	CK_VEC(struct ck_mg_rank)
	optims; /* CK_MG_OPTIM_OLD; ep is the replica */
	struct ck_mg_args args; /* that all ranks share */
	unsigned tp, pp, ep,
		etp; /* etp 0: experts are split in a way unknown */
	unsigned nr_chunks;
	uint64_t *offset; /* pp x nr_chunks x CK_MG_STACKS: of layers */
	struct ck_tp_rules rules;
	const char *rules_name;
	struct ck_strmap copies;
	CK_VEC(struct ck_mg_copy) sums; /* same numbers */
	CK_VEC(char *) kept;
	uint64_t compared; /* bytes read to compare copies */
	bool raw_optim; /* said that optimizer states are shown as stored */
	bool any_optim; /* some rank has a file of the distributed optimizer */
};

/* One rank while its parts are said. */
struct ck_mg_file {
	struct ck_mg_load *ld;
	const struct ck_mg_rank *rank;
	uint32_t number; /* of @rank */
	struct ck_torch_open f;
	ck_pv args;
	signed char *conds; /* of each rule: 1, 0; -1: args are not there */
};

/* "mp_rank_00", "mp_rank_00_001", "mp_rank_00_001_002". */
bool ck_mg_is_rank(const char *name, unsigned at[3], unsigned *nr);
/* Its file in the folder @dir of @in, to free(); NULL: no memory. */
char *ck_mg_file_of(const struct ck_dir *in, const char *dir);
void ck_mg_args_read(struct ck_mg_args *a, const struct ck_pickle *p,
		     ck_pv root);
/* An argument: false where it is no number (True is 1). */
bool ck_mg_arg(const struct ck_pickle *p, ck_pv args, struct ck_tp_word name,
	       int64_t *out);

/* What each file says of itself; fills ld->ranks and the degrees. */
int ck_mg_ranks_read(struct ck_mg_load *ld, struct ck_err *err);
/*
 * Whether the ranks, which are placed, are in the folders that are called after
 * them.  -EINVAL where two files are of one rank, or in the wrong order.
 */
int ck_mg_order_check(const struct ck_mg_load *ld, struct ck_err *err);
void ck_mg_ranks_free(struct ck_mg_load *ld);
/* Chunk @i of a file, "model" or "model0" ...; false: it has no such. */
bool ck_mg_chunk(const struct ck_pickle *p, unsigned i, ck_pv *out);
int ck_mg_offsets(struct ck_mg_load *ld, struct ck_err *err);

struct ck_mg_name {
	struct ck_str full; /* with the numbers of the unsplit model */
	bool expert; /* one of those that expert ranks share */
	bool numbered; /* and says which */
	uint64_t local; /* its number in its rank */
};
/*
 * The name of the unsplit model.  @chunk CK_NONE: the layers are not counted.
 * -ENOMEM only.
 */
int ck_mg_name(const struct ck_mg_load *ld, unsigned pp, unsigned ep,
	       unsigned chunk, const char *name, size_t len,
	       struct ck_mg_name *out);
/* Counts the layer that @name is in; the stack, or -1. */
int ck_mg_layer(const char *name, size_t len, uint64_t *layer, size_t *from,
		size_t *to);

/*
 * How tensor @name of that shape, of tensor-parallel rank @tp, lies in the
 * whole.  -EINVAL with a line in @why where nothing says so.
 */
int ck_mg_cut(const struct ck_mg_file *f, const struct ck_mg_name *name,
	      unsigned tp, const uint64_t *shape, unsigned rank,
	      struct ck_cut *cut, struct ck_err *why);
int ck_mg_conds(struct ck_mg_file *f, struct ck_err *err);

/* The parts that one rank stores, and those of absent ranks like it. */
int ck_mg_model_say(struct ck_mg_file *f, struct ck_err *err);
int ck_mg_rest_say(struct ck_mg_file *f, struct ck_err *err);
/* All that @f holds, of a file beside the weights. */
int ck_mg_apart_say(struct ck_mg_file *f, struct ck_err *err);
/* The distributed optimizer's file is there of all ranks, or of none. */
int ck_mg_optim_gaps(struct ck_mg_load *ld, struct ck_err *err);
/* A folder that has CK_MG_OPTIM_OLD alone: 1; 0: it has not; -ENOMEM. */
int ck_mg_optim_add(struct ck_mg_load *ld, const char *dir, struct ck_err *err);
/* What those folders hold, and which of them are missing. */
int ck_mg_optims_say(struct ck_mg_load *ld, struct ck_err *err);
void ck_mg_rank_free(struct ck_mg_rank *r);
/* For qsort and bsearch of ranks: by stage, then tensor-parallel, then third. */
int ck_mg_by_place(const void *pa, const void *pb);
/*
 * Compares a small piece with its copies seen before.  0; -EINVAL with a line
 * in @why where they differ, or -ENOMEM.
 */
int ck_mg_compare(struct ck_mg_file *f, const struct ck_mg_name *name,
		  unsigned part, const struct ck_torch_place *at,
		  struct ck_err *why);

#endif
