/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h - a layout and the files it speaks of, on the way to parts
 *
 *	files.c    which files there are, and at which mesh coordinates
 *	keys.c     which keys each of them holds, of which tensor each is a piece
 *	check.c    pieces compared with what was expected, and added as parts
 *	missing.c  mesh positions, and names, that no file has
 *
 * One thread.
 */
#ifndef CK_LAYOUT_LOAD_H
#define CK_LAYOUT_LOAD_H

#include "core/catalog/builder.h"
#include "core/container/extent.h"
#include "core/layout/doc.h"
#include "core/root/dir.h"

/* A file of the checkpoint, as far as the layout knows it. */
struct ck_layout_file {
	const char *path;
	uint32_t entry; /* of doc.files; CK_NONE: only boxes name it */
	enum ck_layout_kind kind;
	uint64_t *at; /* coordinates */
	uint64_t rank;
	struct ck_layout_slice key; /* of the path */
	uint32_t src;
	uint64_t size; /* of the file */
	bool missing, bad;
	bool shared; /* lost, and another of its ranks' files is not */
	bool pattern; /* was looked up: no file itself */
};

/* Bytes of a file that belong to a tensor. */
struct ck_layout_piece {
	struct ck_layout_piece *next; /* of its tensor */
	const struct ck_layout_file *file;
	const struct ck_layout_box *box; /* NULL: by placement */
	const char *key;
	const uint64_t *at;
	struct ck_extent x; /* shape NULL: raw; dtype CK_DT_NONE: not said */
	bool whole; /* the file should end where the piece does */
};

struct ck_layout_tensor {
	struct ck_layout_slice name;
	struct ck_layout_rule *rule;
	struct ck_layout_piece *first, *last;
	bool refused;
};

struct ck_layout_load {
	const struct ck_dir *dir;
	struct ck_builder *b;
	struct ck_layout_doc doc;
	struct ck_arena mem;
	struct ck_strmap paths; /* of files */
	CK_VEC(struct ck_layout_file)
	files; /* do not move once all are found */
	struct ck_strmap names; /* of tensors */
	CK_VEC(struct ck_layout_tensor) tensors;
	struct ck_layout_index index;
	struct ck_strmap claims; /* "FILE:KEY" that boxes name */
	CK_VEC(struct ck_layout_box *) claim; /* by number in @claims */
	CK_VEC(const struct ck_layout_file *) lost; /* may have held copies */
};

/* What is wrong with one piece, or (@file NULL) with the tensor. */
int ck_layout_refuse(struct ck_layout_load *ld, struct ck_layout_tensor *t,
		     const struct ck_layout_file *file, struct ck_err *err,
		     const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* The builder's number of the rule's tree. */
int ck_layout_tree(const struct ck_layout_load *ld,
		   const struct ck_layout_rule *r, uint32_t *tree,
		   struct ck_err *err);

/* All files that "files" and boxes name; those that exist are not read yet. */
int ck_layout_find_files(struct ck_layout_load *ld, struct ck_err *err);
/* The pieces of all tensors; then those that boxes name and nobody has. */
int ck_layout_read_keys(struct ck_layout_load *ld, struct ck_err *err);
/* Pieces that fit become parts; a tensor of which one does not is refused. */
int ck_layout_check(struct ck_layout_load *ld, struct ck_layout_tensor *t,
		    struct ck_err *err);
/* Once all files were read: those whose keys are not known. */
int ck_layout_find_lost(struct ck_layout_load *ld, struct ck_err *err);
/* Mesh positions that no piece has, and copies in lost files. */
int ck_layout_missing(struct ck_layout_load *ld, struct ck_layout_tensor *t,
		      const struct ck_part *like, struct ck_err *err);
/* Members of "tensors" that nothing matched. */
int ck_layout_unused_rules(struct ck_layout_load *ld, struct ck_err *err);

#endif
