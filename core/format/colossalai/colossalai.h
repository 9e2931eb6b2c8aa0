/* SPDX-License-Identifier: Apache-2.0 */
/*
 * colossalai.h - what ColossalAI writes and nobody else
 *
 *	fmt.c     which files it is of
 *	parts.c   the model, the optimizer and the scheduler of one save
 *	dist.c    distributed model files; meta.c their records, ranks.c which
 *	          of them are not there, fused.c layers of query, key and value
 *	optim.c   optimizer states and groups; flat.c those of asynchronous
 *	          saves, joined.c those that may be in the order of ranks
 *
 * One thread.
 */
#ifndef CK_COLOSSALAI_H
#define CK_COLOSSALAI_H

#include "core/assemble/assemble.h"
#include "core/assemble/index_map.h"
#include "core/format/saves.h"

/* ---- parts.c: each is a checkpoint of its own ----
 *
 *   model/ or model.bin or model.safetensors        as the user named them; so
 *   optimizer/ or optimizer.bin or ....safetensors  ColossalAI's examples do
 *   lr_scheduler
 *
 * The same files of accelerate and of transformers are a model with a
 * trainer's files beside it.
 */
extern const struct ck_format_parts ck_colossalai_parts;

/* Whether a file of that name is the optimizer's. */
bool ck_colossalai_part_is_optimizer(const char *name);
/* Whether a folder holds parts of one save of which one is a file. */
bool ck_colossalai_parts_are_files(ck_has_fn has, const void *ctx);

/* ---- distributed model files ----
 *
 *   pytorch_model-meta-dist-00001.json     which box of which tensor a file has
 *   pytorch_model-dist-00001-shard-00000.bin     the pieces, by name
 *
 * The number is tp_size * pp_rank + tp_rank.  Boxes stand in the records
 * only, types and places of bytes in the weight files only.
 */

/* Whether a name is of such a file of records, or of weights. */
bool ck_colossalai_is_meta(const char *name, uint64_t *dist);
bool ck_colossalai_is_weights(const char *name, uint64_t *dist);
int ck_colossalai_dist_load(const struct ck_dir *dir,
			    const struct ck_dir_list *l, struct ck_builder *b,
			    struct ck_err *err);
/* The number of the weight file @name, made where it is new. */
uint32_t ck_colossalai_file(struct ck_asm *a, const char *name);

/* Reads all records.  -EINVAL where one file of them is damaged. */
int ck_colossalai_read_meta(struct ck_asm *a, const struct ck_dir_list *l,
			    struct ck_err *err);
/*
 * Errors name the numbers that are missing between others, and in the last
 * stage; a warning says where the last stage may be missing as a whole.
 */
int ck_colossalai_check_ranks(const struct ck_asm *a, struct ck_err *err);

/*
 * Layers that hold query, key and value in one weight: each rank has its share
 * of each of the three; records say one slab a rank, which is wrong.
 */
#define COLOSSALAI_MAX_FUSED 8
struct colossalai_fused {
	bool given;
	unsigned nr; /* 0: the records are right */
	bool equal; /* @nr parts of equal size */
	uint64_t rows[COLOSSALAI_MAX_FUSED];
};
/* -o fused=3, -o fused=64+16+16, -o fused=no */
int ck_colossalai_fused_get(struct colossalai_fused *f,
			    const struct ck_opts *opts, struct ck_err *err);
/* Whether a layer of that name is. */
bool ck_colossalai_is_fused(const char *name, size_t len);
/*
 * What the rank has whose record says @len from @off of dimension @dim.
 * -EINVAL with a line where its shares do not divide.
 */
int ck_colossalai_fused_shard(const struct colossalai_fused *f,
			      const uint64_t *shape, unsigned rank,
			      unsigned dim, uint64_t off, uint64_t len,
			      struct ck_shard *out, struct ck_err *err);

/* ---- optimizer states ----
 *
 *   pytorch_optim.bin.index[.PREFIX].json        {"weight_map": {"7": FILE}}
 *   pytorch_optim[.PREFIX]-00001.bin             {7: {"exp_avg": tensor}}
 *   optimizer.safetensors.index[.PREFIX].json    asynchronous saves
 *   optimizer[.PREFIX]-00001.safetensors         "state.7.exp_avg"
 *   pytorch_optim_group[.PREFIX].bin             [{"params": [0, 1], "lr": ..}]
 *   optimizer.bin, optimizer.safetensors         or all in one file
 *
 * States are whole: ColossalAI has gathered them.  Names are 7.exp_avg; what
 * is no tensor is an object, param_groups.0.lr.  Which parameter is 7 is in no
 * file.
 */

/* The indexes of optimizers, without prefix and .json, up to a NULL. */
extern const char *const ck_colossalai_optim_indexes[];

/* A folder with the index @index. */
int ck_colossalai_optim_load(const struct ck_dir *dir, const char *index,
			     struct ck_builder *b, struct ck_err *err);
/* Whether a safetensors file is of an asynchronous save of states. */
bool ck_colossalai_optim_is_flat(const struct ck_dir *dir, const char *name);
/* All states in the file @name, which may be of either kind. */
int ck_colossalai_optim_load_one(const struct ck_dir *dir, const char *name,
				 struct ck_builder *b, struct ck_err *err);

/*
 * ColossalAI gathers the states of a layer that is query, key and value in one
 * as if each rank had a slab of it, where each has a share of all three.
 * Neither the number of ranks nor the parameters' names are in the files, so
 * that all there is to go by are shapes: [n, 3n] or [3n, n], alone among its
 * neighbours (those of a gated layer are not), and the vector [3n] of the
 * parameter after it.
 */
struct colossalai_state {
	const char *name;
	uint64_t id, length; /* of its longer side */
	bool matrix;
};
struct colossalai_joined {
	struct ck_arena mem;
	CK_VEC(struct colossalai_state) seen;
};
/* The number in "7.exp_avg", and how many digits it has; 0: there is none. */
size_t ck_colossalai_state_id(const char *name, size_t len, uint64_t *id);
/* Looks at a state of that name and shape.  -ENOMEM. */
int ck_colossalai_joined_see(struct colossalai_joined *j, const char *name,
			     size_t len, const uint64_t *shape, unsigned rank,
			     struct ck_err *err);
/* Notes each that may be one. */
int ck_colossalai_joined_report(struct colossalai_joined *j,
				struct ck_builder *b, struct ck_err *err);
void ck_colossalai_joined_free(struct colossalai_joined *j);

/*
 * A safetensors file of an asynchronous save:
 *
 *   state.7.exp_avg   a tensor
 *   state.7.step      U8: a pickle, of a number; of any number of bytes, so
 *                     that what follows it lies at odd offsets
 *   param_groups      U8: a pickle; only where all is in one file
 *   __metadata__      {"format": "pt", "non_tensor_keys": "[\"state.7.step\"]"}
 *                     0.4.7 did not write these keys for files of a set
 *
 * Says what the file has that @index does not give to other files; @index NULL:
 * all.  A file that is missing or damaged is a problem, *usable is false, and
 * 0.
 */
int ck_colossalai_flat_load(const struct ck_dir *dir, const char *name,
			    struct ck_index_map *index, uint32_t file,
			    bool *usable, struct colossalai_joined *joined,
			    struct ck_builder *b, struct ck_err *err);

#endif
