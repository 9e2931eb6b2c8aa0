/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oneflow.h - what OneFlow saves, within this folder
 *
 *	fmt.c	  which saves there are, and which ranks they are of
 *	sbp_option.c	  what the user says of them
 *	save.c	  the forms of one save, and the leaves of each
 *	modules.c leaves below modules that were pickled whole
 *	tensor.c  what a tensor's node, or its folder, says
 *	meta.c	  a folder's text;  graph.c  a graph's
 *	join.c	  where the pieces of all ranks belong
 *
 * One thread.
 */
#ifndef CK_ONEFLOW_H
#define CK_ONEFLOW_H

#include "core/assemble/assemble.h"
#include "core/container/torch_walk.h"
#include "core/mesh/sbp.h"
#include "core/parse/pickle_query.h"

/* ---- sbp_option.c ---- */

/*
 * OneFlow writes a rank's pieces with no word of ranks, placement or SBP.
 *
 *	-o sbp='split(0)'       for every tensor, over all ranks there are
 *	-o sbp=FILE             mesh/sbp.h, and "path": "model_{rank}"
 */
struct oneflow_sbp {
	struct ck_sbp by;
	char *path; /* FILE: with {rank} or without; NULL: found by looking */
};

/*
 * What the option, or unshard-layout.json in the folder, says; *given is
 * false where there is neither.  -EINVAL with a line.
 */
int ck_oneflow_sbp_get(struct oneflow_sbp *out, const struct ck_dir *dir,
		       bool *given, struct ck_err *err);
/* Whether the folder's unshard-layout.json has rules of OneFlow. */
int ck_oneflow_sbp_in_layout(const struct ck_dir *dir, bool *found,
			     struct ck_err *err);
void ck_oneflow_sbp_free(struct oneflow_sbp *s);
/* @path with the rank in it, for free(); NULL: no memory. */
char *ck_oneflow_sbp_path(const struct oneflow_sbp *s, uint32_t rank);
/* Makes the one rule that a word means apply to ranks 0 to @nr - 1. */
int ck_oneflow_sbp_spread(struct oneflow_sbp *s, uint32_t nr,
			  struct ck_err *err);

/* ---- join.c ---- */

/* All saves, on the way to parts.  One alone has all of every tensor. */
struct oneflow_load {
	struct ck_asm a;
	const struct oneflow_sbp *sbp; /* NULL: every save holds all of it */
	uint32_t nr_saves; /* how many there should be, where sbp is NULL */
	struct ck_strmap objects;
	struct oneflow_place *place; /* of the tensor that is joined */
};

struct oneflow_leaf {
	const char *name; /* valid during the call, as all here is */
	size_t name_len;
	const struct ck_path_part *path; /* NULL: the name is all of it */
	unsigned depth;
	struct ck_extent x; /* a tensor's */
	bool whole; /* it was global: every process stored all of it */
	uint64_t len; /* an object's: of the pickle that has it */
	const char *foreign; /* it calls what no framework has; or NULL */
};

void ck_oneflow_begin(struct oneflow_load *ld, const struct ck_dir *dir,
		      struct ck_builder *b);
void ck_oneflow_end(struct oneflow_load *ld);
int ck_oneflow_tensor(struct oneflow_load *ld, uint32_t file,
		      const struct oneflow_leaf *leaf, struct ck_err *err);
int ck_oneflow_object(struct oneflow_load *ld, const struct oneflow_leaf *leaf,
		      struct ck_err *err);
/* Reads the save of rank @rank; a damaged one of several is a problem and 0. */
int ck_oneflow_read(struct oneflow_load *ld, uint32_t rank, const char *path,
		    struct ck_err *err);
/* Says all tensors to the builder, or why not. */
int ck_oneflow_join(struct oneflow_load *ld, struct ck_err *err);

/* ---- save.c ---- */

/*
 *   PATH                                      1.0: one pickle, tensors inside
 *   PATH/pickled_data, PATH/tensor_5/{meta,out}    0.6 to 0.9
 *   PATH/NAME/{meta,out}, PATH/snapshot_done       0.5 and before
 *   PATH/NAME/{meta,out}, PATH/model.mlir          a graph
 */
