/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doc.h - an unshard-layout.json, parsed and checked by itself
 *
 * Nothing here knows which files there are; docs/man/unshard-layout.5.scd says
 * what the members mean.  All of it lives as long as the document, and texts
 * point into the JSON value.  One thread.
 */
#ifndef CK_LAYOUT_DOC_H
#define CK_LAYOUT_DOC_H

#include "core/base/arena.h"
#include "core/base/strmap.h"
#include "core/base/vec.h"
#include "core/layout/text.h"
#include "core/mesh/mesh.h"
#include "core/parse/json.h"

#include <regex.h>

#define CK_LAYOUT_FILE "unshard-layout.json"
#define CK_LAYOUT_VERSION 1
#define CK_LAYOUT_MAX_BYTES (UINT64_C(64) << 20)
#define CK_LAYOUT_MAX_RANKS (UINT64_C(1) << 20)

enum ck_layout_kind { CK_LAYOUT_RAW, CK_LAYOUT_SAFETENSORS, CK_LAYOUT_TORCH };

struct ck_layout_dims {
	const uint64_t *v; /* NULL: not given */
	unsigned rank;
};

struct ck_layout_item { /* what a raw file holds, as headers say of others */
	const char *key; /* NULL: the file is one item, and its path has it */
	const char *offset_text; /* "{expr}", or NULL: @offset */
	uint64_t offset;
	uint8_t dtype; /* CK_DT_NONE: the tensor's */
	struct ck_layout_dims shape;
};

struct ck_layout_files {
	const char *path;
	enum ck_layout_kind kind;
	bool glob, has_key;
	uint64_t at[CK_LAYOUT_AXES];
	struct ck_layout_item *item;
	size_t nr_items;
};

struct ck_layout_box {
	const char *file; /* NULL: the pieces of the files at @at */
	enum ck_layout_kind kind;
	const char *key; /* in @file, of any but raw ones */
	uint64_t at[CK_LAYOUT_AXES];
	uint64_t rank;
	uint64_t off, skip; /* bytes; elements after the key's first */
	struct ck_layout_dims start, size, stored, flat;
	const int64_t *stride; /* or NULL */
	bool of_key; /* "skip" was given, be it 0: a stretch of the key */
	uint8_t stored_dtype, xform;
	struct ck_layout_dims zstd; /* offset and length of the frame */
	struct ck_layout_rule *rule;
	/* of the reader */
	struct ck_layout_box *next; /* of the same key */
	bool seen;
};

enum ck_layout_match { CK_LAYOUT_EXACT, CK_LAYOUT_GLOB, CK_LAYOUT_REGEX };

struct ck_layout_coord { /* an axis that the key tells */
	unsigned axis;
	const char *text;
	uint64_t n; /* where @text is NULL */
};

struct ck_layout_rule {
	enum ck_layout_match match;
	const char *pattern;
	regex_t re;
	bool has_re, ignore;
	const char *name; /* template; NULL: the key */
	const char *key; /* EXACT: template; NULL: the name */
	uint32_t key_uses; /* variables of @key */
	const char *tree; /* or NULL */
	uint8_t dtype;
	struct ck_layout_dims shape, view;
	struct ck_mesh_step *step; /* those that cut, only */
	unsigned nr_steps;
	uint32_t named; /* axes that the placement names */
	struct ck_layout_coord *coord;
	size_t nr_coords;
	bool boxed; /* nothing else places it, not even where there are none */
	struct ck_layout_box *box;
	size_t nr_boxes;
	uint64_t hits; /* of the reader */
};

struct ck_layout_doc {
	const char *name; /* for messages; borrowed */
	json_t *json;
	struct ck_arena mem;
	struct ck_layout_mesh mesh;
	struct ck_layout_files *files;
	size_t nr_files;
	struct ck_layout_rule *rules;
	size_t nr_rules;
	int failed; /* while it is parsed: the first fault, said in @err */
	struct ck_err *err;
};

/* -EINVAL: "NAME: tensors[3].placement.tp: expected ..., found ...". */
int ck_layout_doc_parse(struct ck_layout_doc *d, const char *name,
			const char *bytes, size_t len, struct ck_err *err);
void ck_layout_doc_free(struct ck_layout_doc *d);

/*
 * Which member of "tensors" a key or a name falls under: the first.  Exact
 * names are looked up, the others tried in turn.
 */
struct ck_layout_index {
	struct ck_layout_doc *doc;
	struct ck_strmap exact;
	CK_VEC(uint32_t) exact_rule; /* by number in @exact */
	CK_VEC(uint32_t) others;
	struct ck_str scratch; /* a key, for the C library's patterns */
};

/* By its exact @name, or with NULL by what it matches; false: no memory. */
bool ck_layout_index_add(struct ck_layout_index *x, uint32_t rule,
			 const char *name, size_t len);
/*
 * Sets *rule, or CK_NONE, and the groups of @v, which point into @key.
 * Coordinates of @at that are not known are found, where a key has them.
 */
int ck_layout_index_find(struct ck_layout_index *x, struct ck_layout_slice key,
			 struct ck_layout_vars *v, uint64_t *at,
			 uint32_t *rule);
void ck_layout_index_free(struct ck_layout_index *x);

/*
 * The coordinate that @c tells, as a text too (empty: it is in @c); -EINVAL
 * with the reason.  It may be past the end of its axis.
 */
int ck_layout_coord(const struct ck_layout_coord *c,
		    const struct ck_layout_vars *v, struct ck_str *text,
		    uint64_t *n, struct ck_err *why);

/* Dimensions that are cut: the rule's "view", else @shape. */
struct ck_layout_dims ck_layout_grid(const struct ck_layout_rule *r,
				     struct ck_layout_dims shape);
/* The box of the files at that place, or NULL; where it is. */
const struct ck_layout_box *ck_layout_box_at(const struct ck_layout_doc *d,
					     const struct ck_layout_rule *r,
					     uint64_t rank, const uint64_t *at);
void ck_layout_box_place(const struct ck_layout_box *b, struct ck_placed *out);
/*
 * Which of *@nr parts the steps make is that at @at: of dimension @dim, or with
 * @dim < 0 of the tensor.  CK_LAYOUT_FREE: nothing tells, or @at is NULL.  And
 * back: sets the coordinates of the axes that cut.
 */
uint64_t ck_layout_part(const struct ck_layout_rule *r, int dim,
			const uint64_t *at, uint64_t *nr);
void ck_layout_part_at(const struct ck_layout_rule *r, int dim, uint64_t part,
		       uint64_t *at);
/* "tp=1, dp=0": of the axes that cut @dim, as above, from the last if @back. */
void ck_layout_part_text(const struct ck_layout_rule *r, int dim,
			 const uint64_t *at, bool back, char text[256]);

#endif
