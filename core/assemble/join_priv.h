/* SPDX-License-Identifier: Apache-2.0 */
/* join_priv.h - between the files that join the pieces of a tensor */
#ifndef CK_JOIN_PRIV_H
#define CK_JOIN_PRIV_H

#include "core/assemble/assemble.h"

/* A part that was placed; what it points to is in the arena of the tensor. */
struct ck_asm_placed {
	struct ck_part part;
	uint32_t piece;
};

/* Where all parts of a piece are: the same number, the same place. */
struct ck_asm_spot {
	uint64_t place;
	uint32_t piece;
	bool placed; /* as in struct ck_asm_join */
	bool odd; /* of a tensor of another shape: the builder says so */
};

/* A tensor on its way. */
struct ck_asm_work {
	struct ck_asm_join j;
	struct ck_arena mem;
	CK_VEC(struct ck_asm_placed) parts;
	CK_VEC(struct ck_asm_spot) spots; /* of the pieces that are stored */
};

void ck_asm_work_free(struct ck_asm_work *w);
#define ck_auto_asm_work __attribute__((cleanup(ck_asm_work_free)))

/* Whether the pieces go together, what of, and where each is. */
int ck_asm_place_all(struct ck_asm_work *w, struct ck_err *why);

/* What stands in braces. */
struct ck_asm_saying {
	const struct ck_asm *a;
	const struct ck_asm_piece *file, *other;
	const struct ck_asm_piece *last; /* NULL: @file */
	uint64_t byte;
};
/* -EINVAL, in the reader's words; 0 if it has none. */
int ck_asm_wrong(const struct ck_asm_join *j, enum ck_asm_wrong what,
		 const struct ck_asm_saying *s, struct ck_err *why);

/* ---- replicas.c, stretch.c ---- */

/* Each piece beside those before it in the same place. */
int ck_asm_check_copies(const struct ck_asm_work *w, struct ck_err *why,
			struct ck_err *err);
/* Parts that are stretches of one box are cut where any of them begins. */
int ck_asm_cut_stretches(struct ck_asm_work *w, struct ck_err *why);

#endif
