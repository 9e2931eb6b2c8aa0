/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_file.h - says all tensors and objects of a torch.save file to a builder
 */
#ifndef CK_TORCH_FILE_H
#define CK_TORCH_FILE_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/catalog/builder.h"
#include "core/root/dir.h"
#include "core/base/strmap.h"
#include "core/container/torch_walk.h"

struct ck_torch_load {
	const struct ck_dir *dir;
	struct ck_builder *b;
	bool ranks; /* files of several ranks: the same key is a piece */
	bool several; /* one that is damaged is not all there is */
	/*
	 * NULL, or says in *take whether a leaf is wanted, whose name it may
	 * change: to what lives until it is called again.
	 */
	int (*pick)(void *ctx, const struct ck_pickle *p,
		    struct ck_torch_leaf *leaf, bool *take, struct ck_err *err);
	void *ctx;
	/* Reports what is wrong with a file as a whole: core/format/slice.h. */
	int (*check)(const struct ck_dir *dir, struct ck_builder *b,
		     const char *file, const struct ck_pickle *p,
		     struct ck_err *err);
	bool usable; /* the last file was there, and whole enough */
	/* private */
	struct ck_strmap seen; /* names given, where they must be unique */
	struct ck_arena mem;
};

/* A file that does not exist, or is damaged, is a problem and 0. */
int ck_torch_file_load(struct ck_torch_load *ld, const char *name,
		       struct ck_err *err);
void ck_torch_load_free(struct ck_torch_load *ld);

#endif
