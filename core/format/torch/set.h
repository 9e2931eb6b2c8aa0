/* SPDX-License-Identifier: Apache-2.0 */
/*
 * set.h - which torch.save files of a folder belong together
 */
#ifndef CK_TORCH_SET_H
#define CK_TORCH_SET_H

#include "core/base/err.h"
#include "core/root/dir.h"
#include "core/assemble/index_map.h"

#include <stdbool.h>

struct ck_torch_set {
	char **name; /* nr of them, sorted (ranks: by number) */
	size_t nr, room;
	bool indexed; /* an index names them */
	struct ck_index_map index; /* indexed: its files are @name */
	bool ranks; /* one a rank: same keys, pieces of the same tensors */
	bool numbered; /* of one set, by their names, and no index */
};

/*
 * nr is 0 where the folder has none, or several that do not belong together:
 * each of those is a checkpoint of its own.
 */
int ck_torch_set_find(struct ck_torch_set *set, const struct ck_dir *dir,
		      struct ck_err *err);
/* -EINVAL where files of a numbered set are missing, or may be. */
int ck_torch_set_check(const struct ck_torch_set *set, struct ck_err *err);
void ck_torch_set_free(struct ck_torch_set *set);
/* Notes the indexes of this form that were not chosen. */
int ck_torch_set_note_others(const struct ck_torch_set *set,
			     const struct ck_dir_list *l, struct ck_builder *b,
			     struct ck_err *err);
#endif
