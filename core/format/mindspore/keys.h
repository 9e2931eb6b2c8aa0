/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys.h - which files in the folders of ranks belong to one save
 *
 * Files of one save have one name in all folders, or names that differ in the
 * rank's number, "{r}" here; "_part0" and so on before the ending is no part
 * of the name.  The name, or that pattern, is the key of the save.
 */
#ifndef CK_MINDSPORE_KEYS_H
#define CK_MINDSPORE_KEYS_H

#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/format/mindspore/find.h"
#include "core/base/strmap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ck_ms_key {
	char *key;
	size_t nr_ranks;
	uint32_t last; /* rank counted last, + 1 */
	uint64_t epoch, number; /* of "-EPOCH_STEP"; epoch + 1, 0: none */
};

struct ck_ms_key_file {
	uint32_t key, file;
};

struct ck_ms_keys {
	CK_VEC(struct ck_ms_key) v;
	CK_VEC(struct ck_ms_key_file) of; /* each file and each key of it */
	struct ck_strmap names;
	bool numbered; /* keys have {r} */
};

/* All keys of @f: names, or with @numbered patterns.  Free it in any case. */
int ck_ms_keys_collect(struct ck_ms_keys *s, const struct ck_ms_found *f,
		       bool numbered, struct ck_err *err);
void ck_ms_keys_free(struct ck_ms_keys *s);
/* How many ranks the key has that most of them have. */
size_t ck_ms_keys_most(const struct ck_ms_keys *s);
bool ck_ms_key_later(const struct ck_ms_key *a, const struct ck_ms_key *b);
/* Whether names say that they are two steps, and not files of one save. */
bool ck_ms_key_are_steps(const struct ck_ms_key *a, const struct ck_ms_key *b);
/*
 * Whether a file that is called @base in the folder of rank @rank is of @key.
 * *failed: no memory.
 */
bool ck_ms_key_is_of(const char *base, uint32_t rank, bool numbered,
		     const char *key, bool *failed);
/* Both where @key is a pattern; for names alone. */
bool ck_ms_key_has(const char *key, const char *base, uint32_t rank);

/* Whether the name of a file ends in an epoch and a step: "-4_32". */
bool ck_ms_names_epoch(const char *base);

#endif
