/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp.h - what the files of the DCP reader share; for dcp_*.c, fmt.c
 *
 *	allow.c   which classes a .metadata may name
 *	meta.c    one .metadata: bytes, pickle, its dictionaries
 *	fold.c    the objects of which a .metadata has one a chunk
 *	items.c   storage_data as a table
 *	load.c    tensors, objects and names of one .metadata to the builder
 *	part.c    one chunk to a part
 *	flat.c    Megatron's flattened optimizer tensors
 *	blob.c    items in a safetensors blob
 *	fmt.c     the folder
 */
#ifndef CK_DCP_DCP_H
#define CK_DCP_DCP_H

#include "core/base/arena.h"
#include "core/base/limits.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"
#include "core/root/dir.h"
#include "core/container/st_file.h"
#include "core/base/strmap.h"
#include "core/parse/pickle_query.h"

/* One .metadata.  Its strings live as long as it does. */
struct ck_dcp_meta {
	const char *file; /* its name; borrowed */
	const char *rank; /* rank-local: "__3", to tell objects apart */
	size_t rank_len;
	struct ck_dcp_items *items; /* until they are loaded */
	char *bytes;
	size_t len;
	struct ck_pickle *p;
	ck_pv tensors, storage; /* the two dictionaries that must be */
	ck_pv planner, mcore; /* 0: none */
};

/* One entry of storage_data: where (name, offset) is. */
struct ck_dcp_item {
	uint64_t off, len;
	uint32_t name, file; /* numbers in the items' maps */
	uint32_t at; /* of its offset: 1 + its number in dims; 0: it has none */
	bool used;
	ck_pv transforms; /* 0: none */
};

/* What the objects say of which there is one a chunk; numbers as above. */
struct ck_dcp_box {
	uint32_t at, len;
};
struct ck_dcp_key {
	uint32_t name, at;
};
struct ck_dcp_info {
	uint64_t off, len;
	uint32_t file;
	ck_pv transforms;
};

/* What was numbered before, by its value; see fold.c. */
struct ck_dcp_seen {
	ck_pv v;
	uint32_t number;
};
#define CK_DCP_SEEN 1024

struct ck_dcp_items {
	struct ck_strmap names;
	struct ck_strmap files; /* user: one more than that in dcp->files */
	struct ck_strmap dims; /* lists of numbers, as bytes */
	struct ck_arena mem; /* of dims */
	ck_pv folding; /* the object that is; 0: none, and nothing is looked up: */
	struct ck_dcp_seen seen_name, seen_file[CK_DCP_SEEN],
		seen_dims[CK_DCP_SEEN];
	struct ck_pq_fields box_fields, key_fields, info_fields;
	CK_VEC(struct ck_dcp_box) boxes; /* folded: see fold.c */
	CK_VEC(struct ck_dcp_key) keys;
	CK_VEC(struct ck_dcp_info) infos;
	CK_VEC(struct ck_dcp_item) v;
	uint32_t *slot; /* of @v, by name and offset: number + 1; 0: free */
	size_t nr_slots; /* a power of two */
	uint64_t seed; /* of the hash: a file does not choose who collides */
	uint64_t twice; /* entries left out: same name, same offset */
	uint64_t odd, first_odd; /* how many are no entries, and which */
};

/* A data file that parts refer to. */
struct ck_dcp_file {
	const char *path;
	uint32_t src;
	uint32_t blob; /* number + 1 in blobs; 0: not looked for */
	uint64_t size;
	bool known, absent;
	bool cut; /* said of an empty part's item */
};

/* A safetensors blob inside a data file. */
struct ck_dcp_blob {
	uint64_t off;
	bool zip; /* an ordinary item begins there after all */
	struct ck_st_file st;
	struct ck_strmap names; /* of its tensors */
};

struct ck_dcp {
	const struct ck_dir *dir;
	struct ck_builder *b;
	struct ck_arena mem;
	struct ck_dcp_meta *meta; /* nr_meta: one, or one a rank */
	size_t nr_meta;
	struct ck_dcp_meta *m; /* the one being loaded */
	struct ck_dcp_items *items; /* its storage_data */
	struct ck_strmap files; /* over all of them */
	CK_VEC(struct ck_dcp_file) file;
	CK_VEC(struct ck_dcp_blob) blobs;
	struct ck_strmap mcore; /* names in mcore_data; user: what it says */
	struct ck_strmap stored; /* names with an entry, over all */
	struct ck_strmap objects; /* those that are objects */
	uint64_t budget; /* chunks that so many bytes can describe */
	uint64_t decoded; /* for ck_zstd_length() */
	bool unflatten; /* -o unflatten */
	uint64_t nr_flat; /* tensors left in the form that is stored */
};

