/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h - a layout and the files it speaks of, on the way to parts
 *
 *	inst.c    which files there are, and at which mesh coordinates
 *	keys.c    which keys each of them holds
 *	take.c    which tensor a key is a piece of
 *	shape.c   the shape of a tensor that the layout does not say
 *	update_manifest.c  pieces compared with what was expected, and given away
 *	missing.c mesh positions, and names, that no file has
 *
 * One thread.
 */
#ifndef CK_LAYOUT_LOAD_H
#define CK_LAYOUT_LOAD_H

#include "core/catalog/builder.h"
#include "core/root/dir.h"
#include "core/format/layout/doc.h"

/* A file of the checkpoint, as far as the layout knows it. */
struct ck_lay_inst {
	const char *path;
	uint32_t entry; /* of doc->files; CK_NONE: only boxes name it */
	enum ck_lay_kind kind;
	size_t at; /* coordinates in the load's dims */
	uint64_t rank;
	struct ck_lay_slice key; /* of the path */
	uint32_t src;
	uint64_t size; /* of the file */
	bool missing, bad;
	bool twin; /* lost, and another of its ranks' files is not */
	bool pattern; /* was looked up: no file itself */
};

/* Bytes of a file that belong to a tensor. */
struct ck_lay_piece {
	uint64_t off;
	size_t at, shape, stride; /* in dims; SIZE_MAX: none */
	uint32_t inst, next, box; /* CK_NONE: the last; by placement */
	uint32_t key; /* in kept; CK_NONE: the tensor's name */
	uint8_t dtype, rank, xform; /* CK_DT_NONE: raw, and not said */
	bool whole; /* the file should end where the piece does */
};

struct ck_lay_tensor {
	struct ck_lay_slice name;
	uint32_t rule, first, last, nr;
	bool refused;
};

struct ck_lay_load {
	const struct ck_dir *dir;
	struct ck_builder *b;
	struct ck_lay_doc doc;
	CK_VEC(struct ck_lay_inst) insts;
	CK_VEC(struct ck_lay_piece) pieces;
	CK_VEC(struct ck_lay_tensor) tensors;
	CK_VEC(uint64_t) dims;
	CK_VEC(char *) kept;
	CK_VEC(uint32_t) lost; /* insts that may have held copies */
	CK_VEC(uint32_t) patterns; /* rules that are not found by name */
	CK_VEC(uint32_t) exact_rule; /* by number in exact */
	CK_VEC(uint32_t) claim_box; /* by number in claims: the first */
	/* of each box: its rule, the next that claims the same key */
	uint32_t *box_rule, *box_next;
	bool *box_seen;
	struct ck_strmap paths, names, exact, claims;
	struct ck_str scratch; /* a key, for the C library's patterns */
};

/* What a file says of one of its keys. */
struct ck_lay_found {
	struct ck_lay_slice key;
	uint64_t off;
	const uint64_t *shape; /* NULL: it does not say */
	const int64_t *stride; /* NULL: row-major */
	unsigned rank;
	uint8_t dtype, xform;
	bool whole;
};

int ck_lay_no_mem(const struct ck_lay_load *ld, struct ck_err *err);
/* A copy that lives as long as @ld; CK_NONE: no memory. */
uint32_t ck_lay_keep(struct ck_lay_load *ld, const char *s, size_t len);
/* Copies to dims; SIZE_MAX: no memory. */
size_t ck_lay_put_dims(struct ck_lay_load *ld, const uint64_t *v, unsigned nr);

/* All files that "files" and boxes name; those that exist are not read yet. */
int ck_lay_find_files(struct ck_lay_load *ld, struct ck_err *err);
/* Reads the keys of one; ck_lay_take() gets each. */
int ck_lay_read_keys(struct ck_lay_load *ld, uint32_t inst, struct ck_err *err);
int ck_lay_index_rules(struct ck_lay_load *ld, struct ck_err *err);
int ck_lay_take(struct ck_lay_load *ld, uint32_t inst,
		const struct ck_lay_found *f, struct ck_err *err);
/*
 * Whether a rule's name or pattern is @key: 1, 0, or -ENOMEM.  A regular
 * expression sets the groups of @v, which point into @key.
 */
int ck_lay_match(const struct ck_lay_rule *r, const char *key,
		 struct ck_lay_vars *v);
/* Boxes that name files and are not taken yet: raw ones, missing ones. */
int ck_lay_take_boxes(struct ck_lay_load *ld, struct ck_err *err);

/* What is wrong with one piece, or (@inst CK_NONE) with the tensor. */
int ck_lay_wrong(struct ck_lay_load *ld, struct ck_lay_tensor *t, uint32_t inst,
		 struct ck_err *err, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Something about a file, and maybe a key of it. */
int ck_lay_say(struct ck_lay_load *ld, const char *file, struct ck_err *err,
	       const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/*
 * The shape of @t into @shape (CK_MAX_RANK); -EINVAL with the reason in @why
 * where the pieces do not tell it.
 */
int ck_lay_shape(const struct ck_lay_load *ld, const struct ck_lay_tensor *t,
		 uint64_t *shape, unsigned *rank, struct ck_err *why);
/* The box of the files at that place, or NULL; where it is. */
const struct ck_lay_box *ck_lay_box_at(const struct ck_lay_load *ld,
				       const struct ck_lay_rule *r,
				       uint64_t rank, const uint64_t *at);
void ck_lay_place_box(const struct ck_lay_load *ld, const struct ck_lay_box *b,
		      struct ck_placed *out);
int ck_lay_settle(struct ck_lay_load *ld, struct ck_lay_tensor *t,
		  struct ck_err *err);
/* Once all files were read: those whose keys are not known. */
int ck_lay_find_lost(struct ck_lay_load *ld, struct ck_err *err);
/* Mesh positions that no piece has, and copies in lost files. */
int ck_lay_settle_missing(struct ck_lay_load *ld, struct ck_lay_tensor *t,
			  const struct ck_part *like, struct ck_err *err);
/* Members of "tensors" that nothing matched. */
int ck_lay_unused_rules(struct ck_lay_load *ld, struct ck_err *err);

#endif
