/* SPDX-License-Identifier: Apache-2.0 */
/*
 * priv.h - an nnScaler checkpoint while it is described
 *
 * A rank's file holds the attributes of parallelised modules, each a box (its
 * slicers) of a full tensor, and optimizer states, which ZeRO keeps in buckets
 * that several ranks share.  Ranks are read one after another; what is known
 * of their tensors is kept without the pickles.  One thread.
 */
#ifndef CK_NNSCALER_PRIV_H
#define CK_NNSCALER_PRIV_H

#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/format/format.h"
#include "core/container/st_file.h"
#include "core/base/strmap.h"
#include "core/container/torch_place.h"

#include <stdbool.h>

#define CK_NN_EXTRA "CUBE_EXTRA_STATE"
#define CK_NN_VIRTUAL "_nnscaler_non_parallel_module_"
#define CK_NN_MAX_RANKS (1u << 20)

/* Numbers for strings; unlike a strmap it owns them. */
struct ck_nn_names {
	struct ck_strmap map;
	CK_VEC(char *) v;
};

/* CK_STRMAP_NONE: no memory. */
uint32_t ck_nn_name(struct ck_nn_names *n, const char *s, size_t len);
/* "A.B", or B where A is "". */
uint32_t ck_nn_name2(struct ck_nn_names *n, const char *a, size_t a_len,
		     const char *b, size_t b_len);
void ck_nn_names_free(struct ck_nn_names *n);

/* A stored tensor: shape[rank], then stride[rank] unless dense, in dims. */
struct ck_nn_tensor {
	uint64_t off;
	size_t dims;
	uint32_t src;
	uint8_t dtype, xform, rank;
	bool dense; /* row-major without gaps */
	bool number; /* its 8 bytes are in dims, and in the catalog */
};

/* Elements that a tensor has; it was read without overflow. */
typedef CK_VEC(uint64_t) ck_nn_dims;
uint64_t ck_nn_volume(const ck_nn_dims *dims, const struct ck_nn_tensor *t);

/* One file that holds a checkpoint, in either container. */
struct ck_nn_file {
	const char *name; /* borrowed */
	bool st;
	struct ck_torch_open
		t; /* s and src of both containers; ts of torch's */
	struct ck_st_file h;
	CK_VEC(uint32_t) entry; /* of the header, by the tensor's number */
	char *bytes; /* st: the pickle */
	size_t len;
	struct ck_pickle *own;
	const struct ck_pickle *p;
	ck_pv root;
};

/*
 * @b NULL: only to look.  0, and *ok says whether it can be read; @why, where
 * not.  -errno is for what ends the load.
 */
int ck_nn_file_open(struct ck_nn_file *f, const struct ck_dir *dir,
		    struct ck_builder *b, const char *name, bool *ok,
		    struct ck_err *why, struct ck_err *err);
void ck_nn_file_close(struct ck_nn_file *f);
#define ck_auto_nn_file __attribute__((cleanup(ck_nn_file_close)))
/* Whether @v is a tensor, or stands for one. */
bool ck_nn_is_tensor(const struct ck_nn_file *f, ck_pv v);
/* -EINVAL with a line in @why where it has no plain bytes. */
int ck_nn_place(struct ck_nn_file *f, ck_pv v, ck_nn_dims *dims,
		struct ck_nn_tensor *out, struct ck_err *why);
/* A key of a dict, or an attribute of an object. */
bool ck_nn_field(const struct ck_pickle *p, ck_pv v, const char *key,
		 ck_pv *out);
int64_t ck_nn_int(const struct ck_pickle *p, ck_pv v, const char *key,
		  int64_t otherwise);
/* The model and the optimizer of a rank's file, whoever wrote it. */
bool ck_nn_parts(const struct ck_nn_file *f, ck_pv *model, ck_pv *optimizer);
/* The first extra state in @model; false: it is no parallelised one. */
bool ck_nn_extra(const struct ck_pickle *p, ck_pv model, ck_pv *extra);
bool ck_nn_is_extra(const char *key, size_t len, size_t *prefix_len);

/* What all files of one save agree on. */
struct ck_nn_identity {
	int64_t world, plan, zero, groups, steps;
	uint64_t model; /* hash of train_args.model; 0: not said */
};

