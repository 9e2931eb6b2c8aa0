/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_map.h - an index.json that says which file of a folder has a key
 *
 *   {"metadata": {..}, "weight_map": {"a.weight": "pytorch_model-00001.bin"}}
 *
 * A key is what stands at the top of a file: a tensor's name, or the number of
 * a parameter in an optimizer's.  The index decides which file a key is taken
 * from; what the files have besides is left out and said.  One thread.
 */
#ifndef CK_INDEX_MAP_H
#define CK_INDEX_MAP_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"
#include "core/root/dir.h"
#include "core/base/strmap.h"
#include "core/parse/json.h"

#include <stdbool.h>
#include <stdint.h>

struct ck_index_key {
	uint32_t file; /* number in @files */
	uint32_t other; /* the first other file that has it */
	bool seen, others; /* others: more than one other file has it */
};

struct ck_index_file {
	bool usable; /* set by who reads it */
	bool may_lack; /* what it lists need not be there */
	bool own; /* it has some of what it is listed with */
	uint32_t nr_extra, nr_other; /* keys not listed; of other files */
	const char *extra, *other; /* the first of each */
};

struct ck_index_map {
	char *name;
	json_t *json, *map;
	struct ck_strmap keys, files; /* names into @json */
	struct ck_strmap loose; /* keys that files have and it does not list */
	struct ck_arena mem; /* their bytes, and messages' */
	CK_VEC(uint32_t) loose_file; /* that has it first */
	CK_VEC(struct ck_index_key) key;
	CK_VEC(struct ck_index_file) file;
	bool again; /* the second time */
};

/* BASE.json, or with a prefix BASE.PREFIX.json. */
bool ck_index_is(const char *name, const char *base);
/*
 * Which of the files in @l that are an index of one of @bases (up to a NULL)
 * is read: what -o file= says; the only one, or the only one without a prefix.
 * *name NULL: there is none.  -EINVAL with a line that names -o file=.
 */
int ck_index_choose(const struct ck_dir *dir, const struct ck_dir_list *l,
		    const char *const *bases, const char **name,
		    struct ck_err *err);
/* Notes the other indexes of @bases in @l. */
int ck_index_note_others(const char *name, const struct ck_dir_list *l,
			 const char *const *bases, struct ck_builder *b,
			 struct ck_err *err);

/* -EINVAL with a line where it is no such index.  Free it in any case. */
int ck_index_read(struct ck_index_map *m, const struct ck_dir *dir,
		  const char *name, struct ck_err *err);
void ck_index_free(struct ck_index_map *m);
#define ck_auto_index __attribute__((cleanup(ck_index_free)))

/*
 * Whether @key of file @file is to be taken: an enum ck_index_say, or -ENOMEM.
 * TWICE: it is not listed, and another file had it too.
 */
enum ck_index_say { CK_INDEX_LEAVE, CK_INDEX_TAKE, CK_INDEX_TWICE };
int ck_index_say(struct ck_index_map *m, uint32_t file, const char *key,
		 size_t len, struct ck_err *err);
/*
 * Reads all files, by @load, which asks ck_index_say() of each key.  Those with
 * keys that the index puts into a file that is there and has them not are read
 * again, with @m->again set: then only those are taken.
 */
typedef int (*ck_index_load_fn)(void *ctx, uint32_t file, const char *name,
				bool *usable, struct ck_err *err);
int ck_index_load(struct ck_index_map *m, ck_index_load_fn load, void *ctx,
		  struct ck_err *err);
/*
 * When all files are read: refuses keys whose file is not usable, and says
 * what is not as the index says.  @what: how to call a key, "tensor".
 */
int ck_index_report(struct ck_index_map *m, const char *what,
		    struct ck_builder *b, struct ck_err *err);

#endif
