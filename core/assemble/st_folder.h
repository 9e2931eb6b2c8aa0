/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_folder.h - which safetensors files of a folder make up one checkpoint
 */
#ifndef CK_ST_FOLDER_H
#define CK_ST_FOLDER_H

#include "core/base/err.h"
#include "core/root/dir.h"
#include "core/parse/json.h"

#include <stdbool.h>

enum ck_st_folder_mode {
	CK_ST_NONE, /* no such files */
	CK_ST_ONE, /* a single file and no index */
	CK_ST_INDEXED, /* an index names them */
	CK_ST_UNION, /* no index; every file is whole tensors */
	CK_ST_SHARDED, /* DCP's shard-RANK-model-... files: boxes */
};

struct ck_st_folder {
	enum ck_st_folder_mode mode;
	struct ck_dir_list root, below; /* own the names that follow */
	const char **name; /* the checkpoint's files */
	size_t nr, room;
	const char **aside; /* safetensors files that are not of it */
	size_t nr_aside, room_aside;
	bool beside_sharded; /* sharded/ has shard files, left aside too */
	const char *index; /* INDEXED: its name */
	json_t *json;
	const json_t *weight_map; /* tensor -> file */
};

/*
 * Looks at names only, but for finding that there is more than one index.
 * Fills @f->mode; then _choose() reads the index and fills the rest, or says
 * what is missing (-EINVAL).  Free it in any case.
 */
int ck_st_folder_list(struct ck_st_folder *f, const struct ck_dir *dir,
		      struct ck_err *err);
int ck_st_folder_choose(struct ck_st_folder *f, const struct ck_dir *dir,
			struct ck_err *err);
void ck_st_folder_free(struct ck_st_folder *f);

/* shard-00003-model-00001-of-00002.safetensors: 3, 1 and 2, from 1 each. */
struct ck_st_shard {
	unsigned rank, file, of;
};
bool ck_st_is_shard(const char *name, struct ck_st_shard *out);

#endif
