/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assemble.h - the files of several ranks joined to tensors
 *
 *	files      each a container, of a rank             ck_asm_file, _read
 *	pieces     what a file stores under a key          ck_asm_give
 *	tensors    their pieces, by name                   ck_asm_tensor
 *	parts      for the builder, of each piece          ck_asm_join
 *
 * A reader says which keys are which tensor and where a piece belongs, by a
 * struct ck_asm_reader; whether the pieces go together, what the shape is,
 * whether replicas are alike and how what is wrong is said is here.  Strings
 * and numbers that are given are copied and live as long as the struct ck_asm.
 * One thread.
 */
#ifndef CK_ASSEMBLE_H
#define CK_ASSEMBLE_H

#include "core/base/arena.h"
#include "core/base/strmap.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"
#include "core/container/container.h"
#include "core/geom/shard.h"

#define CK_ASM_ANY UINT64_MAX /* a rank that nothing tells */

struct ck_asm_file {
	const char *name; /* relative to the root */
	const char *who; /* what messages call it; its name at first */
	uint64_t rank;
	uint32_t src, user; /* @user: the reader's */
	bool present, usable; /* it exists; and it could be read */
};

/* Where the reader's own records say that a piece belongs. */
struct ck_asm_box {
	const uint64_t *start, *len, *shape; /* @shape: of the whole tensor */
	unsigned rank;
};

struct ck_asm_piece {
	struct ck_extent x; /* stored: where its bytes are */
	const struct ck_asm_box *box; /* or NULL */
	uint64_t user;
	uint64_t flat[2]; /* elements [lo, hi) */
	/* Equal where bytes are, with a reader that says @likes; 0: unknown. */
	uint64_t like;
	uint32_t file, next; /* of the same tensor; CK_NONE: the last */
	bool stored; /* else there is only a record of it */
	bool lost; /* its bytes are of no use: it leaves a hole */
	bool is_flat; /* stored is the stretch @flat of its box's order */
	bool whole; /* the file itself says that it is all of the tensor */
	bool left_out; /* by the reader */
};

/* One more name of a tensor, under which it is shown, too. */
struct ck_asm_alias {
	const char *name;
	size_t len;
	uint32_t next; /* CK_NONE: the last */
};

struct ck_asm_tensor {
	const char *name;
	const char *fault; /* why it cannot be had */
	size_t len;
	uint64_t user;
	uint32_t tree, first, last; /* pieces; CK_NONE */
	uint32_t hint; /* the last piece that got its bytes */
	uint32_t alias; /* the first one; CK_NONE */
	const uint64_t *shape; /* ck_asm_declare(): of the whole; or NULL */
	uint8_t dtype, rank; /* the same */
};

/*
 * What may be wrong with a tensor.  What a reader has no words for is not
 * looked at, but for the first and for NO_FILE; {file} and {other} in them are
 * pieces' files, as messages call them, and {last} is that of the last copy
 * before {other} which is as {file}'s.
 */
enum ck_asm_wrong {
	CK_ASM_FAULT, /* {file} cannot give it: {fault} */
	CK_ASM_TWICE, /* {file} has two of that name */
	CK_ASM_BOXLESS, /* {file} has no box for its piece, {other} has one */
	CK_ASM_LENGTHS, /* what {file} stores is not as long as its box */
	CK_ASM_NOT_IN, /* {file} does not store what its box is for */
	CK_ASM_RANK, /* {file} and {other} differ in the number of dimensions */
	CK_ASM_SHAPE, /* or in the whole tensor's shape */
	CK_ASM_DTYPE, /* or in {dtype} and {other_dtype} */
	CK_ASM_NO_FILE, /* {file}, and all others that have it, are not there */
	CK_ASM_COPIES, /* {file} and {other} differ, first at byte {byte} */
	CK_ASM_UNPLACED, /* the same, where they may as well be parts */
	CK_ASM_UNREAD, /* where they may, and cannot be compared */
	CK_ASM_NR_WRONG,
};

