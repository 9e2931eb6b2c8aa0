/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.h - which torch.save files of a folder belong together
 */
#ifndef CK_TORCH_SET_H
#define CK_TORCH_SET_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/root/dir.h"
#include "core/assemble/index_map.h"

#include <stdbool.h>

struct ck_torch_set {
	struct ck_arena mem;
	CK_VEC(const char *) name; /* sorted (ranks: by number) */
	bool indexed; /* an index names them */
	struct ck_index_map index; /* indexed: its files are @name */
	bool ranks; /* one a rank: same keys, pieces of the same tensors */
	bool numbered; /* of one set, by their names, and no index */
};

/*
 * There are no names where the folder has none, or several that do not belong together:
 * each of those is a checkpoint of its own.
 */
int ck_torch_set_find(struct ck_torch_set *set, const struct ck_dir *dir,
		      struct ck_err *err);
/* -EINVAL where files of a numbered set are missing, or may be. */
int ck_torch_set_check(const struct ck_torch_set *set, struct ck_err *err);
void ck_torch_set_free(struct ck_torch_set *set);
/*
 * Reports kinds of files, KIND_world_size_N_rank_R, of which those of some ranks
 * are missing: a save is the model, its optimizer and what else each rank has.
 */
int ck_torch_set_check_ranks(const struct ck_dir_list *l, struct ck_builder *b,
			     struct ck_err *err);
/* Notes the indexes of this form that were not chosen. */
int ck_torch_set_note_others(const struct ck_torch_set *set,
			     const struct ck_dir_list *l, struct ck_builder *b,
			     struct ck_err *err);
#endif
