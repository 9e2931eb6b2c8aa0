/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tc.h - what the reader of torch_checkpointing shares between its files
 *
 *	metadata.pkl          items, their tensors, how each lies on its mesh, and
 *	                      which file each rank wrote of an item
 *	ITEM_RANK.pt          by torch.save, or
 *	ITEM_RANK.safetensors
 *
 * A tensor is called ITEM.PATH, whose parts are joined by dots.  One thread.
 */
#ifndef CK_TC_H
#define CK_TC_H

#include "core/assemble/assemble.h"
#include "core/base/str.h"
#include "core/base/vec.h"

#define TC_METADATA "metadata.pkl"

/* What leads to a tensor in the saved structure, its item first. */
struct tc_path {
	const struct ck_path_part *v;
	unsigned nr;
};

struct tc {
	struct ck_asm a; /* files: @user is the number of the item */
	/* User: one more than the file whose objects are shown, the first. */
	struct ck_strmap items;
	uint64_t world; /* ranks that wrote it */
	/* Of tensors, whose @user is one more than their number here. */
	CK_VEC(struct tc_path) paths;
	/*
	 * Where boxes begin in what their rank stores of the tensor; of pieces,
	 * whose @user is one more than their number here.  0: at its first
	 * element, and they are all of it.
	 */
	CK_VEC(const uint64_t *) locals;
	struct ck_str name; /* of ck_tc_name() */
};

/* Reads TC_METADATA: all tensors, with a piece for each that a rank has. */
int ck_tc_read_metadata(struct tc *s, struct ck_err *err);

/* Into s->name: "ITEM.REST", or "ITEM" without a rest; false: no memory. */
bool ck_tc_name(struct tc *s, uint32_t item, const char *rest, size_t len);
/* Copies the path, puts the item before it; -ENOMEM. */
int ck_tc_set_path(struct tc *s, struct ck_asm_tensor *t, uint32_t item,
		   const struct ck_path_part *rest, unsigned nr,
		   struct ck_err *err);

/* For struct ck_asm_reader: what a file has under a key. */
int ck_tc_key(struct ck_asm *a, uint32_t file, const struct ck_found *f,
	      struct ck_err *err);

#endif