/* The tensor at hand. */
struct ck_asm_join {
	struct ck_asm *a;
	struct ck_asm_tensor *t;
	struct ck_asm_piece *first; /* that is not left out */
	const struct ck_asm_piece *one; /* the first that is stored */
	/* Something says which part each piece is, or of place(), this one. */
	bool placed;
	uint8_t dtype;
	unsigned rank;
	uint64_t shape[CK_MAX_RANK];
	/* for place(): room for what part->start and part->len point to */
	uint64_t start[CK_MAX_RANK], len[CK_MAX_RANK];
	uint64_t flat[2]; /* and part->flat */
	int64_t stride[CK_MAX_RANK]; /* and part->stride */
	/*
	 * place() may number what the piece is of: those of equal numbers are
	 * replicas.  0: those with the same parts are.
	 */
	uint64_t replica;
	uint64_t user; /* the reader's */
};

/* -EINVAL of a hook with @why refuses the tensor; all may be NULL. */
struct ck_asm_reader {
	const char *words[CK_ASM_NR_WRONG];
	bool is_st; /* files are safetensors, whatever they are called */
	bool likes; /* pieces have @like; else replicas are compared here */
	/* Stretches of one box may be replicas in part; else they overlap. */
	bool cuts_stretches;
	/*
	 * Once a file's container is open: -EINVAL with @why where it is not
	 * what its name says; it is damaged then.
	 */
	int (*opened)(struct ck_asm *a, uint32_t file,
		      const struct ck_container *c, struct ck_err *why,
		      struct ck_err *err);
	/* Which tensor a key is of; NULL: all tensors, by their own names. */
	int (*key)(struct ck_asm *a, uint32_t file, const struct ck_found *f,
		   struct ck_err *err);
	/* Each piece, before anything is compared. */
	int (*piece)(struct ck_asm_join *j, struct ck_asm_piece *p,
		     struct ck_err *why);
	/* Sets shape, rank and placed otherwise than by the first piece. */
	int (*shape)(struct ck_asm_join *j, struct ck_err *why);
	/*
	 * Part @n of @p.  @part is filled in as if the piece were all of the
	 * tensor, or its box, with strides of all that is stored.  What it is
	 * made to point to is copied.  1: there may be one more; 0: this is the
	 * last; CK_ASM_NONE: there is none.
	 */
	int (*place)(struct ck_asm_join *j, const struct ck_asm_piece *p,
		     unsigned n, struct ck_part *part, struct ck_err *why);
	/* The tensor is shown: what is to be noted of it. */
	int (*note)(struct ck_asm_join *j, struct ck_err *err);
	/* It is refused for @why; not 0: nothing can be had. */
	int (*refused)(const struct ck_asm_join *j, const struct ck_err *why,
		       struct ck_err *err);
};
#define CK_ASM_NONE 2

struct ck_asm {
	const struct ck_dir *dir;
	struct ck_builder *b;
	const struct ck_asm_reader *how;
	void *ctx; /* the reader's */
	struct ck_arena mem;
	CK_VEC(struct ck_asm_file) files;
	CK_VEC(struct ck_asm_tensor) tensors;
	CK_VEC(struct ck_asm_piece) pieces;
	CK_VEC(struct ck_asm_alias) aliases;
	struct ck_strmap names, paths; /* of tensors, with trees; of files */
};

/* Zero but for @dir, @b, @how and @ctx before any use. */
void ck_asm_free(struct ck_asm *a);
#define ck_auto_asm __attribute__((cleanup(ck_asm_free)))

/* The same name, the same number; CK_NONE: no memory. */
uint32_t ck_asm_file(struct ck_asm *a, const char *name, uint64_t rank);
/*
 * What a file holds, by key().  One that is missing is said by the builder, one
 * that is damaged is a problem; 0 then, and it is not usable.
 */
