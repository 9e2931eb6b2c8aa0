/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replicas.h - pieces of ranks that should be alike, or that should not
 *
 * A layout says which pieces are parts of something, and which are copies of
 * one part.  What their bytes say may be otherwise: then the layout was not
 * used, or is another run's, or files of several saves lie together.
 *
 * Pure; any thread.
 */
#ifndef CK_AUDIT_REPLICAS_H
#define CK_AUDIT_REPLICAS_H

#include "core/base/vec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ck_audit_piece {
	uint64_t group; /* none is compared with those of others */
	uint64_t part; /* of the group; those of equal ones are copies */
	uint64_t like; /* equal where the bytes are; 0: they are not known */
	uint64_t form; /* equal where the shapes are */
	uint32_t file;
	uint32_t at; /* its place in the order in which they were given */
	bool constant; /* of one value, which is alike wherever it is */
};

struct ck_audit_pieces {
	CK_VEC(struct ck_audit_piece) v; /* the functions below sort them */
};

void ck_audit_pieces_free(struct ck_audit_pieces *p);
#define ck_auto_audit_pieces __attribute__((cleanup(ck_audit_pieces_free)))
/* Fills in @at; false: no memory. */
bool ck_audit_pieces_add(struct ck_audit_pieces *p,
			 const struct ck_audit_piece *piece);

/* ---- parts, which should differ ---- */

struct ck_audit_parts {
	bool differ; /* two do */
	uint64_t same; /* that are alike, and should not be */
	uint64_t constant; /* so many more, which tells nothing */
	uint32_t a, b; /* files of the first two that are the same */
};

/* Each piece beside the first of its group; adds to what is in @out. */
void ck_audit_parts(struct ck_audit_pieces *p, struct ck_audit_parts *out);
/* There are some, and each is the same as one of another part of its group. */
bool ck_audit_all_twice(struct ck_audit_pieces *p);

/* ---- copies, which should not ---- */

/*
 * There is a group in which no two copies of any part are alike.  One file that
 * is damaged, or of another save, differs from its copies; that does not make
 * all of them differ, so that there must be two that do.
 */
bool ck_audit_none_agree(struct ck_audit_pieces *p);

/* How many copies of a file were compared, and are not as most of the others. */
struct ck_audit_odd {
	uint32_t compared, odd;
	uint32_t lonely; /* of the odd ones: no other is as most are, either */
};

/* All pieces are copies of one part; adds to @odd, by number of file. */
void ck_audit_count_odd(const struct ck_audit_pieces *p,
			struct ck_audit_odd *odd);

#endif
