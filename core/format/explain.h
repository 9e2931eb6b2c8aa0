/* SPDX-License-Identifier: Apache-2.0 */
/* explain.h - one line for a folder that no reader takes, and what is beside */
#ifndef CK_EXPLAIN_H
#define CK_EXPLAIN_H

#include "core/base/err.h"
#include "core/root/dir.h"

struct ck_builder;
struct ck_format;

/*
 * Returns -ENODATA with the line: what was expected, and what is there; or
 * -EINVAL where a save has not ended.
 */
int ck_explain_none(const struct ck_dir *dir, struct ck_err *err);
/* Whether a file of that name is a part, or the index, of a folder's checkpoint. */
bool ck_explain_is_part(const char *name);
/*
 * What lies beside what a reader of @f read: torch.save files, folders that are
 * checkpoints of their own, files of an interrupted save; numbered files of
 * which nothing says how many there were; a trainer's files that are damaged.
 */
int ck_explain_beside(const struct ck_dir *dir, const struct ck_format *f,
		      struct ck_builder *b, struct ck_err *err);

/* Whether a file of that name is a trainer's: an optimizer's, a scheduler's. */
bool ck_leftover_is_name(const char *name);
/* An error for each of a trainer's files in @l that is damaged. */
int ck_leftover_check(const struct ck_dir *dir, const struct ck_dir_list *l,
		      struct ck_builder *b, struct ck_err *err);

#endif
