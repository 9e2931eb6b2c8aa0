/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doc.h - an unshard-layout.json, parsed and checked by itself
 *
 * Nothing here knows which files there are; docs/man/unshard-layout.5.scd says
 * what the members mean.  Strings point into the JSON value.  One thread.
 */
#ifndef CK_LAYOUT_DOC_H
#define CK_LAYOUT_DOC_H

#include "core/base/vec.h"
#include "core/mesh/mesh.h"
#include "core/format/layout/text.h"
#include "core/base/strmap.h"
#include "core/parse/json.h"

#include <regex.h>

#define CK_LAY_FILE "unshard-layout.json"
#define CK_LAY_VERSION 1
#define CK_LAY_MAX_BYTES (UINT64_C(64) << 20)
#define CK_LAY_MAX_RANKS (UINT64_C(1) << 20)

enum ck_lay_kind { CK_LAY_RAW, CK_LAY_SAFETENSORS, CK_LAY_TORCH };

/* Dimensions in the document's dims. */
struct ck_lay_dims {
	bool given;
	unsigned rank;
	size_t first;
};

struct ck_lay_item { /* what a raw file holds, as headers say of others */
	const char *key;
	const char *offset_text; /* "{expr}", or NULL: @offset */
	uint64_t offset;
	uint8_t dtype; /* CK_DT_NONE: the tensor's */
	struct ck_lay_dims shape;
};

struct ck_lay_files {
	const char *path;
	enum ck_lay_kind kind;
	bool glob, has_key;
	uint64_t at[CK_LAY_AXES];
	size_t first_item, nr_items;
	struct ck_lay_item whole; /* raw with {key}: the file is one item */
};

struct ck_lay_box {
	const char *file; /* NULL: the pieces of the files at @at */
	enum ck_lay_kind kind;
	const char *key;
	uint64_t at[CK_LAY_AXES];
	uint64_t rank;
	uint64_t off, skip; /* bytes; elements after the key's first */
	struct ck_lay_dims start, size, stored, flat;
	size_t stride;
	bool strided;
	bool of_key; /* "skip" was given, be it 0: a stretch of the key */
	uint8_t stored_dtype, xform;
	struct ck_lay_dims zstd; /* offset and length of the frame */
};

enum ck_lay_match { CK_LAY_EXACT, CK_LAY_GLOB, CK_LAY_REGEX };

struct ck_lay_coord { /* an axis that the key tells */
	unsigned axis;
	const char *text;
	uint64_t n; /* where @text is NULL */
};

struct ck_lay_rule {
	enum ck_lay_match match;
	const char *pattern;
	regex_t re;
	bool has_re, ignore;
	const char *name; /* template; NULL: the key */
	const char *key; /* EXACT: template; NULL: the name */
	uint32_t key_uses; /* variables of @key */
	const char *tree; /* or NULL */
	uint8_t dtype;
	struct ck_lay_dims shape, view;
	size_t first_step, nr_steps; /* cuts only */
	uint32_t said; /* axes that the placement names */
	size_t first_coord, nr_coords;
	bool boxed; /* nothing else places it, not even where there are none */
	size_t first_box, nr_boxes;
	uint64_t hits;
};

struct ck_lay_doc {
	const char *name; /* for messages; borrowed */
	json_t *json;
	struct ck_lay_mesh mesh;
	CK_VEC(struct ck_lay_files) files;
	CK_VEC(struct ck_lay_item) items;
	CK_VEC(struct ck_lay_rule) rules;
	CK_VEC(struct ck_mesh_step) steps;
	CK_VEC(size_t) step_sizes; /* of each step: first of dims, if GIVEN */
	CK_VEC(struct ck_lay_coord) coords;
	CK_VEC(struct ck_lay_box) boxes;
	CK_VEC(uint64_t) dims;
	CK_VEC(int64_t) strides;
};

/* -EINVAL: "NAME: tensors[3].placement.tp: expected ..., found ...". */
int ck_lay_doc_parse(struct ck_lay_doc *d, const char *name, const char *bytes,
		     size_t len, struct ck_err *err);
void ck_lay_doc_free(struct ck_lay_doc *d);

#endif