struct ck_nn_attr {
	uint32_t name; /* in names: the full one */
	uint8_t rank;
	bool is_param, saved, flat, in_bucket, has_opt;
	bool bad; /* which part it is, is not to be told */
	size_t dims; /* shape, start, len: 3 * rank */
	struct ck_nn_tensor t; /* where saved */
	uint64_t lo, hi; /* flat: of the box's order */
	int64_t opt; /* has_opt: its number among the module's states */
	uint64_t pos, end; /* in_bucket */
};

struct ck_nn_bucket {
	int64_t opt;
	size_t ranks, nr_ranks; /* in rank_nrs */
	uint64_t size; /* elements */
};

struct ck_nn_module {
	uint32_t prefix; /* in names */
	bool virtual_one;
	bool ordered; /* its parameters are as cube_param_names says */
	struct ck_nn_identity id; /* world, plan, zero, groups */
	size_t attrs, nr_attrs, buckets, nr_buckets;
	bool has_states;
	int64_t offset, count; /* in the optimizer's numbering */
};

struct ck_nn_state {
	int64_t id;
	uint32_t key; /* in names */
	struct ck_nn_tensor t;
};

struct ck_nn_plain { /* a tensor of an ordinary module */
	uint32_t name, key; /* in names: with "model.", without */
	struct ck_nn_tensor t;
	bool is_module; /* none: here the module @key stands in the order */
};

struct ck_nn_rank {
	const char *file; /* NULL: there is none */
	uint32_t src;
	bool ok, absent;
	struct ck_nn_identity id;
	CK_VEC(struct ck_nn_module) modules;
	CK_VEC(struct ck_nn_attr) attrs;
	CK_VEC(struct ck_nn_bucket) buckets;
	CK_VEC(int64_t) rank_nrs;
	CK_VEC(struct ck_nn_state) states; /* by id */
	CK_VEC(struct ck_nn_plain) plain;
	bool known_optimizer; /* nnScaler itself would merge its states */
	int64_t nr_ids; /* entries of the optimizer; -1: not said */
	uint32_t class; /* its name, in names */
};

/* Elements [lo, hi) of a box of a tensor, or all of it (hi 0). */
struct ck_nn_piece {
	uint32_t name; /* in names */
	uint32_t param, state; /* in names; CK_STRMAP_NONE: of the model */
	int64_t id; /* of a state in a merged file: its parameter's number */
	uint32_t rank; /* whose file */
	size_t dims; /* the tensor's shape, the box's start and len */
	uint8_t dims_rank;
	bool flat, weight, copy_checked;
	bool absent; /* its file is not there */
	uint64_t lo, hi; /* flat: t is a vector of these */
	struct ck_nn_tensor t;
	uint64_t sum[2]; /* copy_checked: of its bytes */
};

struct ck_nn_tie { /* two names for one tensor */
	uint32_t name, with;
};

struct ck_nn_set {
	const struct ck_dir *dir;
	struct ck_builder *b;
	struct ck_nn_names names;
	ck_nn_dims dims;
	CK_VEC(char *) files; /* by rank; NULL: none */
	CK_VEC(struct ck_nn_rank) ranks; /* as many */
	CK_VEC(struct ck_nn_piece) pieces;
	CK_VEC(struct ck_nn_tie) ties;
	CK_VEC(uint8_t) marks; /* of names: CK_NN_MAPPED, CK_NN_LISTED */
	bool listed; /* a module's lists were read */
	bool merged; /* one file, which the framework merged */
	bool numbered; /* paths of states have numbers of parameters */
	struct ck_strmap
		numbers; /* of ranks: names by number, without "model." */
	char *prefix, *suffix; /* of the files' names */
	uint32_t first; /* the first rank that can be read */
	unsigned nr_missing;
	struct ck_err first_fault; /* of a file, for the case that all have */
};

/* Finds the rank files of a folder; nr 0: there are none. */
int ck_nn_set_find(struct ck_nn_set *s, struct ck_err *err);
void ck_nn_set_free(struct ck_nn_set *s);
/* Reads all ranks, and leaves those aside that are of another save. */
int ck_nn_set_read(struct ck_nn_set *s, struct ck_err *err);
/* The name that the file of rank @nr has or had. */
int ck_nn_set_name(const struct ck_nn_set *s, uint64_t nr, struct ck_str *out);

