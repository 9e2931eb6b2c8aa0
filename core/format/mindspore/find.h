/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find.h - which files of a folder are a checkpoint of MindSpore
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
#ifndef CK_MINDSPORE_FIND_H
#define CK_MINDSPORE_FIND_H

#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/root/dir.h"
#include "core/format/mindspore/names.h"

#include <stdbool.h>
#include <stdint.h>

enum ck_ms_mode {
	CK_MS_NOTHING,
	CK_MS_ONE,
	CK_MS_MAYBE, /* ranks, or saves: two folders of several were looked at */
	CK_MS_RANKS,
	CK_MS_UNIFIED,
};

struct ck_ms_found_file {
	const char *name; /* from the root */
	const char *base; /* its last part */
	uint32_t rank;
	bool chosen;
};

struct ck_ms_found {
	enum ck_ms_mode mode;
	bool has_ckpt; /* ONE: not only safetensors, which others read too */
	bool sums; /* ONE: safetensors with a sum, which only we check */
	bool names_only; /* do not look into files, nor for strategies */
	bool asked; /* the user says how ranks join: there are some */
	bool flat; /* RANKS: all in one folder, by their names */
	bool weak; /* RANKS: no word says what the numbers are */
	size_t alike; /* MAYBE: so many folders */
	bool passed_over; /* the folder looked at has files of other saves */
	struct ck_dir_list root;
	CK_VEC(struct ck_dir_list) lists; /* own the names of files */
	CK_VEC(uint32_t) ranks; /* ascending: those that have a folder */
	CK_VEC(struct ck_ms_found_file) file; /* by rank, then name */
	CK_VEC(const char *) strategy; /* found by themselves */
	CK_VEC(const char *) dud; /* called so, and empty, or cut in the head */
	const char *tmp; /* the first temporary file in any folder; or NULL */
	size_t nr_tmp;
	char *step; /* the name, or pattern of names, that was chosen */
	char *others; /* names that were not, or NULL */
	size_t nr_others, nr_lacking; /* ranks without the step chosen */
	char *newer; /* a later step that some rank lacks; NULL: none */
	uint32_t newer_lacks; /* that rank */
	/* files of the same save that some rank lacks, most do not; or NULL */
	char *partial;
	uint32_t partial_lacks; /* the first rank that does */
	size_t nr_partial; /* ranks that have one */
};

/*
 * Looks at names and first bytes, of the one save where @dir is of one.  Free
 * it in any case.
 */
int ck_ms_find(struct ck_ms_found *f, const struct ck_dir *dir,
	       struct ck_err *err);
/* The same by names alone, in the folder @in of @dir. */
int ck_ms_find_names(struct ck_ms_found *f, const struct ck_dir *dir,
		     const char *in, struct ck_err *err);
/*
 * MAYBE: -EINVAL where the folders are of ranks by what is in them, -ENODATA
 * where they are saves.
 */
int ck_ms_maybe(const struct ck_ms_found *f, const struct ck_dir *dir,
		struct ck_err *err);
/* -EINVAL where names say one rank twice, or of plain files that they are. */
int ck_ms_twice(const struct ck_ms_found *f, const struct ck_dir *dir,
		struct ck_err *err);
/* Of several steps: the one by -o file=, or the newest that is complete. */
int ck_ms_choose(struct ck_ms_found *f, const struct ck_dir *dir,
		 struct ck_err *err);
void ck_ms_found_free(struct ck_ms_found *f);

#endif
