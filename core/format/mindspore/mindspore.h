/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mindspore.h - what the files of MindSpore's reader share
 *
 * Which files of a folder are a checkpoint:
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

#include "core/assemble/assemble.h"
#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/base/str.h"
#include "core/base/strmap.h"
#include "core/base/vec.h"
#include "core/catalog/builder.h"
#include "core/format/saves.h"
#include "core/mesh/strategy.h"
#include "core/root/dir.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MINDSPORE_MAX_STRATEGY (UINT64_C(64) << 20)

/* Whether -o integrated= says @how, which is not auto. */
static inline bool mindspore_integrated_is(const struct ck_dir *dir,
					   const char *how)
{
	const char *said = ck_opts_get(dir->opts, "integrated");

	return said && !strcmp(said, how);
}

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

/* Two whose numbers mean the same, called the same but for them. */
bool ck_mindspore_same_kind(const char *a, const char *b);
/*
 * The key of the save that a file called @base belongs to.  Files of one save
 * have one name in all folders, "_part0" and so on before the ending left out;
 * or with @numbered names that differ in the rank's number: the @nth number
 * that is @rank, as "{r}".  False: there are no more; true with out->failed: no
 * memory.
 */
bool ck_mindspore_key(struct ck_str *out, const char *base, uint32_t rank,
		      bool numbered, size_t nth);
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
	const char *name;
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
	struct ck_arena mem; /* has them */
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

/* What a file is, by its first bytes. */
enum mindspore_kind {
	MINDSPORE_OTHER,
	MINDSPORE_STRATEGY,
	MINDSPORE_CKPT,
	MINDSPORE_ENCRYPTED,
	MINDSPORE_SAFETENSORS,
};
/* Or -errno; files that cannot be opened are MINDSPORE_OTHER. */
int ck_mindspore_kind(const struct ck_dir *dir, const char *name,
		      struct ck_err *err);

struct mindspore_file {
	const char *name; /* from the root */
	const char *base; /* its last part */
	enum mindspore_kind kind; /* unless only names are looked at */
	uint32_t rank;
	bool chosen;
};