int ck_asm_read(struct ck_asm *a, uint32_t file, struct ck_err *err);

/* The tensor of that name, made where it is new; NULL: no memory. */
struct ck_asm_tensor *ck_asm_tensor(struct ck_asm *a, uint32_t tree,
				    const char *name, size_t len);
/*
 * What the whole is, where it does not follow from the pieces: there need be
 * none then.  The first that is said of a tensor counts.  -ENOMEM.
 */
int ck_asm_declare(struct ck_asm *a, struct ck_asm_tensor *t, uint8_t dtype,
		   const uint64_t *shape, unsigned rank);
/* A new piece of it, not stored; NULL: no memory.  It may move later. */
struct ck_asm_piece *ck_asm_piece(struct ck_asm *a, struct ck_asm_tensor *t,
				  uint32_t file);
/* A box, of copies of @rank values each; @start NULL: zeros.  NULL: no memory. */
const struct ck_asm_box *ck_asm_box(struct ck_asm *a, const uint64_t *start,
				    const uint64_t *len, const uint64_t *shape,
				    unsigned rank);
/* A new one for @p; -ENOMEM. */
int ck_asm_set_box(struct ck_asm *a, struct ck_asm_piece *p,
		   const uint64_t *start, const uint64_t *len,
		   const uint64_t *shape, unsigned rank);
/* Its bytes; @fault: a line why they cannot be used, or NULL.  -ENOMEM. */
int ck_asm_set_extent(struct ck_asm *a, struct ck_asm_piece *p,
		      const struct ck_extent *x);
/*
 * Bytes that @file has of a tensor: of its piece there that has a box and is
 * not stored yet, or else of a new one.
 */
int ck_asm_give(struct ck_asm *a, struct ck_asm_tensor *t, uint32_t file,
		const struct ck_extent *x, struct ck_err *err);
#define ck_asm_each_piece(p, a, t)                              \
	for (uint32_t each_ = (t)->first;                       \
	     each_ != CK_NONE && ((p) = &(a)->pieces.v[each_]); \
	     each_ = (p)->next)
/* Why it cannot be had; the first counts. */
int ck_asm_refuse(struct ck_asm *a, struct ck_asm_tensor *t, struct ck_err *err,
		  const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The same where @ret is -EINVAL; any other ends the load. */
int ck_asm_failed(struct ck_asm *a, struct ck_asm_tensor *t, int ret,
		  const struct ck_err *why, struct ck_err *err);
/*
 * Puts the pieces of every tensor into the order of their boxes, of stretches
 * in these, and of ranks.  -ENOMEM.
 */
int ck_asm_sort(struct ck_asm *a);
/* Tied names: @t is shown as @name after it was under its own.  -ENOMEM. */
int ck_asm_add_alias(struct ck_asm *a, struct ck_asm_tensor *t,
		     const char *name, size_t len);
/* The file of a piece as messages call it. */
const char *ck_asm_who(const struct ck_asm *a, const struct ck_asm_piece *p);

/*
 * Reads the small replicas of each part, as ck_builder_same() does, and sets
 * their @like; then @fn has them, in the order in which they were given.
 */
typedef int (*ck_asm_replicas_fn)(struct ck_asm *a,
				  const struct ck_asm_tensor *t,
				  const uint32_t *piece, size_t nr,
				  struct ck_err *err);
int ck_asm_compare(struct ck_asm *a, ck_asm_replicas_fn fn, struct ck_err *err);
/* Says all tensors to the builder, in the order of first sight, or why not. */
int ck_asm_join(struct ck_asm *a, struct ck_err *err);

/* For place(): box @n of a shard of which @x stores the elements in order. */
int ck_asm_place_shard(struct ck_asm_join *j, const struct ck_shard *shard,
		       const struct ck_extent *x, unsigned n,
		       struct ck_part *part);

#endif
