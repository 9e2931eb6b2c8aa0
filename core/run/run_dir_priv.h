/* SPDX-License-Identifier: Apache-2.0 */
/* run_dir_priv.h - between run_dir.c, run_dir_signs.c and run_dir_saves.c */
#ifndef CK_RUN_DIR_PRIV_H
#define CK_RUN_DIR_PRIV_H

#include "core/format/format.h"
#include "core/run/run_dir.h"

#define CK_RUN_DIR_RUN "checkpoints" /* where a run keeps them */

/* A file of that name holds tensors by itself. */
bool ck_run_dir_is_weights(const char *name);
/* But this one, of @root, is none: it says how others are cut. */
bool ck_run_dir_is_aux(const struct ck_root *root, const char *name);
/* Whether names in the folder @name of @root say that it is a checkpoint. */
bool ck_run_dir_is_signed(const struct ck_root *root, const char *name);
/* Whether a name in the folder @name is a sign of the kinds @is; 0: of any. */
bool ck_run_dir_has_in(const struct ck_root *root, const char *name,
		       unsigned is);
/* By a sign of its own, or of a folder in it that no group would show. */
bool ck_run_dir_has_own(const struct ck_root *root, const char *name);
/*
 * The folder that the entry @name shows, a step or a part of one, which is no
 * checkpoint itself and no group: the only one below it that is one and holds no optimizer.  NULL: there
 * is none.  To free().
 */
char *ck_run_dir_inner(const struct ck_root *root, const char *name);
/* The same of all roots from @root on; or a folder in it, if it is no group's. */
bool ck_run_dir_has_sign(const struct ck_root *root, const char *name);

/* The last part of an entry's name. */
const char *ck_run_dir_base_of(const char *name);
/* "iter_0000100" -> 100: the last run of digits, if it ends the name. */
bool ck_run_dir_number_of(const char *name, uint64_t *out);
/* The file that entry @name is shown for without its suffix, or NULL. */
const char *ck_run_dir_file_of(const struct ck_root *root, const char *name);
/* A:B:C of @name in each root; "" is the roots themselves. */
void ck_run_dir_add_paths(const struct ck_root *root, const char *name,
			  struct ck_str *out);
/* Whether a folder of @in beside @name is a step, and called as that is. */
bool ck_run_dir_is_one_of(const struct ck_root *all, const struct ck_root *in,
			  const char *name);

/* Takes @step, also where it fails. */
int ck_run_dir_add(struct ck_run_dir *s, struct ck_run_dir_entry *step,
		   struct ck_err *err);

/*
 * Where the group @group ("": the root) is of several saves in the folders of
 * ranks, @s becomes these.  Of saves that are files of the group the numbers
 * are set, of what @s has.
 */
int ck_run_dir_add_saves(struct ck_run_dir *s, const struct ck_root *root,
			 const char *group, struct ck_err *err);
/* 1: @name, "KEY" or "GROUP/KEY", is such a save; 0: it is none; -ENOMEM. */
int ck_run_dir_look_save(struct ck_run_dir_entry *out,
			 const struct ck_root *root, const char *name);

/* Whether @parts, which may be NULL, have one called @key. */
bool ck_run_dir_has_part(const struct ck_format_parts *parts, const char *key);

/*
 * The key of entry @name, to free(), if it is such a save: its path is that of
 * the folder that it is in.  NULL: it is none.
 */
char *ck_run_dir_save_of(const struct ck_root *root, const char *name);

#endif