struct mindspore_found {
	const struct ck_dir *dir;
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
int ck_mindspore_choose(struct mindspore_found *f, struct ck_err *err);
/* Which saves are not shown, or not in all ranks. */
int ck_mindspore_report_saves(const struct mindspore_found *f,
			      struct ck_builder *b, struct ck_err *err);
/*
 * -EINVAL or -ENODATA where names, or of MAYBE what two files hold, leave open
 * what the folder is: a rank that is there twice, ranks without a strategy in
 * one folder, several saves.
 */
int ck_mindspore_check_found(const struct mindspore_found *f,
			     struct ck_err *err);

/* ---- layout.c: where a rank's piece lies in a tensor that was cut ---- */

enum mindspore_how {
	MINDSPORE_CUT, /* as the layout says */
	MINDSPORE_UNSHARDED, /* but for the optimizer's sharding */
	MINDSPORE_WHOLE, /* the tensor itself, in spite of the layout */
};

struct mindspore_place {
	unsigned rank, grid_rank; /* grid_rank 0: the shape is the grid */
	uint64_t shape[CK_MAX_RANK], grid[CK_MAX_RANK + 2];
	uint64_t start[CK_MAX_RANK + 2], len[CK_MAX_RANK + 2];
	uint64_t slice; /* equal for copies, of one layout */
};

/*
 * The piece that device @at of the grid stored as @stored (rank values).
 * -EINVAL with the reason where that cannot be; -ERANGE where the layout can,
 * but is not of a tensor stored so.
 */
int ck_mindspore_place(const struct ck_strategy_layout *l,
		       enum mindspore_how how, const uint64_t *stored,
		       unsigned rank, uint64_t at, struct mindspore_place *out,
		       struct ck_err *why);

/* ---- files.c: the tensors that files hold ---- */

struct mindspore_run {
	uint64_t off, len; /* bytes of the file */
};

enum {
	MINDSPORE_WIDE = 1, /* bfloat16 as the upper halves of float32 */
	MINDSPORE_CONSTANT = 2, /* all elements that were looked at are alike */
	MINDSPORE_OPAQUE = 4, /* no tensor: an object */
};

/* What a piece is besides its extent. */
struct mindspore_held {
	const struct mindspore_run *run;
	struct ck_strategy_item *item; /* its layout in its stage; or NULL */
	uint64_t bytes;
	uint32_t nr_runs;
	uint8_t flags;
};

struct mindspore_set {
	/*
	 * Of a piece with @like some of the bytes were looked at; files.v[].user
	 * is a rank's stage.
	 */
	struct ck_asm a;
	CK_VEC(struct mindspore_held) held; /* of each of a.pieces */
	const struct mindspore_found *found; /* what is read; or NULL */
	struct ck_strategy strategy;
	uint64_t hashed, summed; /* bytes read to compare, to check sums */
	struct ck_source *in; /* the file that is being read */
	bool lost; /* and its sum is wrong: none of its bytes are used */
	bool compares; /* files of several ranks: hash what is small */
	bool missing; /* a rank has no file, or a damaged one */
	bool smaller; /* as if of fewer ranks: anything that does not fit ends it */
	bool integrated; /* layouts were not used: all is whole */
	char against[CK_ERR_MAX]; /* why the strategy is another run's; or "" */
	/* of the piece that is being placed; the stage, or that of the last */
	struct mindspore_place at;
	uint32_t at_stage;
};

static inline struct mindspore_held *mindspore_held(
	const struct mindspore_set *s, const struct ck_asm_piece *p)
{
	return &s->held.v[p - s->a.pieces.v];
}

/* @found NULL: to look at files only.  End it in any case. */
void ck_mindspore_begin(struct mindspore_set *s, const struct ck_dir *dir,
			const struct mindspore_found *found,
			struct ck_builder *b);
void ck_mindspore_end(struct mindspore_set *s);
/* What the file describes; damage is a problem. */
int ck_mindspore_read(struct mindspore_set *s,
		      const struct mindspore_file *which, struct ck_err *err);

/* An error of bytes of that file. */
int ck_mindspore_damaged(struct mindspore_set *s, uint32_t file, uint64_t off,
			 uint64_t len, const char *reason, struct ck_err *err);
/* A piece of that name in the file that is being read, looked at if wanted. */
int ck_mindspore_add(struct mindspore_set *s, uint32_t file, const char *name,
		     size_t len, const struct ck_extent *x,
		     const struct mindspore_held *h, struct ck_err *err);
/* 1: a sum over @size bytes is to be checked; 0: it is not, which was noted. */
int ck_mindspore_wants_sum(struct mindspore_set *s, uint32_t file,
			   uint64_t size, struct ck_err *err);
/* *crc goes on over bytes of @in. */
int ck_mindspore_sum(struct ck_source *in, uint64_t off, uint64_t len,
		     uint32_t *crc, struct ck_err *err);
/*
 * The file's sum is wrong: none of its bytes are used, unless @excuse says why
 * that may be no damage.
 */
int ck_mindspore_sum_wrong(struct mindspore_set *s, uint32_t file,
			   uint64_t have, uint64_t want, const char *excuse,
			   struct ck_err *err);

/* ---- ckpt.c, st.c ---- */

bool ck_mindspore_is_ckpt(struct ck_source *in);
/* What @in, which is @file, describes goes to @s. */
int ck_mindspore_read_ckpt(struct mindspore_set *s, uint32_t file,
			   struct ck_source *in, struct ck_err *err);
/* As struct ck_asm_reader has them, of safetensors. */
int ck_mindspore_st_opened(struct ck_asm *a, uint32_t file,
			   const struct ck_container *c, struct ck_err *why,
			   struct ck_err *err);
int ck_mindspore_st_key(struct ck_asm *a, uint32_t file,
			const struct ck_found *f, struct ck_err *err);

/* ---- doubt.c, merge.c ---- */

/*
 * Whether the layouts of the strategy were used, and are of these files: sets
 * s->integrated and s->against, reports what is odd.  -EINVAL where nothing
 * can be had.
 */
int ck_mindspore_doubt(struct mindspore_set *s, struct ck_err *err);
/* Whether what should be shards of @t are copies, and not of one value. */
int ck_mindspore_are_copies(const struct mindspore_set *s,
			    const struct ck_asm_tensor *t, bool *are,
			    struct ck_err *err);
/* Where @p, of @t, is by its layout, as that was used. */
int ck_mindspore_place_of(const struct mindspore_set *s,
			  const struct ck_asm_tensor *t,
			  const struct ck_asm_piece *p,
			  struct mindspore_place *out, struct ck_err *why);
/* The strategy is of a run on more ranks than there are; @sign may be NULL. */
int ck_mindspore_other_world(const struct mindspore_set *s, size_t ranks,
			     const char *sign, struct ck_err *err);
extern const struct ck_asm_reader ck_mindspore_reader;
/* Gives all tensors to the builder. */
int ck_mindspore_merge(struct mindspore_set *s, struct ck_err *err);

/* ---- unified.c: the output of MindSpore's unified_safetensors ---- */

int ck_mindspore_unified(const struct ck_dir *dir, struct ck_builder *b,
			 struct ck_err *err);

#endif