int ck_nn_rank_read(struct ck_nn_set *s, struct ck_nn_rank *r,
		    struct ck_nn_file *f, struct ck_err *why);
void ck_nn_config_read(const struct ck_pickle *p, ck_pv extra,
		       struct ck_nn_identity *id);
/* -EINVAL: it is no rank's file; or -ENOMEM. */
int ck_nn_identity_read(const struct ck_nn_file *f, struct ck_nn_identity *id,
			int64_t *rank);
void ck_nn_rank_free(struct ck_nn_rank *r);
int ck_nn_optim_read(struct ck_nn_set *s, struct ck_nn_rank *r,
		     struct ck_nn_file *f, ck_pv optimizer, struct ck_err *why);

/* What the ranks hold, as pieces. */
int ck_nn_model_say(struct ck_nn_set *s, struct ck_err *err);
int ck_nn_optim_say(struct ck_nn_set *s, struct ck_err *err);
/* Entries of the optimizer that belong to no parallelised module. */
int ck_nn_plain_say(struct ck_nn_set *s, struct ck_err *err);
/* The state as it is, as rank_R.optimizer.state.N.KEY. */
int ck_nn_raw_say(struct ck_nn_set *s, uint32_t rank,
		  const struct ck_nn_state *st, struct ck_err *err);
/* "optimizer.NAME.STATE", of "model.NAME", in names. */
uint32_t ck_nn_state_name(struct ck_nn_set *s, uint32_t model, uint32_t state);
/* States of entry @id: *nr of them; NULL where that is 0. */
const struct ck_nn_state *ck_nn_states_of(const struct ck_nn_rank *r,
					  int64_t id, size_t *nr);
/* Shape, start and len of all of a tensor, in dims; SIZE_MAX: no memory. */
size_t ck_nn_whole(struct ck_nn_set *s, const struct ck_nn_tensor *t);
int ck_nn_piece_add(struct ck_nn_set *s, const struct ck_nn_piece *p,
		    struct ck_err *err);

/* Compares copies, and gives the pieces to the builder. */
int ck_nn_pieces_say(struct ck_nn_set *s, struct ck_err *err);
/* Sums of the small ones among pieces that others are copies of. */
int ck_nn_sums_read(struct ck_nn_set *s, struct ck_err *err);
/* What the lists name and no file holds. */
int ck_nn_absent_say(struct ck_nn_set *s, struct ck_err *err);

/*
 * Everything of a file that is neither model nor a state of the optimizer; of
 * the first rank's what all say, too.
 */
int ck_nn_rest_say(struct ck_nn_set *s, struct ck_nn_file *f, uint32_t rank,
		   struct ck_err *err);
/*
 * The optimizer's groups, key by key, and s->numbered: its states are to be
 * in torch.optim's form.  Where that is false nothing was said.  @in: where the
 * pickle of @f is.
 */
int ck_nn_groups_say(struct ck_nn_set *s, const struct ck_nn_file *f,
		     const struct ck_object_in *in, struct ck_err *err);
/* What number the merged optimizer gives @param, of state @p; -1: none. */
int64_t ck_nn_number(const struct ck_nn_set *s, const struct ck_nn_piece *p,
		     const char *param, size_t len);

/*
 * Which tensors an optimizer's numbered entries belong to: tensors in the
 * order of the state dict, of which the parameters are numbered in order.
 */
struct ck_nn_order_tensor {
	const char *name;
	size_t name_len;
	const uint64_t *shape;
	uint8_t rank;
	bool tied; /* another name of a tensor before it */
	bool buffer; /* no parameter, for sure */
};
struct ck_nn_order_id {
	const uint64_t *shape; /* of its states; NULL: it has none */
	uint8_t rank;
	/* out */
	uint32_t tensor; /* CK_STRMAP_NONE: not to be told */
	bool convention; /* only as modules are usually written */
};
/* @gaps: parameters may be missing among the tensors. */
int ck_nn_order(const struct ck_nn_order_tensor *t, size_t nr,
		struct ck_nn_order_id *id, size_t nr_ids, bool gaps,
		struct ck_err *err);
/* The same from the user's list (-o params=): a name a line. */
int ck_nn_order_given(const struct ck_nn_order_tensor *t, size_t nr,
		      struct ck_nn_order_id *id, size_t nr_ids,
		      const char *text, size_t len, struct ck_err *err);

#endif
