/* SPDX-License-Identifier: Apache-2.0 */
/* steps_priv.h - between steps.c, steps_signs.c and steps_saves.c */
#ifndef CK_STEPS_PRIV_H
#define CK_STEPS_PRIV_H

#include "core/run/steps.h"

#define CK_STEPS_RUN "checkpoints" /* where a run keeps them */

/* A file of that name holds tensors by itself. */
bool ck_steps_is_weights(const char *name);
/* But this one, of @root, says how MindSpore's are cut. */
bool ck_steps_is_strategy(const struct ck_root *root, const char *name);
/* Whether names in the folder @name of @root say that it is a checkpoint. */
bool ck_steps_is_signed(const struct ck_root *root, const char *name);
/* The same of all roots from @root on; or a folder in it, if it is no group's. */
bool ck_steps_has_sign(const struct ck_root *root, const char *name);

/* The last part of an entry's name. */
const char *ck_steps_base_of(const char *name);
/* "iter_0000100" -> 100: the last run of digits, if it ends the name. */
bool ck_steps_number_of(const char *name, uint64_t *out);
/* The file that entry @name is shown for without its suffix, or NULL. */
const char *ck_steps_file_of(const struct ck_root *root, const char *name);
/* A:B:C of @name in each root; "" is the roots themselves. */
void ck_steps_add_paths(const struct ck_root *root, const char *name,
			struct ck_str *out);
/* Whether a folder of @in beside @name is a step, and called as that is. */
bool ck_steps_is_one_of(const struct ck_root *all, const struct ck_root *in,
			const char *name);

/* Takes @step, also where it fails. */
int ck_steps_add(struct ck_steps *s, struct ck_step *step, struct ck_err *err);

/*
 * Where the group @group ("": the root) is of several saves in the folders of
 * ranks, @s becomes these.  Of saves that are files of the group the numbers
 * are set, of what @s has.
 */
int ck_steps_add_saves(struct ck_steps *s, const struct ck_root *root,
		       const char *group, struct ck_err *err);
/* 1: @name, "KEY" or "GROUP/KEY", is such a save; 0: it is none; -ENOMEM. */
int ck_steps_look_save(struct ck_step *out, const struct ck_root *root,
		       const char *name);

/*
 * The key of entry @name, to free(), if it is such a save: its path is that of
 * the folder that it is in.  NULL: it is none.
 */
char *ck_steps_save_of(const struct ck_root *root, const char *name);

#endif
