/* SPDX-License-Identifier: Apache-2.0 */
/* world.h - the strategy files, and whether the ranks found are theirs */
#ifndef CK_MINDSPORE_WORLD_H
#define CK_MINDSPORE_WORLD_H

#include "core/format/mindspore/mindspore.h"
#include "core/format/mindspore/set.h"

/*
 * Reads the strategies of @f, or those that the user names, into s->strategy.
 * -EINVAL where they are of other ranks than there are, or where nothing says
 * how the ranks join.
 */
int ck_ms_world(struct ck_ms_set *s, const struct mindspore_found *f,
		struct ck_err *err);
/* -EINVAL where -o strategy= names a file that is nowhere. */
int ck_ms_check_given(const struct ck_dir *dir, struct ck_err *err);

#endif
