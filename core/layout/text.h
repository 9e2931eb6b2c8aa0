/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - names of files and tensors with variables in them
 *
 *	rank-{rank:05}.bin   layers.{$1+4*pp}.{$2}   {key}.tp{tp}   {{ }}
 *
 * In braces: a sum of products of numbers, mesh axes, "rank" and captures
 * ($1), maybe with a width to fill with zeros; or {key} or {$1} alone, as text.
 * No parentheses, so nothing is recursive.
 */
#ifndef CK_LAYOUT_TEXT_H
#define CK_LAYOUT_TEXT_H

#include "core/base/err.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CK_LAYOUT_AXES 16
#define CK_LAYOUT_CAPTURES 10 /* $0, the whole, to $9 */
#define CK_LAYOUT_FREE UINT64_MAX /* a coordinate that nothing tells */
#define CK_LAYOUT_RANK (1u << 30) /* in @used: {rank} */
#define CK_LAYOUT_KEY (1u << 31) /* in @used: {key} */

struct ck_layout_mesh {
	struct {
		const char *name; /* borrowed */
		uint64_t size;
	} axis[CK_LAYOUT_AXES]; /* the first varies slowest */
	unsigned nr;
	uint64_t nr_ranks; /* 1 without axes */
	uint64_t *rank; /* by position; NULL: the position */
};

/* CK_LAYOUT_AXES: there is no such axis. */
unsigned ck_layout_axis(const struct ck_layout_mesh *mesh, const char *name,
			size_t len);
/* Coordinates of a position, mesh->nr of them. */
void ck_layout_coords(const struct ck_layout_mesh *mesh, uint64_t pos,
		      uint64_t *at);

/* The rank that is there. */
uint64_t ck_layout_rank(const struct ck_layout_mesh *mesh, uint64_t pos);
/* Whether two places may be the same, as far as they are known. */
bool ck_layout_agree(const struct ck_layout_mesh *mesh, const uint64_t *a,
		     const uint64_t *b);

struct ck_layout_slice {
	const char *s;
	size_t len;
};

struct ck_layout_vars {
	const struct ck_layout_mesh *mesh;
	const uint64_t *at; /* by axis; CK_LAYOUT_FREE: not known */
	uint64_t rank; /* or CK_LAYOUT_FREE */
	struct ck_layout_slice key; /* s NULL: there is none */
	struct ck_layout_slice cap[CK_LAYOUT_CAPTURES];
	unsigned nr_cap;
	bool dry; /* values do not matter: is @text well formed? */
};

/*
 * Appends @text with its variables replaced.  -EINVAL with what is wrong and
 * where.  @used, where not NULL, gets a bit for each axis, CK_LAYOUT_RANK and
 * CK_LAYOUT_KEY.
 */
int ck_layout_expand(const char *text, const struct ck_layout_vars *v,
		     struct ck_str *out, uint32_t *used, struct ck_err *err);
/* Whether a wildcard of glob(7) stands outside of braces. */
bool ck_layout_is_glob(const char *text);

#endif