/* A tensor of state_dict_metadata. */
struct ck_dcp_tensor {
	const char *name;
	size_t name_len;
	uint32_t item_name; /* in items.names; CK_STRMAP_NONE: no entry */
	uint8_t dtype;
	unsigned rank; /* as in state_dict_metadata */
	uint64_t shape[CK_MAX_RANK];
	bool flat; /* Megatron: what follows is the tensor's true form */
	unsigned true_rank; /* rank - 1 */
	uint64_t true_shape[CK_MAX_RANK], local[CK_MAX_RANK];
	uint64_t lost; /* chunks without an entry */
	char first_lost[160];
};

struct ck_dcp_chunk {
	uint64_t at[CK_MAX_RANK], len[CK_MAX_RANK];
	uint32_t number; /* of @at: as an item's */
};

/* For ck_pickle_opts.allow. */
bool ck_dcp_allow(void *ctx, const char *module, size_t module_len,
		  const char *name, size_t name_len);

/* -EINVAL where it is no DCP metadata.  Free it in any case. */
int ck_dcp_meta_read(struct ck_dcp_meta *m, const struct ck_dir *dir,
		     const char *file, struct ck_err *err);
void ck_dcp_meta_free(struct ck_dcp_meta *m);
/* The last part of a class's name; false where @v is no object of a class. */
bool ck_dcp_class(const struct ck_pickle *p, ck_pv v, const char **name,
		  size_t *len);
/* A non-negative integer below CK_SIZE_MAX. */
bool ck_dcp_size(const struct ck_pickle *p, ck_pv v, uint64_t *out);

/* For ck_pickle_opts.fold; @ctx: struct ck_dcp_items. */
uint64_t ck_dcp_fold(void *ctx, const struct ck_pickle *p, ck_pv object);
/* What such an object says, folded or not: 0, -EINVAL where it does not, -ENOMEM. */
int ck_dcp_box(struct ck_dcp_items *t, const struct ck_pickle *p, ck_pv v,
	       struct ck_dcp_box *out);
int ck_dcp_key(struct ck_dcp_items *t, const struct ck_pickle *p, ck_pv v,
	       struct ck_dcp_key *out);
int ck_dcp_info(struct ck_dcp_items *t, const struct ck_pickle *p, ck_pv v,
		struct ck_dcp_info *out);
/* The list of numbers @at; returns how many. */
unsigned ck_dcp_dims(const struct ck_dcp_items *t, uint32_t at,
		     uint64_t out[CK_MAX_RANK]);

struct ck_dcp_items *ck_dcp_items_new(struct ck_err *err);
int ck_dcp_items_read(struct ck_dcp_items *t, const struct ck_dcp_meta *m,
		      struct ck_err *err);
/* @at 0: the entry of an object.  NULL: there is none. */
struct ck_dcp_item *ck_dcp_items_find(struct ck_dcp_items *t, uint32_t name,
				      uint32_t at);
void ck_dcp_items_free(struct ck_dcp_items *t);

/* The data file of an item, opened once.  -EINVAL for a path that leaves. */
int ck_dcp_file(struct ck_dcp *d, const struct ck_dcp_item *it, uint32_t *file,
		struct ck_err *err);

/* Only what is reached from @d, not @d. */
void ck_dcp_free(struct ck_dcp *d);

/* All that d->m says. */
int ck_dcp_load_meta(struct ck_dcp *d, struct ck_err *err);
int ck_dcp_add_chunk(struct ck_dcp *d, struct ck_dcp_tensor *t,
		     const struct ck_dcp_chunk *c, struct ck_err *err);
int ck_dcp_add_object(struct ck_dcp *d, const char *name, size_t len,
		      struct ck_err *err);

/*
 * With -o unflatten: fills the true form where mcore_data has one; -EINVAL
 * with a reason.  Else counts it.
 */
int ck_dcp_flat_shape(struct ck_dcp *d, struct ck_dcp_tensor *t,
		      struct ck_err *why);
int ck_dcp_flat_index(struct ck_dcp *d, struct ck_err *err);
/* A note if there were any and nobody asked. */
int ck_dcp_flat_note(struct ck_dcp *d, struct ck_err *err);
/* The box of a chunk of the stored form, as a flat range of the true one. */
bool ck_dcp_flat_box(const struct ck_dcp_tensor *t,
		     const struct ck_dcp_chunk *c, uint64_t *start,
		     uint64_t flat[2]);

/*
 * Whether the item is the SAFETENSORS form; then its part is added.  Costs a
 * read only where length and offset look like it.
 */
int ck_dcp_blob_add(struct ck_dcp *d, struct ck_dcp_tensor *t,
		    const struct ck_dcp_chunk *c, const struct ck_dcp_item *it,
		    bool *done, struct ck_err *err);

/* Names that planner_data has and state_dict_metadata has not, over all. */
int ck_dcp_report_lost(struct ck_dcp *d, struct ck_err *err);

#endif