enum oneflow_kind {
	ONEFLOW_NONE,
	ONEFLOW_SINGLE,
	ONEFLOW_DIRECTORY,
	ONEFLOW_LEGACY,
	ONEFLOW_GRAPH,
};

struct oneflow_save {
	struct oneflow_load *ld;
	uint32_t file; /* the assembler's number */
	const char *path; /* of the folder, or the file; "" is the root */
	const struct ck_pickle *p;
	uint32_t src; /* of the pickle */
	uint64_t pickle_len;
	const struct oneflow_graph *graph; /* NULL: it is none */
	/* what the leaf at hand borrows */
	uint64_t shape[CK_MAX_RANK];
	int64_t stride[CK_MAX_RANK];
	struct ck_err fault;
	char foreign[160];
};

/*
 * The enum oneflow_kind of @path ("": the checkpoint's folder itself, or its
 * one file), or -ENOMEM.
 */
int ck_oneflow_kind_of(const struct ck_dir *dir, const char *path,
		       struct ck_err *err);
/*
 * Gives the leaves of a save one by one.  -EINVAL with a line that names the
 * file where it cannot be read.
 */
int ck_oneflow_save_read(struct oneflow_load *ld, uint32_t file,
			 const char *path, struct ck_err *err);

/* ---- tensor.c ---- */

/* Whether @v is a tensor of OneFlow's. */
bool ck_oneflow_is_tensor(const struct ck_pickle *p, ck_pv v);
/*
 * Fills in what @leaf says of a tensor.  -EINVAL with the reason where it
 * cannot be read; other errors end the load.
 */
int ck_oneflow_node(struct oneflow_save *s, ck_pv v, struct oneflow_leaf *leaf,
		    struct ck_err *err);
/* The same for the folder @name below the save's. */
int ck_oneflow_folder(struct oneflow_save *s, const char *name, size_t len,
		      struct oneflow_leaf *leaf, struct ck_err *err);
/* "PATH/NAME" for free(); NULL: no memory. */
char *ck_oneflow_below(const char *path, const char *name, size_t len);

/* ---- modules.c ---- */

/* All leaves of @root, those in modules under their state_dict's names. */
int ck_oneflow_walk(const struct ck_pickle *p, ck_pv root, ck_torch_leaf_fn fn,
		    void *ctx, struct ck_err *err);

/* ---- meta.c: VariableMetaInfo, beside a tensor's bytes ---- */

#define ONEFLOW_BFLOAT16 \
	11 /* the number of a type that is often not stored so */

struct oneflow_meta {
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
	int type; /* OneFlow's number */
};

/* -EINVAL with a line that says which byte. */
int ck_oneflow_meta_parse(struct oneflow_meta *out, const char *text,
			  size_t len, struct ck_err *err);
/* Of OneFlow's number: enum ck_dtype; and its name, as OneFlow says it. */
int ck_oneflow_dtype(int type);
const char *ck_oneflow_type_name(int type);

/* ---- graph.c: what a compiled graph says of its variables ---- */

struct oneflow_variable {
	int type; /* OneFlow's number; -1: not said */
	bool shaped; /* @shape is that of what is stored */
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
};

struct oneflow_graph {
	struct ck_strmap names;
	CK_VEC(struct oneflow_variable) v;
	bool whole; /* the text does not end in the middle */
};

/* Borrows @text, and decodes in it.  -ENOMEM. */
int ck_oneflow_graph_read(struct oneflow_graph *g, char *text, size_t len,
			  struct ck_err *err);
/* NULL: it lists no such variable. */
const struct oneflow_variable *ck_oneflow_graph_find(
	const struct oneflow_graph *g, const char *name, size_t len);
void ck_oneflow_graph_free(struct oneflow_graph *g);
#define ck_auto_oneflow_graph __attribute__((cleanup(ck_oneflow_graph_free)))

#endif
