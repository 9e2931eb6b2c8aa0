/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nnscaler.h - an nnScaler checkpoint while it is described
 *
 * A rank's file holds the attributes of parallelised modules, each a box (its
 * slicers) of a full tensor, and optimizer states, which ZeRO keeps in buckets
 * that several ranks share.  Ranks are read one after another; what is known
 * of their tensors is kept without the pickles, in one arena.  One thread.
 */
#ifndef CK_NNSCALER_H
#define CK_NNSCALER_H

#include "core/assemble/assemble.h"
#include "core/audit/replicas.h"
#include "core/base/arena.h"
#include "core/base/str.h"
#include "core/base/strmap.h"
#include "core/base/vec.h"
#include "core/container/container.h"
#include "core/format/format.h"
#include "core/optim/order.h"
#include "core/parse/pickle_query.h"

#include <stdbool.h>

#define NNSCALER_EXTRA "CUBE_EXTRA_STATE"
#define NNSCALER_MAX_RANKS (1u << 20)

/* A name of a tensor or of a state, which is there once. */
struct nnscaler_name {
	const char *s;
	size_t len;
	uint32_t nr; /* names are numbered as they are met */
	bool mapped; /* a param_area_map has it */
	bool listed; /* a list of the module's names has it */
	bool held; /* some piece, or one of a name tied with it, is there */
	uint32_t tensor; /* number + 1 in n->a.tensors; 0: it has no piece */
	const struct nnscaler_tie *tie; /* the list of tied names it is in */
	const struct nnscaler_attr *attr; /* the first that has it */
};

/* Names for one tensor; the first of them has a piece, or another one. */
struct nnscaler_tie {
	struct nnscaler_tie *next;
	size_t nr;
	struct nnscaler_name *names[];
};

/* One file that holds a checkpoint, in either container. */
struct nnscaler_file {
	struct ck_container c;
	CK_VEC(uint32_t) entry; /* of the header, by the tensor's number */
	char *bytes; /* safetensors: the pickle */
	size_t len;
	struct ck_pickle *own;
	const struct ck_pickle *p;
	ck_pv root;
};

/* What all files of one save agree on. */
enum {
	NNSCALER_WORLD,
	NNSCALER_STEPS,
	NNSCALER_MODEL, /* hash of train_args.model; 0: not said */
	NNSCALER_PLAN,
	NNSCALER_ZERO,
	NNSCALER_GROUPS,
	NNSCALER_FACTS
};

/* An attribute of a module: what a rank has of a tensor. */
struct nnscaler_attr {
	struct nnscaler_attr *next;
	struct nnscaler_name *name; /* the full one */
	const struct ck_asm_box *box;
	bool is_param;
	bool bad; /* which part it is, is not to be told */
	bool has_opt, in_bucket;
	int64_t opt; /* its number among the module's states */
	uint64_t pos, end; /* in the bucket */
};

struct nnscaler_bucket {
	struct nnscaler_bucket *next;
	int64_t opt;
	uint64_t size; /* elements */
	size_t nr;
	int64_t ranks[];
};

struct nnscaler_module {
	struct nnscaler_module *next;
	const struct nnscaler_name *prefix;
	bool is_virtual; /* ordinary parameters whose states ZeRO shares */
	bool ordered; /* its parameters are as cube_param_names says */
	int64_t fact[NNSCALER_FACTS]; /* but for the steps and the model */
	struct nnscaler_attr *attrs;
	struct nnscaler_bucket *buckets;
	bool has_states;
	int64_t offset, count; /* in the optimizer's numbering */
};

struct nnscaler_state {
	int64_t id;
	const struct nnscaler_name *key;
	struct ck_extent x; /* of a number: in the catalog */
};

