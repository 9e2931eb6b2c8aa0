/* SPDX-License-Identifier: Apache-2.0 */
/* explain.h - one line for a folder that no reader takes, and what is beside */
#ifndef CK_EXPLAIN_H
#define CK_EXPLAIN_H

#include "core/base/err.h"
#include "core/root/dir.h"

struct ck_builder;

/*
 * Returns -ENODATA with the line: what was expected, and what is there; or
 * -EINVAL where a save has not ended.
 */
int ck_explain_none(const struct ck_dir *dir, struct ck_err *err);
/* A note where torch.save files lie beside what was read. */
int ck_explain_leftovers(const struct ck_dir *dir, struct ck_builder *b,
			 struct ck_err *err);
/*
 * A note where folders beside a model's files are checkpoints of their own, and
 * a warning where the one that "latest" names is not there.
 */
int ck_explain_siblings(const struct ck_dir *dir, struct ck_builder *b,
			struct ck_err *err);
/* Whether a file of that name is a trainer's: an optimizer's, a scheduler's. */
bool ck_leftover_is_name(const char *name);
/* An error for each of a trainer's files beside it that is damaged. */
int ck_leftover_check(const struct ck_dir *dir, struct ck_builder *b,
		      struct ck_err *err);
/*
 * A warning where the names of safetensors files say that they are of a set,
 * and nothing says how many there were.
 */
int ck_explain_numbered(const struct ck_dir *dir, struct ck_builder *b,
			struct ck_err *err);
/* A note where temporary files lie beside what was read. */
int ck_explain_temporary(const struct ck_dir *dir, struct ck_builder *b,
			 struct ck_err *err);
/* A warning where a save has not ended, or had not before what was read. */
int ck_explain_unfinished(const struct ck_dir *dir, struct ck_builder *b,
			  struct ck_err *err);

#endif
