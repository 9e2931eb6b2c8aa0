/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mindspore.h - which files of a folder are a checkpoint of MindSpore
 *
 *   rank_0/ rank_1/ ..          (also node0/, rank_0_ckpt/ and the like) with
 *     CKP-1_32.ckpt CKP-2_32.ckpt   one file a rank and step, equal names or
 *     t0.ckpt                       names that differ in the rank's number
 *     t0_part0.ckpt t0_part1.ckpt   files that belong together
 *     ckpt/CKP-1_32.ckpt            or such a level deeper
 *   strategy.ckpt, strategy/..  how they were cut
 *   net.ckpt                    or one file by itself
 *
 * device0/ and the like are ranks where their files are MindSpore's; 0/ or
 * ckpt_0/, and net_0.ckpt net_1.ckpt in one folder, where there is a strategy,
 * or the user says that they are copies.
 */
#ifndef CK_MINDSPORE_H
#define CK_MINDSPORE_H

#include "core/root/dir.h"
#include "core/base/err.h"
#include "core/base/strmap.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"
#include "core/format/saves.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- names.c: ranks and saves in names ---- */

/* How sure it is that a number is a rank's. */
enum mindspore_word {
	MINDSPORE_NO_NUMBER,
	MINDSPORE_NUMBER, /* 3, ckpt_3: of a rank, or a save */
	MINDSPORE_DEVICE, /* device3, train_parallel3: of a rank if its own */
	MINDSPORE_RANK, /* rank_3, node3 */
};

struct mindspore_number {
	enum mindspore_word word;
	size_t from, to; /* the digits, in the last part of the name */
	uint32_t rank;
};

/* What @name says, by its last part; false: it has no such number. */
bool ck_mindspore_number_in(const char *name, struct mindspore_number *out);
/* Whether @name is of a rank for sure, or of one if it is MindSpore's. */
bool ck_mindspore_folder_rank(const char *name, uint32_t *rank);
/* The last part. */
const char *ck_mindspore_base(const char *name);

/* Two whose numbers mean the same, called the same but for them. */
bool ck_mindspore_same_kind(const char *a, const char *b);
/*
 * The key of the save that a file called @base belongs to.  Files of one save
 * have one name in all folders, "_part0" and so on before the ending left out;
 * or with @numbered names that differ in the rank's number: the @nth number
 * that is @rank, as "{r}".  To free(); NULL: there are no more, or *failed.
 */
char *ck_mindspore_key(const char *base, uint32_t rank, bool numbered,
		       size_t nth, bool *failed);
/* Whether such a file is of the save @key, which is of either form. */
bool ck_mindspore_key_has(const char *key, const char *base, uint32_t rank);
/* "CKP_1-4_32.ckpt": epoch 4, step 32.  False: it names none. */
bool ck_mindspore_epoch_in(const char *base, uint64_t *epoch, uint64_t *step);

/* As struct ck_format_saves has them. */
int ck_mindspore_save_each(const struct ck_dir *dir, const char *in,
			   const char *key,
			   int (*fn)(void *ctx, const char *folder,
				     const char *base),
			   void *ctx, struct ck_err *err);
bool ck_mindspore_save_hides(const char *key, const char *path);

/* ---- saves.c: the saves in the folders of ranks ---- */

struct mindspore_key {
	char *name;
	size_t nr_ranks; /* that have a file of it */
	uint32_t last_rank; /* rank counted last, + 1 */
	uint32_t first, last; /* in @of: its files */
	uint64_t epoch, number; /* of "-EPOCH_STEP"; epoch + 1, 0: none */
};

struct mindspore_key_file {
	uint32_t file, next;
};

struct mindspore_keys {
	CK_VEC(struct mindspore_key) v;
	/* Each file, with each key of it. */
	CK_VEC(struct mindspore_key_file) of;
	struct ck_strmap names;
	bool numbered; /* keys have {r} */
};

void ck_mindspore_keys_free(struct mindspore_keys *k);
int ck_mindspore_saves_find(struct ck_saves *out, const struct ck_dir *dir,
			    const char *in, struct ck_err *err);

/* ---- find.c ---- */

enum mindspore_mode {
	MINDSPORE_NOTHING,
	MINDSPORE_ONE,
	MINDSPORE_MAYBE, /* ranks, or saves: two folders were looked at */
	MINDSPORE_RANKS,
	MINDSPORE_UNIFIED,
};

struct mindspore_file {
	const char *name; /* from the root */
	const char *base; /* its last part */
	uint32_t rank;
	bool chosen;
};

struct mindspore_found {
	enum mindspore_mode mode;
	bool has_ckpt; /* ONE: not only safetensors, which others read too */
	bool sums; /* ONE: safetensors with a sum, which only we check */
	bool names_only; /* do not look into files, nor for strategies */
	bool asked; /* the user says how ranks join: there are some */
	bool flat; /* RANKS: all in one folder, by their names */
	bool weak; /* RANKS: no word says what the numbers are */
	size_t alike; /* MAYBE: so many folders */
	struct ck_dir_list root;
	CK_VEC(struct ck_dir_list) lists; /* own the names of files */
	CK_VEC(uint32_t) ranks; /* ascending: those that have a folder */
	CK_VEC(struct mindspore_file) file; /* by rank, then name */
	CK_VEC(const char *) strategy; /* found by themselves */
	CK_VEC(const char *) dud; /* called so, and empty, or cut in the head */
	const char *temporary; /* the first such file in any folder; or NULL */
	size_t nr_temporary;
	struct mindspore_keys keys; /* when one is chosen */
	const struct mindspore_key *save; /* that one, of @keys; else NULL */
};

/*
 * Looks at names and first bytes, of the one save where @dir is of one.  Free
 * it in any case.
 */
int ck_mindspore_find(struct mindspore_found *f, const struct ck_dir *dir,
		      struct ck_err *err);
/* The same by names alone, in the folder @in of @dir. */
int ck_mindspore_find_names(struct mindspore_found *f, const struct ck_dir *dir,
			    const char *in, struct ck_err *err);
void ck_mindspore_found_free(struct mindspore_found *f);
/*
 * Of several saves: the one by -o file=, or the newest that most ranks have;
 * marks its files.
 */
int ck_mindspore_choose(struct mindspore_found *f, const struct ck_dir *dir,
			struct ck_err *err);
/* Which saves are not shown, or not in all ranks. */
int ck_mindspore_report_saves(const struct mindspore_found *f,
			      const struct ck_dir *dir, struct ck_builder *b,
			      struct ck_err *err);
/*
 * -EINVAL or -ENODATA where names, or of MAYBE what two files hold, leave open
 * what the folder is: a rank that is there twice, ranks without a strategy in
 * one folder, several saves.
 */
int ck_mindspore_check_found(const struct mindspore_found *f,
			     const struct ck_dir *dir, struct ck_err *err);

int ck_mindspore_no_memory(struct ck_err *err);

#endif
