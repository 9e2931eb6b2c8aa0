/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.h - which safetensors files of a folder make up one checkpoint
 */
#ifndef CK_HF_FILES_H
#define CK_HF_FILES_H

#include "core/base/err.h"
#include "core/root/dir.h"
#include "core/base/strmap.h"
#include "core/parse/json.h"

#include <stdbool.h>

enum ck_hf_mode {
	CK_HF_NONE, /* no such files */
	CK_HF_ONE, /* a single file and no index */
	CK_HF_INDEXED, /* an index names them */
	CK_HF_UNION, /* no index; every file is whole tensors */
	CK_HF_SHARDED, /* DCP's shard-RANK-model-... files: boxes */
};

struct ck_hf_files {
	enum ck_hf_mode mode;
	struct ck_dir_list root, below; /* own the names that follow */
	const char **name; /* the checkpoint's files */
	size_t nr, room;
	const char **aside; /* safetensors files that are not of it */
	size_t nr_aside, room_aside;
	bool beside_sharded; /* sharded/ has shard files, left aside too */
	const char *index; /* INDEXED: its name */
	json_t *json;
	const json_t *weight_map; /* tensor -> file */
	struct ck_strmap numbers; /* INDEXED: of name[] */
};

/*
 * Looks at names only, but for finding that there is more than one index.
 * Fills @f->mode; then _choose() reads the index and fills the rest, or says
 * what is missing (-EINVAL).  Free it in any case.
 */
int ck_hf_files_list(struct ck_hf_files *f, const struct ck_dir *dir,
		     struct ck_err *err);
int ck_hf_files_choose(struct ck_hf_files *f, const struct ck_dir *dir,
		       struct ck_err *err);
void ck_hf_files_free(struct ck_hf_files *f);

/* shard-00003-model-00001-of-00002.safetensors: 3, 1 and 2, from 1 each. */
struct ck_hf_shard {
	unsigned rank, file, of;
};
bool ck_hf_is_shard(const char *name, struct ck_hf_shard *out);

#endif
