/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.h - ColossalAI's distributed model files: pieces and their records
 *
 *   pytorch_model-meta-dist-00001.json     which box of which tensor a file has
 *   pytorch_model-dist-00001-shard-00000.bin     the pieces, by name
 *
 * The number is tp_size * pp_rank + tp_rank.  Boxes stand in the records
 * only, types and places of bytes in the weight files only.
 */
#ifndef CK_COLOSSALAI_SET_H
#define CK_COLOSSALAI_SET_H

#include "core/base/err.h"
#include "core/base/limits.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"
#include "core/root/dir.h"
#include "core/base/strmap.h"
#include "core/parse/json.h"

#include <stdbool.h>
#include <stdint.h>

/* A tensor in a weight file. */
struct ck_ca_entry {
	uint8_t dtype, xform;
	unsigned rank;
	uint64_t *dims; /* shape, then strides */
	uint64_t off;
	uint64_t storage, storage_len; /* .bin: where its storage is */
	char *fault; /* why it cannot be read; NULL: it can */
};

/* A record, or an entry that has none (@box NULL). */
struct ck_ca_piece {
	uint32_t file, next; /* of the same tensor; CK_STRMAP_NONE: last */
	unsigned rank;
	uint64_t *box; /* offsets, lengths, global shape */
	struct ck_ca_entry *entry; /* NULL: the file has none */
};

struct ck_ca_tensor {
	char *name;
	size_t len;
	uint32_t first, last; /* pieces */
	uint32_t hint; /* that an entry was given to last */
	char *fault;
};

struct ck_ca_file {
	char *name; /* in the folder */
	uint64_t dist;
	uint32_t src;
	bool present, usable;
	bool unboxed; /* the records of its rank are lost */
};

struct ck_ca_set {
	const struct ck_dir *dir;
	struct ck_builder *b;
	struct ck_strmap names, file_names;
	CK_VEC(struct ck_ca_tensor) tensors;
	CK_VEC(struct ck_ca_piece) pieces;
	CK_VEC(struct ck_ca_file) files;
	CK_VEC(struct ck_ca_entry *) entries;
	uint64_t compared[2]; /* bytes: with records, without */
};

/* Whether a name is of such a metadata file, or weight file. */
bool ck_ca_is_meta(const char *name, uint64_t *dist);
bool ck_ca_is_weights(const char *name, uint64_t *dist);

/* meta.c: reads all records.  -EINVAL where one file of them is damaged. */
int ck_ca_read_meta(struct ck_ca_set *s, const struct ck_dir_list *l,
		    struct ck_err *err);
/* files.c: finds the entry of each record, and those without. */
int ck_ca_read_files(struct ck_ca_set *s, const struct ck_dir_list *l,
		     struct ck_err *err);
/* join.c: says all tensors to the builder, or why not. */
int ck_ca_join(struct ck_ca_set *s, struct ck_err *err);
void ck_ca_set_free(struct ck_ca_set *s);

/* The tensor of that name, made where there is none; NULL: no memory. */
struct ck_ca_tensor *ck_ca_tensor(struct ck_ca_set *s, const char *name,
				  size_t len);
struct ck_ca_piece *ck_ca_piece(struct ck_ca_set *s, const char *name,
				size_t len, uint32_t file);
/* CK_STRMAP_NONE: no memory. */
uint32_t ck_ca_file(struct ck_ca_set *s, const char *name);

#endif