struct nnscaler_rank {
	const char *file; /* NULL: there is none */
	uint32_t at; /* in n->a.files; CK_NONE: it was not looked for */
	bool ok;
	struct nnscaler_module *modules;
	CK_VEC(struct nnscaler_state) states; /* by id */
	bool known_optimizer; /* nnScaler itself would merge its states */
	int64_t nr_ids; /* entries of the optimizer; -1: not said */
	const struct nnscaler_name *class;
};

/* Of an ordinary module; or none, where a parallelised one stands. */
struct nnscaler_plain {
	const struct nnscaler_name *name; /* a module's: its prefix */
	bool is_module;
	struct ck_extent x;
};

/* What is shown as a tensor. */
struct nnscaler_shown {
	const struct nnscaler_name *state; /* NULL: of the model */
	int64_t id; /* of a state in a merged file: its parameter's number */
	bool raw; /* a state as it is stored, its parameter not known */
	bool weight; /* a parameter of the model */
};

/* Elements [lo, hi) of a box of a tensor, or all of it. */
struct nnscaler_piece {
	struct nnscaler_name *name;
	struct nnscaler_shown shown;
	const struct ck_asm_box *box; /* NULL: it is all of it */
	uint32_t rank; /* whose file */
	bool flat; /* @x is a vector, from element @lo on */
	bool absent; /* its file is not there */
	uint64_t lo, hi;
	struct ck_extent x;
};

struct nnscaler {
	struct ck_asm a; /* what the files hold; files.v[].rank: whose */
	CK_VEC(struct nnscaler_shown) shown; /* by a.tensors.v[].user */
	struct ck_audit_odd *odd; /* by rank */
	struct ck_str text; /* a name that is being made */
	struct ck_strmap map; /* of names */
	CK_VEC(struct nnscaler_name *) names;
	struct nnscaler_name none; /* where there was no memory for one */
	struct ck_dir_list list; /* the folder */
	CK_VEC(const char *) files; /* by rank; NULL: none */
	const char *prefix, *suffix; /* of the files' names */
	CK_VEC(struct nnscaler_rank) ranks; /* as many */
	struct nnscaler_tie *ties; /* all of them */
	CK_VEC(struct nnscaler_plain) plain; /* of the first rank, in order */
	bool listed; /* a module's lists were read */
	bool merged; /* one file, which the framework merged */
	bool numbered; /* paths of states have numbers of parameters */
	struct ck_strmap numbers; /* parameters by number */
	uint32_t first; /* the first rank that can be read */
	unsigned nr_missing;
	struct ck_err first_fault; /* of a file, for the case that all have */
};
#define NNSCALER_NO_RANK UINT32_MAX

/* ---- pieces.c: names ---- */

/* A name that is being made, after @begin; memory is asked for at its end. */
struct ck_str *ck_nnscaler_text(struct nnscaler *n, const char *begin);
/* The same, of what @name of a module is called. */
struct ck_str *ck_nnscaler_below(struct nnscaler *n, const char *begin,
				 const char *prefix, size_t prefix_len,
				 const char *name, size_t len);
/* The name that was made; n->a.mem.failed says if there was no memory. */
struct nnscaler_name *ck_nnscaler_name(struct nnscaler *n);

/* ---- file.c ---- */

/*
 * @b NULL: only to look.  0, and *ok says whether it can be read; @why, where
 * not.  -errno is for what ends the load.
 */
int ck_nnscaler_open(struct nnscaler_file *f, const struct ck_dir *dir,
		     struct ck_builder *b, const char *name, bool *ok,
		     struct ck_err *why, struct ck_err *err);
void ck_nnscaler_close(struct nnscaler_file *f);
#define ck_auto_nnscaler_file __attribute__((cleanup(ck_nnscaler_close)))
/* The model and the optimizer of a rank's file, whoever wrote it. */
bool ck_nnscaler_parts(const struct nnscaler_file *f, ck_pv *model,
		       ck_pv *optimizer);
