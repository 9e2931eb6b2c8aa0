/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_layout.h - what is where in the files of dcp/
 *
 *   entry: an object, or a tensor    objects come first
 *   item: an archive                 one an object; of a tensor one for each
 *                                    CK_DCP_CHUNK bytes of whole rows
 *   file: items, one after the other at most @file_size bytes, or one item
 *
 * Tensors follow the order in which the sources store them, so that reading
 * the files front to back reads the shards front to back.  16 bytes an item;
 * what is around the elements in an archive is made when it is read.
 *
 * Threads: made by one, then read by any.
 */
#ifndef CK_DCP_LAYOUT_H
#define CK_DCP_LAYOUT_H

#include "core/base/str.h"
#include "core/base/vec.h"
#include "core/emit/dcp_out.h"
#include "core/view/view.h"

/* At least; loaders read a whole item to get at a part of it. */
#define CK_DCP_CHUNK (UINT64_C(64) << 20)

struct ck_dcp_entry {
	uint32_t ref; /* tensor, or object */
	uint32_t first; /* item */
	uint32_t value, value_len; /* of an object: pickle in @values */
	bool flat; /* no path but its name is said of it */
};

struct ck_dcp_layout_item {
	uint64_t off; /* in its file */
	uint32_t entry, file;
};

struct ck_dcp_layout_file {
	char name[24];
	uint64_t size;
	uint32_t first; /* item */
};

struct ck_dcp_layout {
	const struct ck_view *view;
	CK_VEC(struct ck_dcp_entry) entry;
	CK_VEC(struct ck_dcp_layout_item) item;
	CK_VEC(struct ck_dcp_layout_file) file;
	uint32_t nr_objects; /* entries before the tensors */
	uint64_t chunk; /* bytes of a tensor that are one item, about */
	uint32_t newest; /* source that changed last; CK_NONE: none */
	struct ck_str values;
	uint32_t *planned; /* entries in the order of the save */
};

/* Of the empty @l; what cannot be held is said in the view's problems. */
int ck_dcp_layout_make(struct ck_dcp_layout *l, const struct ck_view *v,
		       uint64_t file_size, struct ck_err *err);
void ck_dcp_layout_free(struct ck_dcp_layout *l);
/* Whether any tensor of the view's can be held, or its checkpoint has none. */
bool ck_dcp_layout_any(const struct ck_view *v);

/* The last item of @file that begins at or before @off. */
uint32_t ck_dcp_item_at(const struct ck_dcp_layout *l, uint32_t file,
			uint64_t off);
/* Where it ends in its file. */
uint64_t ck_dcp_item_end(const struct ck_dcp_layout *l, uint32_t item);
bool ck_dcp_is_object(const struct ck_dcp_layout *l, uint32_t entry);
/* The box of a tensor's item; bytes of the tensor before it. */
void ck_dcp_layout_item_box(const struct ck_dcp_layout *l, uint32_t item,
			    uint64_t *start, uint64_t *shape, uint64_t *at);

void ck_dcp_entry_path(const struct ck_dcp_layout *l, uint32_t entry,
		       uint32_t *path, uint32_t *name);
/* Decides which entries are flat, when all are there; -ENOMEM. */
int ck_dcp_paths_resolve(struct ck_dcp_layout *l, struct ck_err *err);

/* Fills in l->planned; -ENOMEM. */
int ck_dcp_paths_plan(struct ck_dcp_layout *l, struct ck_err *err);

/* Describes @l for its .metadata; @out->ctx is @l. */
void ck_dcp_layout_out(const struct ck_dcp_layout *l, struct ck_dcp_out *out);
#endif
