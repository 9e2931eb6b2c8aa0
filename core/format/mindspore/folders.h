/* SPDX-License-Identifier: Apache-2.0 */
/* folders.h - between find.c and folders.c */
#ifndef CK_MINDSPORE_FOLDERS_H
#define CK_MINDSPORE_FOLDERS_H

#include "core/format/mindspore/find.h"

/* Adds the file @name, of @rank, if it is one of a checkpoint. */
int ck_ms_add_file(struct ck_ms_found *f, const struct ck_dir *dir,
		   const char *name, uint32_t rank, struct ck_err *err);
/* Looks for folders of ranks among f->root; f->mode says what they are. */
int ck_ms_find_folders(struct ck_ms_found *f, const struct ck_dir *dir,
		       struct ck_err *err);
bool ck_ms_are_flat(const struct ck_ms_found *f);
/* Takes plain files for those of ranks, if their names tell them apart. */
int ck_ms_find_flat(struct ck_ms_found *f, const struct ck_dir *dir,
		    struct ck_err *err);
/* By rank, then name. */
void ck_ms_sort_files(struct ck_ms_found *f);
/* Lists @in; f->lists own what @out borrows. */
int ck_ms_list(struct ck_ms_found *f, const struct ck_dir *dir, const char *in,
	       struct ck_dir_list *out, struct ck_err *err);

#endif
