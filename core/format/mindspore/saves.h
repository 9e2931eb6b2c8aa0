/* SPDX-License-Identifier: Apache-2.0 */
/*
 * saves.h - several saves of MindSpore in one folder, each a step
 *
 *   rank_0/CKP-1_32.ckpt rank_0/CKP-2_32.ckpt    rank_1/..
 *
 * Told by names alone, so that a listing opens nothing.  Files that belong to
 * one save but are called differently (net.ckpt, optimizer.ckpt) are no steps:
 * names must have an epoch and a step, or differ in their numbers only.
 */
#ifndef CK_MINDSPORE_SAVES_H
#define CK_MINDSPORE_SAVES_H

#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/root/dir.h"

#include <stdbool.h>

struct ck_ms_saves {
	CK_VEC(char *) v; /* their keys (keys.h), the oldest first */
	bool in_ranks; /* not files of the folder itself */
};

/*
 * The saves in the folder @in of @dir; none where there are not several.  Free
 * it in any case.
 */
int ck_ms_saves_find(struct ck_ms_saves *out, const struct ck_dir *dir,
		     const char *in, struct ck_err *err);
void ck_ms_saves_free(struct ck_ms_saves *s);

/*
 * Calls @fn with each name that a file of the save @key may have in the
 * folders of ranks in @in, until it returns not 0, which is returned.
 */
int ck_ms_save_each(const struct ck_dir *dir, const char *in, const char *key,
		    int (*fn)(void *ctx, const char *folder, const char *base),
		    void *ctx, struct ck_err *err);
/* Whether @path, from the folder of the save @key, is of another save. */
bool ck_ms_save_hides(const char *key, const char *path);

#endif