/* Whether @key is PREFIX.CUBE_EXTRA_STATE. */
bool ck_nnscaler_is_extra(const char *key, size_t len, size_t *prefix_len);
/* The first extra state in @model; false: it is no parallelised one. */
bool ck_nnscaler_extra(const struct ck_pickle *p, ck_pv model, ck_pv *extra);
/* Whether @v is a tensor, or stands for one. */
bool ck_nnscaler_is_tensor(const struct nnscaler_file *f, ck_pv v);
/* As long as @n; -EINVAL with a line in @why where it has no plain bytes. */
int ck_nnscaler_extent(struct nnscaler *n, struct nnscaler_file *f, ck_pv v,
		       struct ck_extent *x, struct ck_err *why);
/* Elements that it has; it was read without overflow. */
uint64_t ck_nnscaler_volume(const struct ck_extent *x);

/* ---- ranks.c ---- */

/* Finds the rank files of a folder; files.nr 0: there are none. */
int ck_nnscaler_find(struct nnscaler *n, struct ck_err *err);
/* What a module's extra state says: all facts but the steps and the model. */
void ck_nnscaler_config(const struct ck_pickle *p, ck_pv extra, int64_t *fact);
/* The file of a rank has source @src, and is there or not. */
int ck_nnscaler_add_file(struct nnscaler *n, uint32_t rank, const char *name,
			 uint32_t src, bool present, struct ck_err *err);
/* Reads all ranks, and leaves those aside that are of another save. */
int ck_nnscaler_ranks(struct nnscaler *n, struct ck_err *err);

/* ---- rank.c, states.c, rest.c: one file ---- */

/* Its modules, tensors and states; -EINVAL with a line: it is none of ours. */
int ck_nnscaler_rank(struct nnscaler *n, uint32_t rank, struct nnscaler_file *f,
		     struct ck_err *err);
/* A module of ordinary parameters whose states ZeRO shares. */
int ck_nnscaler_virtual_module(struct nnscaler *n, uint32_t rank,
			       struct nnscaler_file *f, ck_pv extra,
			       struct nnscaler_module **out,
			       struct ck_err *err);
/* model_idx2opt_idx and opt_idx2ranks of @m. */
int ck_nnscaler_tables(struct nnscaler *n, const struct nnscaler_file *f,
		       struct nnscaler_module *m, ck_pv extra,
		       struct ck_err *err);
int ck_nnscaler_states(struct nnscaler *n, uint32_t rank,
		       struct nnscaler_file *f, ck_pv optimizer,
		       struct ck_err *err);
/* All but the model and the states; of the first also what all files say. */
int ck_nnscaler_rest(struct nnscaler *n, uint32_t rank, struct nnscaler_file *f,
		     struct ck_err *err);

/* ---- optim.c, plain.c: states as pieces ---- */

int ck_nnscaler_optim(struct nnscaler *n, struct ck_err *err);
/* Entries of the optimizer that belong to no parallelised module. */
int ck_nnscaler_plain_states(struct nnscaler *n, struct ck_err *err);
/* States of entry @id: *nr of them; NULL where that is 0. */
const struct nnscaler_state *ck_nnscaler_states_of(
	const struct nnscaler_rank *r, int64_t id, size_t *nr);
/* All of a state of @model ("model.NAME"), or NULL: rank_R.optimizer.state.N. */
void ck_nnscaler_state(struct nnscaler *n, uint32_t rank,
		       const struct nnscaler_state *st,
		       const struct nnscaler_name *model);

/* ---- pieces.c ---- */

void ck_nnscaler_piece(struct nnscaler *n, const struct nnscaler_piece *p);
/* Drops all pieces of a rank. */
void ck_nnscaler_forget(struct nnscaler *n, uint32_t rank);
/* Whether some piece of it is there. */
bool ck_nnscaler_is_held(const struct nnscaler *n,
			 const struct nnscaler_name *name);
/* Compares copies, and gives all pieces to the builder. */
int ck_nnscaler_add_pieces(struct nnscaler *n, struct ck_err *err);

#endif
