/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_priv.h - the parts of file.c
 *
 *	file.c	kinds, folders, the pickle's leaves
 *	names.c	leaves below modules that were pickled whole
 *	tensor.c	what a tensor's node, or its folder, says
 */
#ifndef CK_ONEFLOW_FILE_PRIV_H
#define CK_ONEFLOW_FILE_PRIV_H

#include "core/format/oneflow/file.h"
#include "core/container/torch_walk.h"
#include "core/parse/pickle.h"

struct ck_of_save {
	const struct ck_dir *dir;
	struct ck_builder *b;
	const char *path; /* of the folder; "" is the root */
	const struct ck_pickle *p;
	struct ck_source *src; /* of the pickle */
	uint32_t nr;
	/* what the leaf at hand borrows */
	char *file;
	void *bytes;
};

/* Whether @v is a tensor of OneFlow's. */
bool ck_of_is_tensor(const struct ck_pickle *p, ck_pv v);
bool ck_of_is_module(const struct ck_pickle *p, ck_pv v);
/*
 * Fills in what @leaf says of a tensor.  -EINVAL with the reason where it
 * cannot be read; other errors end the load.
 */
int ck_of_node(struct ck_of_save *s, ck_pv v, struct ck_of_leaf *leaf,
	       struct ck_err *err);
/* The same for the folder @name below the save's. */
int ck_of_folder(struct ck_of_save *s, const char *name, size_t len,
		 struct ck_of_leaf *leaf, struct ck_err *err);
/* All leaves of @root, those in modules under their state_dict's names. */
int ck_of_walk(const struct ck_pickle *p, ck_pv root, ck_torch_leaf_fn fn,
	       void *ctx, struct ck_err *err);

/* "PATH/NAME" for free(); NULL: no memory. */
char *ck_of_join(const char *path, const char *name, size_t len);

#endif
